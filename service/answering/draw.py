"""One query's slots, drawn as its plan specifies. Evaluation draws here too: it measures the sampler of answers."""

from collections.abc import Sequence
from functools import partial

import numpy as np

from accounting.ledger.budgets import SignedTask
from accounting.plans.tasks import ClassifyTask, GenerateTask
from exemplar_store import ExemplarStore, Nearest, OnTopic, Slot, sampling
from exemplar_store.store import Slots
from service.records.signed import read_signed, read_task
from service.records.topics import on_topic


def draw_signed(
    store: ExemplarStore,
    signed: SignedTask,
    *,
    arrived: int | None,
    embeddings: bool,
    question: np.ndarray | None = None,
    all_blocks: bool = False,
) -> Slots:
    """Draw one query's slots as a signed plan specifies; other arguments are those of :func:`draw`.

    Args:
        store: exemplar store with the exemplars.
        signed: the task.
        arrived: see :func:`draw`.
        embeddings: see :func:`draw`.
        question: see :func:`draw`.
        all_blocks: whether every block is drawn, to read them ahead.
    """
    task, noise = read_task(signed)
    return draw(
        store,
        signed.knowledge_base,
        task,
        public_size=read_signed(signed.document).public_size,
        probability=1.0 if all_blocks else noise.sampling_probability,
        cohorts=signed.plan.cohorts,
        arrived=arrived,
        embeddings=embeddings,
        question=question,
        topic=on_topic(signed),
    )


def draw(
    store: ExemplarStore,
    knowledge_base: str,
    task: ClassifyTask | GenerateTask,
    *,
    public_size: int,
    probability: float,
    cohorts: Sequence[int],
    arrived: int | None = None,
    embeddings: bool = True,
    question: np.ndarray | None = None,
    topic: OnTopic | None = None,
) -> Slots:
    """Draw one query's slots.

    Args:
        store: exemplar store with the exemplars.
        knowledge_base: name of the knowledge base.
        task: number and size of slots, and whether units or blocks are drawn.
        public_size: public size that the plan was calibrated for.
        probability: chance of each unit, or block, to be drawn.
        cohorts: cohorts that the plan is charged to; only their units are drawn.
        arrived: number of units before the charge; units that arrived later are not drawn. None: all may be.
        embeddings: whether exemplars come with theirs.
        question: embedding of the question, float (d,), where slots show the exemplars that are nearest to it.
        topic: topic of the question, where the task has topics: only units on it are drawn.

    Raises:
        exemplar_store.UnknownKnowledgeBaseError: no knowledge base has this name.
    """
    if task.sampling == "blocks":
        # As many blocks as let each expect the task's shots: at least the ensemble, or the plan would be refused.
        blocks = public_size // task.shots
        sample = partial(store.sample_blocks, blocks=blocks, most=blocks if probability == 1.0 else task.most_slots)
    else:
        if (topic is None) != (task.topics is None):
            raise TypeError("a task with topics draws the units of one, and other tasks have none")
        sample = partial(store.sample_slots, ensemble=task.ensemble)
        if topic is not None:
            sample = partial(sample, topic=topic)
        if task.order == "nearest":
            if question is None:
                raise TypeError("exemplars are shown by nearness to a question, and there is none")
            sample = partial(sample, nearest=Nearest(question, task.shots))
    return sample(
        knowledge_base,
        probability=probability,
        max_exemplars=task.slot_cap,
        cohorts=cohorts,
        arrived=arrived,
        embeddings=embeddings,
    )


def deal(units: Sequence[Slot], task: ClassifyTask | GenerateTask) -> list[Slot]:
    """Some units' exemplars in slots, dealt as a query's are: a unit's exemplars share a slot, which has a cap.

    Args:
        units: the exemplars of each.
        task: number and size of slots.
    """
    drawn = sampling.below(task.ensemble, len(units))
    exemplars = [exemplar for unit in units for exemplar in unit]
    holder = np.repeat(drawn, [len(unit) for unit in units])
    kept = sampling.deal(holder, sampling.words(holder.size), task.ensemble, task.slot_cap)
    return [tuple(exemplars[number] for number in slot) for slot in kept]
