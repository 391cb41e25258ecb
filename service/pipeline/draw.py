"""One query's slots, drawn as its plan says. Evaluation draws here too, so it measures the sampler that answers use."""

from __future__ import annotations

from collections.abc import Sequence

from accounting.tasks import ClassifyTask, GenerateTask
from exemplar_store import ExemplarStore
from exemplar_store.store import Slots


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
) -> Slots:
    """Draw one query's slots.

    Args:
        store: holds the exemplars.
        knowledge_base: its name.
        task: how many slots, how large, and whether units or blocks are drawn.
        public_size: that the plan was calibrated for.
        probability: of a unit, or a block, to be drawn.
        cohorts: that the plan is charged to; nobody else's units are drawn.
        arrived: how many units there were before the charge; nobody who came later is drawn. None: everybody may be.
        embeddings: whether exemplars come with theirs.

    Raises:
        exemplar_store.UnknownKnowledgeBaseError: no knowledge base has this name.
    """
    if task.sampling == "blocks":
        return store.sample_blocks(
            knowledge_base,
            probability=probability,
            # So many that a block expects the task's shots. At least the ensemble: else the plan would be refused.
            blocks=public_size // task.shots,
            max_exemplars=task.slot_cap,
            cohorts=cohorts,
            arrived=arrived,
            embeddings=embeddings,
        )
    return store.sample_slots(
        knowledge_base,
        probability=probability,
        ensemble=task.ensemble,
        max_exemplars=task.slot_cap,
        cohorts=cohorts,
        arrived=arrived,
        embeddings=embeddings,
    )
