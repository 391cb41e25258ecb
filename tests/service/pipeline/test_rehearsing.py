"""Rehearsals: who asks, who answers, what one unit can change, and what is counted."""

import asyncio
import math
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from types import SimpleNamespace

import numpy as np
import pytest
from scipy import stats

from accounting.plan import TaskNoise, load_plan
from accounting.privacy.profiles import Gaussian
from accounting.tasks import ClassifyTask
from aggregation.rehearsal import REPEATS, Rehearsal
from exemplar_store import Exemplar, KnowledgeBase, Slot
from service.engines.protocol import EngineUnavailableError, TaskSpec, UnanswerableQueryError, ZeroShot
from service.pipeline import rehearsing
from service.pipeline.mechanisms.rnm_gaussian import LabelVote
from service.pipeline.queries import task_spec
from service.pipeline.rehearsing import cast, count, longest_question_s
from service.pipeline.stages import Stages
from tests.service.conftest import EMBEDDER, PLAN, MajorityEngine

ERROR = 6  # standard errors: wrong once in 5e8


def test_who_asks_does_not_answer_and_nobody_takes_part_too_often() -> None:
    rehearsal = Rehearsal(1.0, 40, 0.2, 0.1)
    assert rehearsal.most == 14  # 8 are expected
    drawn = cast(3000, 0.1, 5, rehearsal)
    assert drawn.questioners.size == len(set(drawn.questioners.tolist())) == 40
    assert not set(drawn.questioners.tolist()) & set(drawn.units.tolist())
    parts = np.bincount(drawn.units, minlength=3000)
    assert parts.max() == 14
    numbers = np.repeat(np.arange(40), np.diff(drawn.bounds))
    assert len(set(zip(drawn.units.tolist(), numbers.tolist(), strict=True))) == drawn.units.size
    # Every number has as many parts as the others, and every slot.
    answerers = 3000 * 0.9
    kept = stats.binom.expect(lambda n: np.minimum(n, 14), (40, 0.2)) / 40
    each = np.diff(drawn.bounds)
    assert each.mean() == pytest.approx(answerers * kept, rel=0.03)
    assert np.abs(each - each.mean()).max() < ERROR * math.sqrt(each.mean())
    slots = np.bincount(drawn.slots, minlength=5)
    assert np.abs(slots - slots.mean()).max() < ERROR * math.sqrt(slots.mean())


@pytest.mark.parametrize("asking", [0, 1, 5])
def test_what_an_answerer_takes_part_in_does_not_depend_on_how_many_ask(asking: int, monkeypatch) -> None:
    """If all coins say yes, everybody takes part under as many numbers as allowed, whoever asks under them."""
    coins = iter([lambda _units: np.arange(asking), np.arange])
    monkeypatch.setattr(rehearsing.sampling, "poisson_sample", lambda positions, _probability: next(coins)(positions))
    rehearsal = Rehearsal(1.0, 40, 0.2, 0.1)
    drawn = cast(50, 0.1, 5, rehearsal)
    assert drawn.questioners.size == asking
    assert np.bincount(drawn.units, minlength=50).tolist() == [0] * asking + [rehearsal.most] * (50 - asking)


class Told(MajorityEngine):
    """Zero-shot says blue; of questions that say so, it fails."""

    def __init__(self) -> None:
        super().__init__()
        self.names: set[str] = set()
        self.asked: list[str] = []

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        self.names.add(task.knowledge_base)
        self.asked.append(query["text"])
        if "fail" in query["text"]:
            raise EngineUnavailableError("down")
        return ZeroShot(np.array([0.3, 0.7]))


def task() -> ClassifyTask:
    return load_plan(PLAN).tasks["colour"]


def unit(number: int, label: str = "red", text: str = "toy", size: int = 1) -> Slot:
    return tuple(Exemplar({"text": f"{text} {number}.{i}", "label": label}) for i in range(size))


def rehearse(units: Sequence[Slot], engine: MajorityEngine, *, asking: float = 0.5, z: float = 0.05) -> np.ndarray:
    noise = TaskNoise(sampling_probability=0.5, mechanism=Gaussian(z))
    spec = task_spec("toys.colour", task(), "a rehearsal", "text", response_field=None, asker="")
    rehearsal = Rehearsal(1.0, 20, 0.5, float(Gaussian(z).delta(0.0)))
    return asyncio.run(count(units, asking, task(), noise, spec, Stages(engine, EMBEDDER, 60.0), rehearsal))


@pytest.mark.slow
def test_right_answers_and_zero_shot_s_are_counted() -> None:
    """Slots hold red exemplars only, so answers are red; some questioners are blue, which zero-shot says."""
    engine = Told()
    red = [unit(i) for i in range(120)]
    counts = rehearse(red, engine)
    assert counts.tolist() == [20 * REPEATS, 20, 0]
    assert engine.names == {"a rehearsal"}
    mixed = rehearse([*red, *(unit(i, "blue", "blue toy") for i in range(120, 150))], engine := Told())
    blue = sum("blue" in text for text in engine.asked)
    assert mixed[1:].tolist() == [20, blue]
    assert mixed[0] == pytest.approx((20 - blue) * REPEATS, abs=2 * REPEATS)


def test_questioners_are_not_shown_and_slots_are_dealt_as_a_query_s() -> None:
    engine = Told()
    rehearse([unit(i, size=3) for i in range(120)], engine)
    asked = {text.split(".")[0] for text in engine.asked}
    for *_, slots in engine.shown:
        assert len(slots) == task().ensemble
        assert max(map(len, slots)) <= task().slot_cap
        holders = [{exemplar.fields["text"].split(".")[0] for exemplar in slot} for slot in slots]
        assert not asked & set().union(*holders)
        assert sum(map(len, holders)) == len(set().union(*holders))  # a unit is in one slot


@pytest.mark.parametrize(
    "broken",
    [(), (Exemplar({"text": "", "label": "red"}),), (Exemplar({"text": "fail", "label": "red"}),)],
    ids=["unreadable", "empty", "failing"],
)
def test_a_question_that_cannot_be_answered_counts_nothing_and_nobody_is_told(broken: Slot) -> None:
    counts = rehearse([broken] * 120, engine := Told())
    assert counts.tolist() == [0, 0, 0]
    assert len(engine.asked) == 20


@pytest.mark.parametrize("asking", [0.0, 0.02, 0.5])
def test_the_engine_is_asked_as_often_however_many_units_ask(asking: float) -> None:
    counts = rehearse([unit(i) for i in range(120)], engine := Told(), asking=asking)
    assert len(engine.asked) == len(engine.shown) == 20
    assert counts[1] == sum(text.startswith("toy") for text in engine.asked)


def test_an_engine_that_fails_on_slots_leaves_zero_shot() -> None:
    class Failing(Told):
        async def contributions(self, task, query, slots, zero_shot):
            raise RuntimeError("out of memory")

    counts = rehearse([unit(i, "blue") for i in range(120)], Failing(), z=50.0)
    assert counts.tolist() == [20 * REPEATS, 20, 20]  # nothing but noise is heard, so zero-shot decides


@pytest.mark.parametrize("longest", [20_000, 1000])
def test_the_longest_question_s_probe_slots_and_all_releases_are_measured(longest: int, monkeypatch) -> None:
    """On a clock that each of them moves by a second."""
    worked: list[str] = []

    class Working(Told):
        async def zero_shot(self, task, query):
            if len(query["text"]) > longest:
                raise UnanswerableQueryError("too long")
            worked.append("probe")
            return await super().zero_shot(task, query)

        async def contributions(self, task, query, slots, zero_shot):
            worked.append("ask")
            return await super().contributions(task, query, slots, zero_shot)

    async def released(vote: LabelVote, outputs):
        worked.append("release")
        return await release(vote, outputs)

    release = LabelVote.release
    monkeypatch.setattr(LabelVote, "release", released)
    monkeypatch.setattr(rehearsing, "time", SimpleNamespace(monotonic=lambda: float(len(worked))))
    engine, noise = Working(), TaskNoise(sampling_probability=1.0, mechanism=Gaussian(1.0))
    spec = task_spec("toys.colour", task(), "a rehearsal", "text", response_field=None, asker="")
    toys = KnowledgeBase(1, "toys", (60,), ("text", "label"), "text", None, False, 2, datetime.now(UTC))
    took = asyncio.run(longest_question_s(task(), noise, spec, Stages(engine, EMBEDDER, 60.0), toys))
    assert took == 2 + REPEATS
    assert {worked.count(one) for one in ("ask", "release")} == {len(engine.shown), len(engine.shown) * REPEATS}
    (asked,) = set(engine.asked)
    assert min(longest, 16_384) * 0.8 - 10 < len(asked) <= longest
    assert {len(slot) for *_, slots in engine.shown for slot in slots} == {task().slot_cap}
