"""The pipeline with a real ledger and store, and an engine that counts."""

import asyncio
import contextvars
import copy
import threading
import time
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest
import sqlalchemy as sa

from accounting.ledger.charges import AnswersExhaustedError
from accounting.ledger.quotas import QuotaExhaustedError, set_quota
from accounting.ledger.tables import charges
from accounting.plans.plan import calibrate_plan, load_plan
from aggregation.rnm_gaussian import RnmGaussian
from exemplar_store import WrongKeyError
from service.answering.answering import BusyError, StillAnsweringError, refusal
from service.answering.latency import Departure, Measured
from service.answering.plans.signing import sign
from service.answering.queries import InvalidQueryError, check_query
from service.answering.stages import Ready
from service.answering.turns import Turns
from service.engines.errors import EngineBusyError, EngineUnavailableError, UnanswerableQueryError
from service.engines.task import ZeroShot
from service.operations.services import Services, open_services
from tests.service.conftest import EMBEDDER, PLAN, FixedGrain, MajorityEngine, answering, make_records, states


def run(coroutine):
    return asyncio.run(coroutine)


def ask(services: Services, query="toy", **options):
    return run(services.answering.answer("toys.colour", query, key_id="k", **options))


def test_an_answer_is_a_label_charged_once_and_repeated_for_free(services: Services, toy_engine) -> None:
    first = ask(services, "a new toy")
    assert first.release.answer["label"] in ("red", "blue")
    assert (first.charged, first.answers_left, first.task) == (True, 19, "toys.colour@1")
    again = ask(services, "  a   new\ttoy ")
    assert (again.charged, again.answers_left, again.release) == (False, 19, first.release)
    assert states(services) == {"released": 1}
    assert [len(slots) for *_, slots in toy_engine.shown] == [10]  # every slot in one call


def test_the_answer_follows_the_votes(services: Services) -> None:
    """Four fifths of the toys are red: with this plan's noise most answers are."""
    labels = [ask(services, f"toy {i}").release.answer["label"] for i in range(20)]
    assert labels.count("red") >= 10  # each with a chance of 0.93, so fewer with one of 2e-8


def test_an_exhausted_task_refuses_new_queries_and_still_repeats_old_ones(services: Services) -> None:
    for i in range(20):
        ask(services, f"toy {i}")
    with pytest.raises(AnswersExhaustedError, match="colour"):
        ask(services, "one more")
    assert [(one.reason, one.times) for one in services.records.ledger.refusals()] == [("answers-exhausted", 1)]
    assert ask(services, "toy 7").charged is False
    assert states(services) == {"released": 20}


def test_a_refusal_that_cannot_be_counted_is_still_that_refusal(services: Services, monkeypatch, capsys) -> None:
    locked = sa.exc.OperationalError("insert", {}, Exception("database is locked"))
    monkeypatch.setattr(services.records.ledger, "refuse", Mock(side_effect=locked))
    with services.records.database.begin() as connection:
        set_quota(connection, "k", 0)
    with pytest.raises(QuotaExhaustedError):
        ask(services, "canary-77aa")
    out, err = capsys.readouterr()
    assert "refusal_not_counted" in out + err
    assert "canary-77aa" not in out + err
    assert states(services) == {}


@pytest.mark.parametrize(
    ("probe", "told"),
    [
        ({"side_effect": EngineUnavailableError("800")}, EngineUnavailableError),
        ({"side_effect": EngineBusyError("800 prompts")}, BusyError),
        ({"side_effect": UnanswerableQueryError("ask with a shorter text")}, InvalidQueryError),
        ({"side_effect": asyncio.CancelledError}, EngineUnavailableError),
        ({"return_value": ZeroShot(np.array([np.nan, 1.0]))}, EngineUnavailableError),
    ],
    ids=["down", "busy", "unanswerable", "cancelled", "no numbers"],
)
def test_a_failing_probe_voids_the_charge(services: Services, toy_engine, monkeypatch, capsys, probe, told) -> None:
    """The failure is raised and recorded on the grain, not sooner, because a twin would notice."""
    padded = answering(services, grains=FixedGrain(0.3))
    before, begun = datetime.now(UTC), time.monotonic()
    with monkeypatch.context() as failing:
        failing.setattr(toy_engine, "zero_shot", AsyncMock(**probe))
        with pytest.raises(told) as error:
            run(padded.answer("toys.colour", "canary-91ab", key_id="k"))
    assert type(error.value) is told
    assert "800" not in str(error.value)
    assert time.monotonic() - begun >= 0.3
    with services.records.database.connect() as connection:
        assert connection.execute(sa.select(charges.c.settled_at)).scalar_one() - before >= timedelta(seconds=0.3)
    assert states(services) == {"voided": 1}
    assert toy_engine.shown == []
    said = "".join(capsys.readouterr())
    assert "canary-91ab" not in said
    assert ("probe_failed" in said) is (told is EngineUnavailableError)
    assert ask(services).answers_left == 19


@pytest.mark.parametrize("error", [refusal(EngineBusyError("800 prompts"))[1], BusyError("much", 7), BusyError("much")])
def test_a_refusal_has_its_words_and_its_wait_in_another_process_too(error: BusyError) -> None:
    sent = copy.copy(error)  # as pickle does it
    assert (str(sent), sent.retry_after_s) == (str(error), error.retry_after_s)
    assert str(error).count("come back in") == 1


def test_who_waited_in_vain_comes_back_later_than_at_once() -> None:
    """A second later they would stand in the same queue."""
    assert refusal(EngineBusyError("800 prompts"))[1].retry_after_s == EngineBusyError.retry_after_s == 5


async def hangs(*_args):
    await asyncio.Event().wait()


@pytest.mark.parametrize(
    "failing",
    [
        AsyncMock(side_effect=RuntimeError("private detail")),
        hangs,
        AsyncMock(return_value=[np.array([np.nan, 7.0]), "?"] * 5),
    ],
    ids=["the engine fails", "it hangs", "it says what means nothing"],
)
def test_after_the_probe_every_failure_is_an_abstention(services: Services, toy_engine, monkeypatch, failing) -> None:
    monkeypatch.setattr(toy_engine, "contributions", failing)
    monkeypatch.setattr(services.answering, "stages", replace(services.answering.stages, timeout_s=0.2))
    assert ask(services).release.answer["label"] in ("red", "blue")
    assert states(services) == {"released": 1}


def test_the_charge_is_durable_before_the_sample_is_drawn(services: Services, toy_engine, monkeypatch) -> None:
    order, ledger, store = Mock(), services.records.ledger, services.records.store
    for owner, name in ((ledger, "charge"), (toy_engine, "zero_shot"), (store, "sample_slots"), (ledger, "release")):
        noting = Mock(wraps=getattr(owner, name))
        order.attach_mock(noting, name)
        monkeypatch.setattr(owner, name, noting)
    ask(services)
    assert [name for name, *_ in order.mock_calls] == ["charge", "zero_shot", "sample_slots", "release"]


def test_concurrent_twins_share_one_charge(services: Services) -> None:
    async def twins():
        answers = [services.answering.answer("toys.colour", "the same", key_id=f"k{i}") for i in range(8)]
        return await asyncio.gather(*answers)

    answers = run(twins())
    assert len({answer.release.id for answer in answers}) == 1
    assert sum(answer.charged for answer in answers) == 1
    assert states(services) == {"released": 1}


async def test_a_caller_who_hangs_up_while_the_charge_is_written_loses_nothing(services: Services, monkeypatch) -> None:
    ledger = services.records.ledger
    charge, writing = ledger.charge, threading.Event()

    def slow(*args, **options):
        writing.set()
        time.sleep(0.2)
        return charge(*args, **options)

    monkeypatch.setattr(ledger, "charge", slow)
    call = asyncio.create_task(services.answering.answer("toys.colour", "q", key_id="k"))
    await asyncio.to_thread(writing.wait, 10)
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call
    await services.answering.drain()
    assert states(services) == {"released": 1}


@pytest.mark.parametrize("hangs_up", [False, True])
def test_a_query_keeps_its_place_until_its_answer_leaves(services: Services, padding, hangs_up: bool) -> None:
    """Callers see whether another query is accepted: that reveals when an answer left, not when its work ended."""
    begun, over = padding
    small = answering(services, max_in_flight=1)

    async def crowd():
        first = asyncio.create_task(small.answer("toys.colour", "q", key_id="k"))
        await begun.wait()
        if hangs_up:
            first.cancel()
            with pytest.raises(asyncio.CancelledError):
                await first
        with pytest.raises(BusyError):
            await small.answer("toys.colour", "another", key_id="k")
        over.set()
        await asyncio.gather(first, return_exceptions=True)
        await small.drain()
        return await small.answer("toys.colour", "another", key_id="k")

    assert run(crowd()).charged
    assert states(services) == {"released": 2}


@pytest.mark.parametrize(("stage", "state"), [("probe", "voided"), ("sample", "charged"), ("slots", "charged")])
async def test_what_is_ended_by_force_is_given_back_only_if_no_sample_was_drawn(
    services: Services, toy_engine: MajorityEngine, monkeypatch: pytest.MonkeyPatch, stage: str, state: str
) -> None:
    reached, over = threading.Event(), threading.Event()
    sample = services.records.store.sample_slots

    async def hangs_here(*_args):
        reached.set()
        await hangs()

    def draws(*args, **options):
        drawn = sample(*args, **options)
        reached.set()
        over.wait(10)
        return drawn

    if stage == "sample":
        monkeypatch.setattr(services.records.store, "sample_slots", draws)
    else:
        monkeypatch.setattr(toy_engine, {"probe": "zero_shot", "slots": "contributions"}[stage], hangs_here)
    call = asyncio.create_task(services.answering.answer("toys.colour", "q", key_id="k"))
    await asyncio.to_thread(reached.wait, 10)
    for work in services.answering._running:
        work.cancel()
    await asyncio.gather(call, return_exceptions=True)
    over.set()
    assert states(services) == {state: 1}


def test_a_twin_that_never_settles_is_waited_for_only_until_the_timeout(services: Services) -> None:
    records = services.records
    impatient = answering(services, timeout_s=0.1)
    digest = impatient._digest({"text": "q"})
    records.ledger.charge(records.ledger.budgets.task("toys.colour"), digest, key_id="somebody who died")
    with pytest.raises(StillAnsweringError):
        run(impatient.answer("toys.colour", "q", key_id="k"))


class PoisonedEngine(MajorityEngine):
    """Behaves as the test wants whenever one of its slots holds a certain exemplar."""

    def __init__(self, fails):
        super().__init__()
        self.fails = fails

    async def contributions(self, task, query, slots, zero_shot):
        if any(exemplar.fields["text"] == "toy 7" for slot in slots for exemplar in slot):
            return await self.fails(slots)
        return await super().contributions(task, query, slots, zero_shot)


@pytest.mark.slow
@pytest.mark.parametrize(
    "fails",
    [
        AsyncMock(side_effect=RuntimeError("cannot read toy 7")),
        AsyncMock(side_effect=asyncio.CancelledError),
        hangs,
        AsyncMock(return_value=[np.array([1.0, 0.0])] * 500),
    ],
    ids=["raises", "is cancelled", "hangs", "answers too often"],
)
def test_a_slot_that_breaks_the_engine_silences_itself_alone(services: Services, monkeypatch, fails) -> None:
    records = services.records
    fragile = answering(services, PoisonedEngine(fails), timeout_s=0.5)
    slots = records.store.sample_slots("toys", probability=1.0, ensemble=10, max_exemplars=100)
    poisoned = [any(exemplar.fields["text"] == "toy 7" for exemplar in slot) for slot in slots]
    assert sum(poisoned) == 1
    monkeypatch.setattr(records.store, "sample_slots", lambda *_args, **_options: slots)
    counted = Mock(return_value=np.zeros(2))
    monkeypatch.setattr(RnmGaussian, "noisy_votes", counted)
    run(fragile.answer("toys.colour", "q", key_id="k"))
    assert [output is None for output in counted.call_args.args[0]] == [
        poison or not slot for poison, slot in zip(poisoned, slots, strict=True)
    ]


def test_neither_a_twin_nor_a_timestamp_reveals_when_the_work_was_done(services: Services) -> None:
    padded = answering(services, grains=FixedGrain(0.4))

    async def both():
        before = datetime.now(UTC)
        started = time.monotonic()
        answers = await asyncio.gather(*(padded.answer("toys.colour", "q", key_id=k) for k in "ab"))
        return before, time.monotonic() - started, answers

    before, elapsed, answers = run(both())
    assert elapsed >= 0.4
    assert {answer.charged for answer in answers} == {True, False}
    assert answers[0].release.created_at - before >= timedelta(seconds=0.4)


async def test_the_work_does_not_belong_to_the_request(services: Services, toy_engine, monkeypatch) -> None:
    """Ray Serve cancels what runs in an abandoned request's context; the paid work must run in its own."""
    marker: contextvars.ContextVar[str] = contextvars.ContextVar("marker", default="none")
    seen = []
    probe = toy_engine.zero_shot

    async def look(*args):
        seen.append(marker.get())
        return await probe(*args)

    monkeypatch.setattr(toy_engine, "zero_shot", look)
    marker.set("of the request")
    await services.answering.answer("toys.colour", "q", key_id="k")
    assert seen == ["none"]


def test_a_busy_database_does_not_lose_a_paid_answer(services: Services, monkeypatch) -> None:
    ledger = services.records.ledger
    release = ledger.release
    failures = [
        sa.exc.OperationalError("insert", {}, Exception("database is locked")),
        sa.exc.TimeoutError("all connections wait"),
        sa.exc.InternalError("insert", {}, Exception("read-only")),
    ]

    def busy(charge_id, answer):
        if failures:
            raise failures.pop()
        return release(charge_id, answer)

    def unconfirmed(charge_id, answer):
        release(charge_id, answer)
        monkeypatch.setattr(ledger, "release", release)
        raise sa.exc.OperationalError("commit", {}, Exception("connection lost"))

    monkeypatch.setattr(ledger, "release", busy)
    assert ask(services, "one").charged
    monkeypatch.setattr(ledger, "release", unconfirmed)
    assert ask(services, "two").charged
    assert states(services) == {"released": 2}


def test_another_data_key_is_found_out_before_the_charge(services: Services) -> None:
    """A service that should have been stopped keeps running while exemplars are encrypted anew."""
    records = services.records
    records.store.reencrypt(lambda _done, _of: None)
    with pytest.raises(WrongKeyError):
        ask(services)
    assert states(services) == {}


def test_queries_are_hashed_under_the_secret(services: Services) -> None:
    digests = {answering(services, digest_key=key)._digest({"text": "q"}) for key in (b"a" * 32, b"b" * 32)}
    assert len(digests) == 2


async def test_the_grains_are_fixed_in_turn_and_by_how_long_the_question_is(
    services: Services, toy_engine: MajorityEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The engine is asked in a turn, which lasts as long as this question's largest slots can take."""

    class Measures(FixedGrain):
        async def of(self, task):
            return measured

    measured = Measured("toys.colour@1", 0.1, work_s=0.05, tokens=10)
    probe, fix, end, sample = toy_engine.zero_shot, Departure.fix, Turns.end, services.records.store.sample_slots
    order: list[tuple[str, float, tuple[object, ...]]] = []

    async def long_question(*asked):
        order.append(("probe", time.monotonic(), ()))
        return replace(await probe(*asked), tokens=40)

    def noted(name, function):
        def calls(_owner, *given):
            order.append((name, time.monotonic(), given))
            return function(_owner, *given)

        return calls

    def draw(*given, **options):
        order.append(("draw", time.monotonic(), ()))
        return sample(*given, **options)

    monkeypatch.setattr(toy_engine, "zero_shot", long_question)
    monkeypatch.setattr(Departure, "fix", noted("fix", fix))
    monkeypatch.setattr(Ready, "in_turn", noted("places", Ready.in_turn))
    monkeypatch.setattr(services.records.store, "sample_slots", draw)
    turns = Turns()
    padded = answering(services, grains=Measures(0.1))
    padded.stages = replace(padded.stages, turns=turns)
    number = await turns.begin(0.3, 60.0)
    begins = time.monotonic() + 0.3
    await turns.end(number, 0.3)
    monkeypatch.setattr(Turns, "end", noted("end", end))
    await padded.answer("toys.colour", "q", key_id="k")
    times = measured.times(40)
    assert times > 4
    work_s = times * 0.05
    expected = [("probe", ()), ("places", (work_s,)), ("end", (number + 1, 1.5 * work_s)), ("fix", (times,))]
    assert [(name, given) for name, _, given in order] == [*expected, ("draw", ())]
    assert begins <= order[0][1] + 0.01


def test_an_answer_that_overran_its_grain_is_reported_to_the_operator(
    services: Services, capsys, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("service.answering.latency._LEAST_ROOM_S", 0.0)
    padded = answering(services, grains=FixedGrain(1e-4))
    run(padded.answer("toys.colour", "canary-a11e", key_id="k"))
    out, err = capsys.readouterr()
    assert "answer_overran" in out + err
    assert "canary-a11e" not in out + err


@pytest.mark.parametrize(
    "query", ["   ", {}, {"text": "x", "title": "y"}, "x" * 20_001, "a\0b", "a\ud800b", {"text": "x", "\ud800": "y"}]
)
def test_queries_that_do_not_fit_are_refused_before_the_charge(services: Services, query) -> None:
    with pytest.raises(InvalidQueryError):
        ask(services, query)
    assert states(services) == {}


def test_a_text_alone_will_not_do_for_two_fields(plan) -> None:
    task = plan.tasks["colour"].model_copy(
        update={"prompt": plan.tasks["colour"].prompt.model_copy(update={"query": "{title} {text}"})}
    )
    with pytest.raises(InvalidQueryError, match="title, text"):
        check_query(task, "x")


def test_the_ledger_holds_no_query_in_the_clear(services: Services) -> None:
    ask(services, "canary-5e1f")
    path = services.records.database.url.database
    for suffix in ("", "-wal"):
        with open(path + suffix, "rb") as file:
            assert b"canary-5e1f" not in file.read()


BLOCKS_PLAN = PLAN.replace("shots: 2", "shots: 7\n    max_exemplars: 9\n    sampling: blocks").replace(
    "ensemble: 10", "ensemble: 4"
)


def signed(tmp_path, engine: MajorityEngine, plan: str) -> Services:
    records = make_records(tmp_path)
    sign(records, calibrate_plan(load_plan(plan), public_size=60), "test")
    return open_services(records, engine, EMBEDDER)


@pytest.mark.parametrize(
    ("plan", "sampler", "drawn"),
    [
        (PLAN, "sample_slots", {"probability": 20 / 60, "ensemble": 10, "max_exemplars": 4}),
        (BLOCKS_PLAN, "sample_blocks", {"probability": 28 / 60, "blocks": 8, "most": 22, "max_exemplars": 9}),
    ],
)
def test_units_that_can_be_drawn_are_as_signed_and_arrived_before_the_charge(
    tmp_path, monkeypatch, plan, sampler, drawn
) -> None:
    """If a sample cannot be read, all of its slots abstain."""
    engine = MajorityEngine()
    services = signed(tmp_path, engine, plan)
    store = services.records.store
    store.forget("toys", "u1")  # the live size differs from the public one
    sampled = Mock(side_effect=OSError("disk"))
    monkeypatch.setattr(store, sampler, sampled)
    assert ask(services).release.answer["label"] in ("red", "blue")
    sampled.assert_called_once_with("toys", **drawn, cohorts=(1,), arrived=60, embeddings=False)
    assert [[*slots] for *_, slots in engine.shown] == [[()] * load_plan(plan).tasks["colour"].ensemble]
    assert states(services) == {"released": 1}


@pytest.mark.parametrize("plan", [PLAN, BLOCKS_PLAN])
def test_embeddings_are_read_for_engines_that_compare_them(tmp_path, monkeypatch, plan: str) -> None:
    engine = MajorityEngine()
    services = signed(tmp_path, engine, plan)
    info = run(engine.describe())
    for reads_embeddings in (False, True):
        engine.shown.clear()
        monkeypatch.setattr(
            engine, "describe", AsyncMock(return_value=replace(info, reads_embeddings=reads_embeddings))
        )
        for number in range(4):  # with a probability of a few thousandths a question draws no block
            ask(services, f"{reads_embeddings} {number}")
        seen = {exemplar.embedding is not None for *_, slots in engine.shown for slot in slots for exemplar in slot}
        assert seen == {reads_embeddings}
