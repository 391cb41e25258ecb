"""Latency grains: measured with the largest possible slots, and chosen or refused accordingly."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock

import numpy as np
import pytest
import sqlalchemy as sa

from accounting.plans.plan import CalibratedPlan, load_plan
from aggregation.keyword_joint_em import JointExponentialMechanism
from aggregation.keywords import keywords
from exemplar_store import MAX_EXEMPLAR_BYTES, made_up
from exemplar_store.exemplar import content
from exemplar_store.reading import read_listed
from exemplar_store.tables import exemplars
from service.answering import measured_grains
from service.answering.answering import BusyError
from service.answering.latency import GrainTooSmallError, Measured, smallest_grain_s
from service.answering.mechanisms.common_sentences import CommonSentencesAdapter, SharedSentences
from service.answering.plans.signing import sign
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.errors import EngineUnavailableError
from service.engines.lock_step import UnansweredError
from service.engines.protocol import EngineInfo
from service.operations import tasks
from service.operations.roles import Actor
from service.operations.services import Services, open_services
from service.settings import Settings
from tests.service.conftest import (
    EMBEDDER,
    TEXT_PLAN,
    MajorityEngine,
    make_records,
    nearly_noiseless,
    states,
)
from tests.service.engines.roomy import Roomy

pytestmark = pytest.mark.slow

SLOW_S = 0.12
VIEWER = Actor("vera", "vera", "key", "viewer")


class SlowEngine(MajorityEngine):
    """Works on slots for a given time."""

    def __init__(self, takes_s: float = SLOW_S) -> None:
        super().__init__()
        self.takes_s = takes_s

    async def work(self, slots):
        time.sleep(self.takes_s)  # noqa: ASYNC251  (work, not waiting)


class Clock:
    """A clock that only work moves forward."""

    now = 0.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def work(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock()
    for module in (measured_grains, made_up):
        monkeypatch.setattr(module, "time", clock)
    return clock


def padded(
    folder: Path, calibrated: CalibratedPlan, engine, url: str = "", most: int = MAX_EXEMPLAR_BYTES, **settings
) -> Services:
    url = url or f"sqlite:///{folder / 'service.sqlite'}"
    settings = Settings(database_url=url, development=True, **settings)
    records = make_records(folder, epsilon=200, settings=settings, described={"max_exemplar_bytes": most})
    sign(records, calibrated, "test")
    return open_services(records, engine, EMBEDDER)


def measure(services: Services) -> Measured:
    (measured,) = asyncio.run(services.grains.all())
    return measured


def refuse(services: Services) -> None:
    """Check that a question is refused before anything is charged."""
    with pytest.raises(GrainTooSmallError):
        asyncio.run(services.answering.answer("toys.colour", "q", key_id="k"))
    assert states(services) == {}


@pytest.fixture
def engine() -> SlowEngine:
    return SlowEngine(0.0)


@pytest.fixture
def services(tmp_path: Path, calibrated: CalibratedPlan, engine: SlowEngine) -> Services:
    return padded(tmp_path, calibrated, engine)


@pytest.mark.parametrize("most", [300, 1024, MAX_EXEMPLAR_BYTES])
def test_the_slots_measured_are_as_large_as_any_can_be(
    tmp_path: Path, calibrated: CalibratedPlan, engine: SlowEngine, most: int
) -> None:
    services = padded(tmp_path, calibrated, engine, most=most)
    measured = measure(services)
    assert (measured.task, measured.problem) == ("toys.colour@1", "")
    for *_, slots in engine.shown:
        assert [len(slot) for slot in slots] == [4] * 10  # the task's ensemble, and the most that its slots keep
        (size,) = {len(content(exemplar.fields, list(exemplar.fields))) for slot in slots for exemplar in slot}
        assert 0.8 * most < size <= most
        said = [keywords(exemplar.fields["text"]) for exemplar, *_ in slots]
        assert len(frozenset().union(*said)) == sum(map(len, said))  # as many words to count as there can be
    caches = [task.knowledge_base for task, *_ in engine.shown]
    assert len(set(caches)) == len(caches) > 1  # no run finds another's prompts cached
    assert states(services) == {}


def test_before_the_first_upload_slots_have_embeddings_of_the_length_that_uploads_will_have(
    tmp_path: Path, calibrated: CalibratedPlan
) -> None:
    """Others would be passed over, and cost nothing."""
    shapes = set()

    class Noting(NearestExemplarEngine):
        async def contributions(self, task, query, slots, zero_shot):
            shapes.update(exemplar.embedding.shape for slot in slots for exemplar in slot)
            return await super().contributions(task, query, slots, zero_shot)

    settings = Settings(database_url=f"sqlite:///{tmp_path / 'service.sqlite'}", development=True)
    records = make_records(tmp_path, epsilon=200, settings=settings, toys=[])
    sign(records, calibrated, "test")
    assert measure(open_services(records, Noting(EMBEDDER), EMBEDDER)).problem == ""
    assert shapes == {EMBEDDER.embed(["q"])[0].shape}


@pytest.mark.parametrize("most", [1024, MAX_EXEMPLAR_BYTES])
def test_reading_as_many_rows_as_a_sample_can_have_is_measured_and_no_exemplar_is_read(
    tmp_path: Path,
    calibrated: CalibratedPlan,
    database_url: str,
    work: Clock,
    monkeypatch: pytest.MonkeyPatch,
    most: int,
) -> None:
    services = padded(tmp_path, calibrated, SlowEngine(0.0), database_url, most=most, witness_url="none")
    sizes: list[list[int]] = []

    def read(*asked):
        work.now += 3.0
        connection, found = asked[0], read_listed(*asked)
        sizes.append([len(payload) for _, _, payload in found.values()])
        assert {kb_id for (kb_id,) in connection.execute(sa.select(exemplars.c.kb_id))} == {0}
        with services.records.database.begin():  # no writer has to wait
            return found

    def stored() -> list[tuple[object, ...]]:
        with services.records.database.connect() as connection:
            return [tuple(row) for row in connection.execute(sa.select(exemplars).order_by(exemplars.c.content_tag))]

    monkeypatch.setattr("exemplar_store.slots.read_listed", read)
    before = stored()
    assert measure(services).work_s == pytest.approx(6.0 if database_url.startswith("sqlite") else 3.0)
    assert {len(read) for read in sizes} == {10 * 4}  # the task's ensemble, and the most that its slots keep
    assert most < min(map(min, sizes)) <= max(map(max, sizes)) < most + 4096  # with embeddings
    assert stored() == before  # on every connection: the made-up ones are gone


def test_slots_that_agree_take_a_ranking_longer_and_are_measured_all_of_them(tmp_path, work: Clock, monkeypatch):
    """A ranking's time grows with the difference between the largest and the smallest count, and with its square."""
    select = JointExponentialMechanism.select

    def counted(mechanism: JointExponentialMechanism, counts: np.ndarray) -> tuple[int, ...]:
        work.now += float(counts.max() - counts.min()) ** 2
        return select(mechanism, counts)

    monkeypatch.setattr(JointExponentialMechanism, "select", counted)
    monkeypatch.setattr(measured_grains, "_MOST_SLOTS", 5)
    services = padded(tmp_path, text_plan("type: keyword_joint_em, k: 2"), MajorityEngine())
    assert measure(services).work_s == 20**2


def test_slots_that_agree_have_tested_words_made_a_sentence(tmp_path: Path) -> None:
    engine = MajorityEngine()
    services = padded(tmp_path, text_plan("type: keyword_ptr, k_min: 2, k_max: 3"), engine)
    asyncio.run(services.grains.all())
    assert {len(words) for words, _ordered in engine.asked} == {3}


def test_texts_that_take_the_mechanism_longest_are_measured(tmp_path: Path, work: Clock, monkeypatch) -> None:
    cut = SharedSentences.contributions

    def counted(ready: SharedSentences, outputs):
        work.now += sum(CommonSentencesAdapter.slowest == output for output in outputs)
        return cut(ready, outputs)

    monkeypatch.setattr(SharedSentences, "contributions", counted)
    assert measure(padded(tmp_path, text_plan("type: common_sentences"), MajorityEngine())).work_s == 20


def test_words_that_are_released_first_are_measured_and_so_is_writing_with_them(tmp_path: Path, work: Clock) -> None:
    """As many words as may be released are named, and the time for asking for them is added to that for writing."""
    named = []

    class Writes(Roomy, MajorityEngine):
        async def work(self, slots):
            work.now += 3

        async def write(self, task, query, slots, zero_shot):
            assert task.measuring
            named.append(query["keywords"].split(", "))
            work.now += 4
            return "written"

    words = "after: {type: keyword_ptr, k_min: 2, k_max: 3}"
    services = padded(tmp_path, text_plan(f"type: token_ensemble, tokens: 5, {words}"), Writes())
    assert measure(services).work_s == 7
    assert {len(words) for words in named} == {3}


@pytest.mark.parametrize("fails", ["some do not answer", "the engine dies", "it takes too long"])
@pytest.mark.parametrize(
    "words", ["", ", after: {type: keyword_ptr, k_min: 2, k_max: 3}"], ids=["alone", "after words"]
)
def test_writing_that_fails_is_not_a_measurement(tmp_path: Path, fails: str, words: str) -> None:
    """However short it was, what private slots write may take longer."""

    class Fails(Roomy, MajorityEngine):
        info = replace(MajorityEngine.info, writes_together=True)

        async def write(self, task, query, slots, zero_shot):
            if fails == "it takes too long":
                await asyncio.Event().wait()
            raise {"some do not answer": UnansweredError, "the engine dies": EngineUnavailableError}[fails]("no")

    engine = Fails()
    services = padded(
        tmp_path, text_plan(f"type: token_ensemble, tokens: 5, weight: 10{words}"), engine, query_timeout_s=1.0
    )
    assert "could write" in measure(services).problem
    with pytest.raises(GrainTooSmallError):
        asyncio.run(services.answering.answer("toys.story", "q", key_id="k"))
    assert states(services) == {}


def text_plan(mechanism: str) -> CalibratedPlan:
    return nearly_noiseless(load_plan(TEXT_PLAN.format(epsilon=90, answers=2, mechanism=mechanism)))


def test_where_no_grain_is_set_one_that_hides_the_work_is_chosen(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    services = padded(tmp_path, calibrated, SlowEngine())
    assert services.grains.report is None
    measured = measure(services)
    assert services.grains.report == [measured]
    assert measured.work_s >= SLOW_S
    assert measured.grain_s == smallest_grain_s(measured.work_s)
    assert measured.grain_s >= 2 * measured.work_s


def test_a_plan_that_is_signed_later_is_reported_once_it_was_asked(services: Services, calibrated) -> None:
    first = measure(services)
    sign(services.records, calibrated, "test", again=1)
    asyncio.run(services.answering.answer("toys.colour@2", "q", key_id="k"))
    later = services.grains.report
    assert later is not None
    assert [one.task for one in later] == [first.task, "toys.colour@2"]
    assert later[0] is first
    assert tasks.describe(VIEWER, services.records, "toys.colour@2", services.grains).latency is not None


async def test_another_plan_under_a_tasks_number_is_measured_itself(services: Services, engine: SlowEngine) -> None:
    """A restore can cause this, since numbers are given again after it."""
    task = services.records.ledger.budgets.task("toys.colour")
    document = task.document.replace('"ensemble":10,', '"ensemble":20,')
    assert document != task.document
    other = replace(task, plan=replace(task.plan, document=document, digest="of another"))
    await services.grains.of(task)
    assert {len(slots) for *_, slots in engine.shown} == {10}
    await services.grains.of(other)
    assert {len(slots) for *_, slots in engine.shown} == {10, 20}


def test_a_grain_below_twice_the_work_is_refused_and_nothing_is_charged(tmp_path, calibrated: CalibratedPlan) -> None:
    services = padded(tmp_path, calibrated, SlowEngine(), latency_grain_ms=150)
    assert "a latency grain of 150 ms" in measure(services).problem
    refuse(services)


async def test_a_task_that_is_refused_is_measured_again_and_others_do_not_wait(tmp_path, calibrated, monkeypatch):
    """Something else may have kept the machine busy when the service started."""
    engine = SlowEngine(0.6)
    services = padded(tmp_path, calibrated, engine, latency_grain_ms=800)
    monkeypatch.setattr("service.answering.measured_grains.REFUSED_FOR_S", 0.05)
    task = services.records.ledger.budgets.task("toys.colour")
    with pytest.raises(GrainTooSmallError):
        await services.grains.of(task)
    engine.takes_s = 0.0
    await asyncio.sleep(0.1)
    assert (await services.grains.of(task)).grain_s == 0.8
    async with services.grains._turn:  # another task is being measured
        assert (await asyncio.wait_for(services.grains.of(task), 1)).grain_s == 0.8


async def test_a_machine_that_became_slower_is_measured_again(services: Services, engine: SlowEngine) -> None:
    """An answer that comes late is noticed, and the next one has a grain that hides the work again."""
    task = services.records.ledger.budgets.task("toys.colour")
    engine.takes_s = 3 * (await services.grains.of(task)).grain_s
    await services.answering.answer("toys.colour", "q", key_id="k")
    assert (await services.grains.of(task)).grain_s >= 2 * engine.takes_s


async def test_what_was_measured_on_a_busy_machine_is_measured_again_at_public_times(
    services: Services, engine: SlowEngine, work: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A minute later, two minutes after that, and so on, whatever was asked meanwhile, but beside no turn."""
    monkeypatch.setattr(measured_grains, "FIRST_AGAIN_S", 1.0)
    grains, turns = services.grains, services.answering.stages.turns
    loop, ahead = asyncio.get_running_loop(), 0.0
    clock = loop.time
    monkeypatch.setattr(loop, "time", lambda: clock() + ahead)
    takes_s = 3.0

    async def busy(slots):
        work.now += takes_s

    monkeypatch.setattr(engine, "work", busy)

    async def after(seconds: float) -> float:
        nonlocal ahead
        ahead += seconds
        await grains.again()
        return (await grains.of(services.records.ledger.budgets.task("toys.colour"))).grain_s

    await grains.all()
    takes_s = 0.5
    assert await after(0.5) == smallest_grain_s(3.0)
    number = await turns.begin(60.0, 60.0)
    assert await after(0.6) == smallest_grain_s(3.0)
    await turns.end(number)
    assert await after(0.0) == smallest_grain_s(0.5)
    assert [one.grain_s for one in grains.report] == [smallest_grain_s(0.5)]
    takes_s = 1.0
    assert await after(1.9) == smallest_grain_s(0.5)
    assert await after(0.2) == smallest_grain_s(1.0)


async def test_a_remote_engine_is_not_paid_for_another_measurement(
    services: Services, engine: SlowEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(measured_grains, "FIRST_AGAIN_S", 0.0)
    await services.grains.all()
    engine.info, shown = replace(engine.info, remote=True), len(engine.shown)
    await services.grains.again()
    assert len(engine.shown) == shown


class LanguageModel(SlowEngine):
    """Answers as a language model does; ``silent`` slots abstain."""

    info = replace(MajorityEngine.info, is_llm=True)
    silent = 0

    async def zero_shot(self, task, query):
        assert task.measuring == query["text"].startswith("aaaa")
        return replace(await super().zero_shot(task, query), tokens=len(query["text"].split()))

    async def contributions(self, task, query, slots, zero_shot):
        outputs = await super().contributions(task, query, slots, zero_shot)
        return [None if i < self.silent else output for i, output in enumerate(outputs)]


def test_a_language_model_is_measured_with_an_ordinary_question(tmp_path, calibrated) -> None:
    measured = measure(padded(tmp_path, calibrated, LanguageModel(0.05)))
    assert measured.chosen
    assert (measured.tokens, measured.beside) == (15, 1024)  # the made-up question's, and what a slot may show
    (tmp_path / "b").mkdir()
    assert not measure(padded(tmp_path / "b", calibrated, LanguageModel(), latency_grain_ms=5000)).chosen


def test_a_language_model_is_measured_with_a_question_like_the_public_texts(tmp_path, calibrated) -> None:
    """Longer questions have more time; one of the public texts itself would be found cached."""
    texts = tuple(f"{number} {'word ' * 21}".strip() for number in range(8))
    task = calibrated.plan.tasks["colour"].model_copy(update={"public_texts": texts})
    plan = calibrated.plan.model_copy(update={"tasks": {"colour": task}})
    measured = measure(padded(tmp_path, calibrated.model_copy(update={"plan": plan}), LanguageModel(0.0)))
    assert measured.tokens == 23
    assert measured.times(46) > 1
    (query,) = measured_grains.ordinary_queries(task)
    assert query["text"] not in texts


def test_what_ordinary_slots_take_is_measured_and_no_promise_rests_on_it(tmp_path, calibrated, work: Clock) -> None:
    """The grain, whether it is enough, and how long a turn lasts are those of the largest slots."""

    class Reads(LanguageModel):
        async def contributions(self, task, query, slots, zero_shot):
            work.now += 4.0 if task.slot_tokens == 1024 else 1.0
            return await super().contributions(task, query, slots, zero_shot)

    measured = measure(padded(tmp_path, calibrated, Reads(0.0)))
    assert (measured.typical_s, measured.work_s, measured.grain_s) == (1.0, 4.0, 16.0)
    (tmp_path / "b").mkdir()
    services = padded(tmp_path / "b", calibrated, Reads(0.0), latency_grain_ms=3000)
    assert "a latency grain of 3000 ms" in measure(services).problem
    refuse(services)


async def test_a_first_run_that_may_have_loaded_something_does_not_count() -> None:
    for about_s, median in ((0.0, 3.0), (4.0, 3.0), (4.5, 9.0)):
        runs = AsyncMock(side_effect=[9.0, 3.0])
        assert await measured_grains.median_s(runs, EngineInfo("a model", "", True, ""), about_s) == median


async def test_questions_that_wait_too_long_for_their_turn_are_refused_before_they_are_charged(
    tmp_path: Path, calibrated: CalibratedPlan
) -> None:
    services = padded(tmp_path, calibrated, LanguageModel(0.0), query_timeout_s=5.0)
    await services.grains.all()
    turns = services.answering.stages.turns
    await turns.end(await turns.begin(0.0, 60.0), 0.5)
    began = time.monotonic()
    await services.answering.answer("toys.colour", "first", key_id="k")
    assert time.monotonic() - began >= 0.5
    await turns.end(await turns.begin(0.0, 60.0), 60.0)
    with pytest.raises(BusyError):
        await services.answering.answer("toys.colour", "q", key_id="k")
    assert states(services) == {"released": 1}


def test_a_task_whose_made_up_slots_abstain_is_refused(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    """A prompt that was not asked took no time."""
    engine = LanguageModel(0.0)
    engine.silent = 1
    services = padded(tmp_path, calibrated, engine)
    assert "1 of 10 of the largest" in measure(services).problem
    refuse(services)


def test_an_engine_that_is_down_is_measured_when_it_is_up(services: Services, engine: SlowEngine) -> None:
    engine.down = True
    with pytest.raises(EngineUnavailableError):
        measure(services)
    engine.down = False
    assert measure(services).problem == ""


def test_without_padding_nothing_is_measured(tmp_path: Path, calibrated: CalibratedPlan, engine: SlowEngine) -> None:
    services = padded(tmp_path, calibrated, engine, latency_unpadded=True)
    assert list(asyncio.run(services.grains.all())) == []
    assert engine.shown == []
