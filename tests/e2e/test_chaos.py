"""A short run of the fault-injection suite, and its checks on evidence that was tampered with."""

import json
from dataclasses import replace

import pytest

from chaos.faults import kill, malformed, many
from chaos.invariants import Charge, Evidence, collect, problems
from chaos.world import Scenario, World, recover, world

pytestmark = [pytest.mark.lengthy, pytest.mark.service]


def harm(this: World, _seconds: float) -> None:
    """Kill the replicas that come back soonest, with malformed requests in between; then send a thousand callers."""
    for kind in ("engine", "embedder", "ingress"):
        assert kill.kill(this, kind) == kind
        malformed.inflict(this, 1)
    many.inflict(this, 0, callers=1000)


@pytest.fixture(scope="module")
def evidence() -> Evidence:
    with world(Scenario("short", harm, remote=True, answers=400), seed=7) as this:
        harm(this, 0)
        recover(this)
        this.load.stop()
        assert this.supervisor.stop() == []
        assert this.faults[-1][1] is not None
        assert set(this.notes["concurrent"]) >= {"200", "429"}
        assert this.wrong == []
        return collect(this)


def test_every_invariant_holds_after_harm(evidence: Evidence) -> None:
    assert problems(evidence) == []
    assert evidence.stored
    assert evidence.shown


def test_an_answer_without_its_charge_is_caught(evidence: Evidence) -> None:
    told = _charged(evidence)
    charge, _ = evidence.stored[told["id"]]
    without = [line for line in evidence.export if not _is(line, "charge", charge)]
    found = problems(evidence.with_export(without))
    assert f"the answer {told['id']} was given without a charge in the trail" in found
    assert any("events are missing" in problem for problem in found)


def test_an_answer_that_was_altered_is_caught(evidence: Evidence) -> None:
    received = list(evidence.received)
    place = next(i for i, one in enumerate(received) if one.release and "label" in one.release)
    other = {"red": "blue", "blue": "red"}[received[place].release["label"]]
    received[place] = replace(received[place], release={**received[place].release, "label": other})
    assert any("told something else" in problem for problem in problems(replace(evidence, received=tuple(received))))


def test_a_stored_answer_that_was_altered_is_caught(evidence: Evidence) -> None:
    told = _charged(evidence)
    charge, answer = evidence.stored[told["id"]]
    stored = {**evidence.stored, told["id"]: (charge, {**answer, "method": "by hand"})}
    found = problems(replace(evidence, stored=stored))
    assert f"the answer {told['id']} is not the one whose hash is in the trail" in found


def test_two_answers_to_one_question_are_caught(evidence: Evidence) -> None:
    one, *others = [told for told in evidence.received if told.release]
    other = next(told for told in others if told.release["id"] != one.release["id"])
    twin = replace(one, release=other.release)
    assert any("one question" in problem for problem in problems(replace(evidence, received=(one, twin))))


def test_a_void_after_a_private_sample_is_caught(evidence: Evidence) -> None:
    question, times = next(iter(evidence.shown.items()))
    given_back = Charge(evidence.digests[question], "voided", times[0] - 1, times[0] + 1)
    found = problems(replace(evidence, charges={**evidence.charges, "v": given_back}))
    assert "charge v was given back after exemplars were drawn for it" in found


def test_a_charge_for_a_question_that_was_called_free_is_caught(evidence: Evidence) -> None:
    told = next(one for one in evidence.received if one.release)
    denied = replace(told, status=503, slug="engine-unavailable", release=None)
    assert any("nothing was charged" in problem for problem in problems(replace(evidence, received=(denied,))))


def _charged(evidence: Evidence) -> dict:
    return next(one.release for one in evidence.received if one.release)


def _is(line: str, kind: str, charge: str) -> bool:
    event = json.loads(line)
    return event.get("kind") == kind and event["body"]["charge"] == charge
