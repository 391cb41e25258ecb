"""One-time releases, with a real ledger and store, on both databases."""

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock, Mock

import numpy as np
import pytest

from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import AnswersExhaustedError, Ledger
from accounting.ledger.errors import BudgetExceededError
from accounting.ledger.witness import WitnessUnavailableError
from accounting.plans.plan import CalibratedPlan, load_plan
from exemplar_store import Exemplar
from service.answering.answering import Answer, BusyError
from service.answering.mechanisms.adapter import Public, answer_adapter_of, once_adapter_of
from service.answering.once import making
from service.answering.once.made import FromOneRelease
from service.answering.once.making import NotMadeError, make
from service.answering.plans.signing import release, sign
from service.answering.queries import InvalidQueryError
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.errors import EngineBusyError, EngineUnavailableError, UnanswerableQueryError
from service.engines.task import ZeroShot
from service.operations.services import Services, open_services
from service.records.records import Records, open_records
from service.records.replaying import replay
from tests.service.conftest import PLAN as TOYS
from tests.service.conftest import (
    Embedding,
    MajorityEngine,
    make_records,
    nearly_noiseless,
    states,
    unwitnessed,
    upload,
)

PLAN = (
    TOYS.replace("epsilon: 4", "epsilon: 90").replace("answers: 20", "answers: 2\n    when_spent: for-ever")
    + """\
  for-ever:
    kind: classify
    release: once
    labels: [red, blue]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    mechanism: {type: prototypes}
"""
)
VOTED = PLAN.replace(
    "{type: prototypes}",
    """
      type: synthetic_exemplars
      per_label: 1
      candidates:
      - {text: a ball, label: red}
      - {text: a red brick, label: red}
      - {text: a cube, label: blue}
      - {text: a blue brick, label: blue}""",
)
REGRESSED = PLAN.replace("{type: prototypes}", "{type: softmax_regression}")
TYPES = {"prototypes": PLAN, "synthetic_exemplars": VOTED, "softmax_regression": REGRESSED}
EACH = pytest.mark.parametrize("plan", TYPES.values(), ids=TYPES)


def embed(texts) -> np.ndarray:
    """Red things lie to the east, blue ones to the north, and all other things between them."""
    found = [[("blue" not in text) + 0.0, ("red" not in text) + 0.0] for text in texts]
    return (np.array(found) / np.linalg.norm(found, axis=1, keepdims=True)).astype(np.float32)


@EACH
def test_an_exemplar_counts_however_its_label_is_spelt(plan: str) -> None:
    calibrated = nearly_noiseless(load_plan(plan))
    adapter = once_adapter_of(calibrated.plan.tasks["for-ever"], calibrated.noise["for-ever"])
    labels = ["blue", "Blue", "blue ", "\ufeffBLUE\xa0", "bleu"]
    unit = [
        Exemplar({"text": "a toy", "label": label}, vector) for label, vector in zip(labels, np.eye(5), strict=True)
    ]
    found = adapter.labelled(unit)
    assert [number for number, _ in found] == [1, 1, 1, 1]
    assert np.array_equal([vector for _, vector in found], np.eye(5)[:4])


class Reader(MajorityEngine):
    """Answers with the label of the exemplar that has the most words in common with the question."""

    async def contributions(self, task, query, slots, zero_shot):
        self.shown.append((task, query, slots))
        return [self._nearest(task, set(query["text"].split()), slot) for slot in slots]

    def _nearest(self, task, words, slot):
        alike = [len(words & set(exemplar.fields["text"].split())) for exemplar in slot]
        if not slot or max(alike) == 0:
            return None
        return np.eye(len(task.labels))[task.labels.index(slot[int(np.argmax(alike))].fields["label"])]


class HalfHalf(Reader):
    """Half of the private slots vote for each label; only public exemplars are read."""

    async def contributions(self, task, query, slots, zero_shot):
        if len(slots) == 1:
            return await super().contributions(task, query, slots, zero_shot)
        return list(np.eye(2)[np.arange(len(slots)) % 2])


def alone(plan: str) -> str:
    """The plan with the one-time release as its only task."""
    return plan.replace(plan[plan.index("  colour:") : plan.index("  for-ever:")], "")


def type_of(plan: str) -> str:
    return next(name for name, document in TYPES.items() if document == plan)


def noisy(plan: str) -> CalibratedPlan:
    return nearly_noiseless(load_plan(plan))


def opened(folder: Path, url: str | None = None) -> Records:
    """A knowledge base of thirty red toys and thirty blue ones."""
    toys = [(f"u{i}", f"a {label} toy {i}", label) for i, label in enumerate(["red", "blue"] * 30)]
    return make_records(folder, epsilon=200, settings=unwitnessed(url) if url else None, toys=toys, embed=embed)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return opened(tmp_path)


def signed(records: Records, plan: str) -> Services:
    sign(records, noisy(plan), "test", embed=embed)
    return open_services(records, Reader(), Embedding(embed))


@pytest.fixture
def services(records: Records) -> Services:
    return signed(records, PLAN)


def ask(services: Services, query: str, task: str = "toys.colour", **options) -> Answer:
    return asyncio.run(services.answering.answer(task, query, key_id="k", **options))


def task_of(records: Records, name: str = "for-ever") -> SignedTask:
    return records.ledger.budgets.task(f"toys.{name}")


@EACH
def test_signing_makes_it_and_it_answers_any_number_of_questions_for_nothing(plan: str, records: Records) -> None:
    services = signed(records, plan)
    asked = [f"a {label} thing {i}" for label in ("red", "blue") for i in range(20)]
    answers = [ask(services, query, "toys.for-ever") for query in asked]
    assert [answer.release.answer["label"] for answer in answers] == ["red"] * 20 + ["blue"] * 20
    assert all(0.5 < answer.release.answer["score"] <= 1 for answer in answers)
    assert {(one.charged, one.answers_left, one.source) for one in answers} == {(False, None, type_of(plan))}
    assert len({answer.release.id for answer in answers}) == 1
    assert states(services.records, "for-ever") == {"released": 1}
    assert replay(services.records, recompute=False).problems == []


def test_a_group_pays_once_for_a_release_and_refuses_the_next(records: Records) -> None:
    """The knowledge base has enough left, but not the group that it shares a budget with."""
    records.ledger.groups.open("patients", 100, 2e-4, by="root")
    records.ledger.groups.join("patients", "toys", by="root")
    services = signed(records, alone(REGRESSED))
    for number in range(5):
        assert ask(services, f"a red thing {number}", "toys.for-ever").release.answer["label"] == "red"
    with pytest.raises(BudgetExceededError, match="patients"):
        signed(records, alone(PLAN))
    (status,) = records.ledger.groups.statuses()
    assert (status.promised_epsilon, status.free_epsilon) == (90, 10)
    assert states(records) == {"released": 1}


def test_the_engine_and_the_exemplars_are_no_longer_needed(services: Services, monkeypatch) -> None:
    refuse = Mock(side_effect=AssertionError("read"))
    for name in ("every_unit", "sample_slots", "sample_blocks"):
        monkeypatch.setattr(services.records.store, name, refuse)
    monkeypatch.setattr(services.engine, "zero_shot", refuse)
    assert ask(services, "a red thing", "toys.for-ever").release.answer["label"] == "red"


@EACH
def test_a_task_that_is_used_up_goes_on_answering(plan: str, records: Records) -> None:
    services = signed(records, plan)
    paid = [ask(services, query) for query in ("a red one", "a red two")]
    assert [(one.charged, one.answers_left, one.source) for one in paid] == [(True, 1, None), (True, 0, None)]
    free = ask(services, "a blue one")
    assert (free.charged, free.answers_left, free.source) == (False, 0, type_of(plan))
    assert (free.task, free.release.answer["label"]) == ("toys.colour@1", "blue")
    again = ask(services, "a red one")  # what was paid for stays what it was
    assert (again.release, again.charged, again.source) == (paid[0].release, False, None)
    assert services.records.ledger.refusals() == []
    assert states(services.records, "colour") == {"released": 2}


def test_without_the_release_a_task_that_is_used_up_refuses(services: Services, monkeypatch) -> None:
    for query in ("one", "two"):
        ask(services, query)
    monkeypatch.setattr(services.records.ledger, "stored_release", lambda *_args: None)
    with pytest.raises(AnswersExhaustedError):
        ask(services, "three")
    with pytest.raises(NotMadeError, match="`dpicl plan release toys"):
        ask(services, "three", "toys.for-ever")


def test_a_question_must_fit_and_may_be_abstained_from(services: Services) -> None:
    with pytest.raises(InvalidQueryError, match="text"):
        ask(services, {}, "toys.for-ever")
    sure = ask(services, "a red thing", "toys.for-ever", abstain_below=0.5)
    unsure = ask(services, "a thing", "toys.for-ever", abstain_below=0.999)
    assert (sure.abstained, unsure.abstained) == (False, True)


@pytest.mark.slow
@EACH
def test_paid_answers_may_take_their_prior_from_it(plan: str, records: Records) -> None:
    """Zero-shot is even here, and half of the votes are for either label whatever is asked: the prior decides."""
    plan = plan.replace("when_spent: for-ever", "prior_from: for-ever").replace("answers: 2", "answers: 20")
    sign(records, noisy(plan), "test", embed=embed)
    services = open_services(records, HalfHalf(), Embedding(embed))
    for label in ("red", "blue"):
        for number in range(10):
            answer = ask(services, f"a {label} thing {number}")
            assert (answer.charged, answer.source) == (True, None)
            assert answer.release.answer["label"] == label


def test_slots_that_repeat_the_prior_are_not_new_evidence() -> None:
    """The slots know the same exemplars as the prior; without an echo the answer would be surer."""
    plan = noisy(PLAN)
    adapter = answer_adapter_of(plan.plan.tasks["colour"], plan.noise["colour"])
    public = Public({}, ZeroShot(np.array([0.5, 0.5])), Embedding(embed), None, prior=np.array([0.8, 0.2]))
    posterior, votes = asyncio.run(adapter.prepare(public)).posterior, np.array([7.0, 3.0])
    unheard = replace(posterior, calibration=replace(posterior.calibration, echo=0.0))
    heard, counted_twice = (one.probabilities(votes, public.prior)[0] for one in (posterior, unheard))
    assert heard < counted_twice - 0.02


def test_it_is_not_made_again_whatever_is_uploaded_and_deleted_after_it(services: Services) -> None:
    made, before = release(services.records, "toys.for-ever"), ask(services, "a red thing", "toys.for-ever")
    services.records.forget("toys", "u0", by="root")
    upload(services.records, [("new", "a red thing", "blue")], embed)
    assert release(services.records, "toys.for-ever") == made
    assert ask(services, "a red thing", "toys.for-ever") == before
    assert states(services.records, "for-ever") == {"released": 1}
    with pytest.raises(ValueError, match="colour"):
        release(services.records, "toys.colour")


def test_it_is_made_of_the_units_that_had_arrived_before_its_charge(records: Records, monkeypatch) -> None:
    """Only their upload was witnessed with it: units that came later could be lost in a restore, and pay twice."""
    charge, every_unit, read = records.ledger.charge, records.store.every_unit, []

    def charged(*args: object, **options: object):
        outcome = charge(*args, **options)
        upload(records, [("new", "a thing that came later", "blue")], embed)
        return outcome

    def noted(*args: object, **options: object):
        for unit in every_unit(*args, **options):
            read.append(unit)
            yield unit

    monkeypatch.setattr(records.ledger, "charge", charged)
    monkeypatch.setattr(records.store, "every_unit", noted)
    sign(records, noisy(alone(PLAN)), "test")
    assert states(records, "for-ever") == {"released": 1}
    assert len(read) == 60
    assert not [one for unit in read for one in unit if "later" in one.fields["text"]]


def test_nothing_is_signed_while_nothing_is_uploaded(tmp_path: Path) -> None:
    records = open_records(unwitnessed(f"sqlite:///{tmp_path}/empty.sqlite"))
    records.create_knowledge_base(
        "toys", epsilon=100, delta=0.1, public_size=60, fields=["text", "label"], embedded_field="text"
    )
    with pytest.raises(NotMadeError):
        sign(records, noisy(alone(PLAN)), "test")
    assert records.ledger.budgets.plans("toys") == []


class Crash(BaseException):
    """The process ends here."""


crash = Mock(side_effect=Crash)


@EACH
@pytest.mark.parametrize("where", ["every_unit", "release"])
def test_what_was_charged_and_not_stored_is_lost_forever(plan: str, where: str, database_url, tmp_path, monkeypatch):
    calibrated = noisy(alone(plan))
    records = opened(tmp_path, database_url)
    with monkeypatch.context() as patch:
        patch.setattr(records.store if where == "every_unit" else records.ledger, where, crash)
        with pytest.raises(Crash):
            sign(records, calibrated, "test", embed=embed)
    assert states(records, "for-ever") == {"charged": 1}
    with pytest.raises(NotMadeError):
        release(records, "toys.for-ever", embed)
    later = Ledger(records.database, lease_s=60, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
    with pytest.raises(NotMadeError):
        make(later, records.store, task_of(records), embed, padded=False)
    later.expire_leases()
    assert states(records, "for-ever") == {"lost": 1}
    with pytest.raises(NotMadeError):
        release(records, "toys.for-ever", embed)
    assert replay(records, recompute=False).problems == []
    assert sign(records, calibrated, "test", embed=embed, again=1).version == 2  # another plan, with its own budget
    services = open_services(records, Reader(), Embedding(embed))
    assert ask(services, "a red thing", "toys.for-ever").release.answer["label"] == "red"
    records.database.dispose()


def test_a_slow_maker_still_stores_what_it_made(records: Records, monkeypatch) -> None:
    """Its charge was given up meanwhile, but no other process could make another."""
    every_unit = records.store.every_unit

    def slow(name: str, cohorts: tuple[int, ...], **more: object):
        later = Ledger(records.database, lease_s=60, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
        assert later.expire_leases() == 1
        return every_unit(name, cohorts, **more)

    monkeypatch.setattr(records.store, "every_unit", slow)
    sign(records, noisy(alone(PLAN)), "test")
    assert states(records, "for-ever") == {"released": 1}
    assert replay(records, recompute=False).problems == []


def test_what_cannot_be_witnessed_is_not_charged_and_made_later(tmp_path: Path, monkeypatch) -> None:
    records = opened(tmp_path)
    calls = iter([None, WitnessUnavailableError("away"), WitnessUnavailableError("away")])

    def catch_up() -> None:
        if (answer := next(calls, None)) is not None:
            raise answer

    with monkeypatch.context() as patch:
        patch.setattr(records.witness, "catch_up", catch_up)
        patch.setattr(records.store, "every_unit", crash)
        with pytest.raises(NotMadeError):
            sign(records, noisy(alone(PLAN)), "test")
    assert states(records, "for-ever") == {"voided": 1}
    release(records, "toys.for-ever")
    assert states(records, "for-ever") == {"released": 1, "voided": 1}
    assert replay(records, recompute=False).problems == []


def test_concurrent_makers_make_one_release(database_url: str, tmp_path: Path, monkeypatch) -> None:
    records = opened(tmp_path, database_url)
    with monkeypatch.context() as patch:
        patch.setattr(records.ledger, "charge", crash)
        with pytest.raises(Crash):
            sign(records, noisy(alone(PLAN)), "test")
    begin = threading.Barrier(6)

    def maker(_number: int) -> str:
        begin.wait()
        try:
            return make(records.ledger, records.store, task_of(records), embed, padded=False).id
        except NotMadeError as error:
            return str(error)

    with ThreadPoolExecutor(6) as pool:
        told = set(pool.map(maker, range(6)))
    assert {one for one in told if "being made" not in one} == {release(records, "toys.for-ever").id}
    assert states(records, "for-ever") == {"released": 1}
    records.database.dispose()


def test_it_takes_a_whole_number_of_grains(records: Records, monkeypatch) -> None:
    """The grain is the public size's and twice what a release of no units takes, so the trail reveals nothing else."""
    slept: list[float] = []
    now = iter([10.0, 10.1, 100.0, 102.3, 102.3])
    # In place of the module, not in it: other threads have clocks, too.
    monkeypatch.setattr(making, "time", SimpleNamespace(monotonic=lambda: next(now), sleep=slept.append))
    padded = replace(records, settings=records.settings.model_copy(update={"latency_unpadded": False}))
    sign(padded, noisy(alone(PLAN)), "test")
    assert slept == [pytest.approx(0.1)]
    assert making.grain_s(60) == 1
    assert making.grain_s(100_000) == 50


def test_only_the_chosen_exemplars_are_shown(records: Records) -> None:
    """The thirty units of each colour vote for its brick; no prompt shows their exemplars or shares their cache."""
    sign(records, noisy(alone(VOTED)), "test", embed=embed)
    votes = records.ledger.stored_release(task_of(records), making.ONE_RELEASE).answer["votes"]
    assert [votes[str(number)] for number in range(4)] == pytest.approx([0, 30, 0, 30], abs=10)
    engine = Reader()
    ask(open_services(records, engine, Embedding(embed)), "a red thing", "toys.for-ever")
    ((task, _, (slot,)),) = engine.shown
    assert task.knowledge_base == "public exemplars of toys"
    assert [exemplar.fields["text"] for exemplar in slot] == ["a red brick", "a blue brick"]


def test_the_real_embedded_engine_is_asked_with_them(records: Records) -> None:
    sign(records, noisy(alone(VOTED)), "test", embed=embed)
    services = open_services(records, NearestExemplarEngine(Embedding(embed)), Embedding(embed))
    for label in ("red", "blue"):
        answer = ask(services, f"a {label} thing", "toys.for-ever")
        assert answer.release.answer["label"] == label
        assert answer.release.answer["score"] > 0.99


@pytest.mark.parametrize(
    ("probe", "told"),
    [
        (AsyncMock(side_effect=EngineUnavailableError("down")), EngineUnavailableError),
        (AsyncMock(side_effect=EngineBusyError("busy")), BusyError),
        (AsyncMock(side_effect=UnanswerableQueryError("too long")), InvalidQueryError),
        (AsyncMock(side_effect=TimeoutError), EngineUnavailableError),
        (None, EngineUnavailableError),  # it has no answer to such a question
    ],
)
def test_an_engine_that_does_not_answer_costs_nothing(probe, told: type[Exception], records: Records) -> None:
    services = signed(records, VOTED.replace("when_spent: for-ever", "prior_from: for-ever"))
    engine = services.engine
    engine.zero_shot = probe or engine.zero_shot
    for task in ("toys.for-ever", "toys.colour"):
        with pytest.raises(told):
            ask(services, "green", task)
    assert states(records, "colour") == {}


def test_the_engines_answer_leaves_on_a_grain(records: Records) -> None:
    """The engine may have waited for places that other questions' samples occupy."""
    services, failing = signed(records, alone(VOTED)), Reader()
    failing.down = True
    for engine in (services.engine, failing):
        made = FromOneRelease(
            records.ledger, records.store, replace(services.answering.stages, engine=engine), grain_s=0.2
        )
        begun = time.monotonic()
        with contextlib.suppress(EngineUnavailableError):
            asyncio.run(made.answer(task_of(records), {"text": "a red thing"}, "k"))
        assert time.monotonic() - begun >= 0.2


@pytest.mark.parametrize(
    "embedder", [Mock(side_effect=RuntimeError("no memory")), lambda texts: np.eye(3)[: len(texts)]]
)
def test_nothing_is_charged_where_candidates_cannot_be_embedded(embedder, records: Records) -> None:
    with pytest.raises(NotMadeError):
        sign(records, noisy(alone(VOTED)), "test", embed=embedder)
    assert states(records, "for-ever") == {}
    release(records, "toys.for-ever", embed)
    assert states(records, "for-ever") == {"released": 1}


@EACH
def test_noise_that_counts_on_sampling_is_refused(plan: str) -> None:
    calibrated = noisy(alone(plan))
    noise = calibrated.noise["for-ever"].model_copy(update={"sampling_probability": 1 / 60})
    with pytest.raises(TypeError):
        once_adapter_of(calibrated.plan.tasks["for-ever"], noise)
