"""A rehearsal: held-out units ask, the others answer, and only noisy counts leave (:mod:`aggregation.rehearsal`).

Everything between the units and the counts is private: the questions too, and so what the engine says without
exemplars. A question that cannot be answered counts nothing. How many units ask, how many take part and how long each
question takes tell of the units. So the engine is always asked as many questions, the missing ones with a public text,
and the whole run ends after a whole number of grains.
"""

import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from accounting.plan import TaskNoise
from accounting.tasks import ClassifyTask
from aggregation.rehearsal import REPEATS, Rehearsal
from exemplar_store import MAX_EXEMPLAR_BYTES, Exemplar, KnowledgeBase, Slot, sampling
from service.engines.protocol import TaskSpec
from service.pipeline.draw import deal
from service.pipeline.measured_grains import (
    check_answered,
    first_query,
    largest_slots,
    made_up_queries,
    measured_slots,
    median_s,
    uncached,
)
from service.pipeline.mechanisms.adapter import Author
from service.pipeline.queries import check_query
from service.pipeline.stages import Stages
from service.private_threads import privately

_NOBODY_ASKS = "nobody asks"
_LONGEST_WORDS = MAX_EXEMPLAR_BYTES // 5  # of a made-up question


@dataclass(frozen=True)
class Cast:
    """Who asks, and who takes part in which answer.

    Attributes:
        questioners: of each question its unit, int (questions asked,).
        units: of each part its unit, int (parts,); ordered by question.
        slots: of each part its slot, int (parts,).
        bounds: where each question's parts begin and end, int (questions + 1,).
    """

    questioners: np.ndarray
    units: np.ndarray
    slots: np.ndarray
    bounds: np.ndarray

    def parts(self, question: int) -> slice:
        """Those of a question."""
        return slice(int(self.bounds[question]), int(self.bounds[question + 1]))


def cast(units: int, asking: float, ensemble: int, rehearsal: Rehearsal) -> Cast:
    """Draw it, with the coins of the operating system.

    Args:
        units: how many there are.
        asking: chance of a unit to be a questioner.
        ensemble: slots of a question.
        rehearsal: how many questions, and how many an answerer takes part in.
    """
    asks = np.zeros(units, bool)
    asks[sampling.poisson_sample(units, asking)] = True
    questioners, answerers = np.flatnonzero(asks), np.flatnonzero(~asks)
    chosen = questioners[np.argsort(sampling.words(questioners.size), kind="stable")][: rehearsal.questions]
    # A part is an answerer and a question's number. All numbers have parts, whether anybody asks under them or not:
    # else a further questioner would change which parts of other questions an answerer keeps.
    parts = sampling.poisson_sample(answerers.size * rehearsal.questions, rehearsal.probability)
    parts = _at_most(parts, rehearsal.questions, rehearsal.most)
    number = parts % rehearsal.questions
    order = np.argsort(number, kind="stable")
    return Cast(
        chosen,
        answerers[parts // rehearsal.questions][order],
        sampling.below(ensemble, parts.size),
        np.searchsorted(number[order], np.arange(rehearsal.questions + 1)),
    )


def _at_most(parts: np.ndarray, questions: int, most: int) -> np.ndarray:
    """Of each answerer's parts so many at most, chosen at random."""
    answerer = parts // questions
    order = np.lexsort((sampling.words(parts.size), answerer))
    first = np.searchsorted(answerer[order], answerer[order])
    return np.sort(parts[order[np.arange(parts.size) - first < most]])


async def count(
    units: Sequence[Slot],
    asking: float,
    task: ClassifyTask,
    noise: TaskNoise,
    spec: TaskSpec,
    stages: Stages,
    rehearsal: Rehearsal,
) -> np.ndarray:
    """Rehearse, without noise on the counts.

    Args:
        units: the exemplars of each.
        asking: chance of a unit to be a questioner.
        task: that is rehearsed.
        noise: its plan's.
        spec: the task as the engine sees it, under a name that no query's prompts share a cache with.
        stages: those that answer.
        rehearsal: the mechanism.

    Returns:
        int64 (3,), see :meth:`aggregation.rehearsal.Rehearsal.release`.
    """
    drawn = await privately(lambda: cast(len(units), asking, task.ensemble, rehearsal))
    counts = np.zeros(3, np.int64)
    for number in range(rehearsal.questions):
        parts = drawn.parts(number)
        slots = deal([units[part] for part in drawn.units[parts]], task, drawn.slots[parts])
        asks = units[drawn.questioners[number]] if number < drawn.questioners.size else ()
        counts += await _asked(asks, slots, task, noise, spec, stages)
    return counts


async def longest_question_s(
    task: ClassifyTask, noise: TaskNoise, spec: TaskSpec, stages: Stages, knowledge_base: KnowledgeBase
) -> float:
    """Seconds of one question: its probe, the largest slots, and all its releases; 0 if none can be answered at all.

    It is made up, as long as an exemplar may be or, to a fifth, as the engine takes.

    Args:
        task: that is rehearsed.
        noise: its plan's.
        spec: the task as the engine sees it.
        stages: those that answer.
        knowledge_base: what its exemplars are like.

    Raises:
        service.pipeline.measured_grains.NotMeasuredError: not all of these slots were answered.
        service.engines.protocol.EngineUnavailableError: the engine does not answer.
    """
    lengths = (int(_LONGEST_WORDS * 0.8**step) for step in range(30))  # down to five words
    first = await first_query(stages, task, noise, spec, made_up_queries(task, lengths))
    if first is None:
        return 0.0
    questioner = (Exemplar({**first.query, task.label_field: task.labels[0]}),)
    engine = await stages.engine.describe()
    most, count = task.most_slots, measured_slots(task, local=engine.is_llm and not engine.remote)
    slots = await privately(largest_slots(task, knowledge_base, count, engine))

    async def once() -> float:
        started = time.monotonic()
        await _asked(questioner, slots, task, noise, uncached(spec), stages)
        return (time.monotonic() - started) * most / count

    return await median_s(once, engine)


async def _asked(
    questioner: Slot, slots: Sequence[Slot], task: ClassifyTask, noise: TaskNoise, spec: TaskSpec, stages: Stages
) -> np.ndarray:
    """The counts of one question; none if nobody asks it, or it cannot be asked or answered."""
    query, truth = _question(questioner, task)
    try:
        ready = await stages.probe(task, noise, spec, query)
        probabilities, aggregator = ready.zero_shot.probabilities, ready.mechanism
        # Labels were asked for.
        assert probabilities is not None  # noqa: S101  # nosec B101
        assert not isinstance(aggregator, Author)  # noqa: S101  # nosec B101
    except Exception:  # it may depend on the question, and nobody may be told
        return np.zeros(3, np.int64)
    outputs = await ready.ask(slots)
    if spec.measuring:
        check_answered(outputs, await stages.engine.describe())
    right = sum([(await aggregator.release(outputs))["label"] == truth for _ in range(REPEATS)])
    told = task.labels[int(np.argmax(probabilities))] == truth
    return np.array([right, truth is not None, told], np.int64)


def _question(questioner: Slot, task: ClassifyTask) -> tuple[Mapping[str, str], str | None]:
    """A question with its right label; a public text, with none, where there is no question that can be asked."""
    try:
        exemplar: Exemplar = questioner[int(sampling.below(len(questioner), 1)[0])]
        query = check_query(task, {name: exemplar.fields[name] for name in task.query_fields})
        return query, exemplar.fields[task.label_field]
    except Exception:  # it may depend on the question, and nobody may be told
        return dict.fromkeys(task.query_fields, _NOBODY_ASKS), None
