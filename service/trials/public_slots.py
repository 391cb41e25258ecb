"""A few public exemplars standing in for a knowledge base: slots that look as they will in production.

Drawn at the plan's own probability, a few exemplars would leave all but every slot empty; and there are not enough of
them to give each slot its share. So the number of exemplars in every slot is drawn by the real sampler, as from a
knowledge base of the public size; then each slot takes that many of the exemplars supplied, a uniform choice, none of
them twice (all of them, if it wants more than there are). Sizes, empty slots and the cap are thereby those of
production, and what one slot holds does not depend on the others.

What this cannot show: the same exemplars stand in many slots, which therefore agree more than they would on as many
different ones; and every exemplar counts as a unit of its own.
"""

from collections.abc import Sequence

import numpy as np

from accounting.tasks import ClassifyTask, GenerateTask
from exemplar_store import Exemplar, Slot
from exemplar_store.sampling import below, poisson_sample, words


def draw_slots(
    task: ClassifyTask | GenerateTask, probability: float, public_size: int, exemplars: Sequence[Exemplar]
) -> list[Slot]:
    """One query's slots.

    Args:
        task: with its sampling, ensemble and cap.
        probability: the plan's, of each unit or block.
        public_size: of the knowledge base that the exemplars stand in for.
        exemplars: the public ones.

    Returns:
        ``ensemble`` slots where units are sampled; where blocks are, a slot for each block drawn.
    """
    if task.sampling == "blocks":
        blocks = public_size // task.shots
        sizes = [poisson_sample(public_size, 1 / blocks).size for _ in poisson_sample(blocks, probability)]
    else:
        drawn = poisson_sample(public_size, probability).size
        sizes = np.bincount(below(task.ensemble, drawn), minlength=task.ensemble).tolist()
    return [_choose(exemplars, min(size, task.slot_cap)) for size in sizes]


def _choose(exemplars: Sequence[Exemplar], count: int) -> Slot:
    return tuple(exemplars[i] for i in np.argsort(words(len(exemplars)))[:count])
