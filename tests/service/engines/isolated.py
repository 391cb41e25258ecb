"""A check that the output of a slot does not depend on the other slots."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from exemplar_store import Exemplar, Slot


def random_slots(pool: Sequence[Exemplar], rng: np.random.Generator, count: int) -> list[Slot]:
    """Slots of 0 to 8 exemplars in any combination, with copies."""
    return [tuple(pool[i] for i in rng.integers(len(pool), size=rng.integers(0, 9))) for _ in range(count)]


def assert_isolated(
    ask: Callable[[Sequence[Slot]], list[Any]], pool: Sequence[Exemplar], seed: int, count: int = 40, changed: int = 6
) -> None:
    """Check that each of ``count`` slots has the same output among changed slots, in another order and alone."""
    rng = np.random.default_rng(seed)
    slots = random_slots(pool, rng, count)
    outputs = ask(slots)
    assert len(set(outputs)) > 2
    for victim in rng.integers(len(slots), size=changed):
        for replacement in ((), (pool[0],), random_slots(pool, rng, 1)[0], slots[victim][1:]):
            changed = ask([*slots[:victim], replacement, *slots[victim + 1 :]])
            assert changed[:victim] + changed[victim + 1 :] == outputs[:victim] + outputs[victim + 1 :]
    order = rng.permutation(len(slots))
    assert ask([slots[i] for i in order]) == [outputs[i] for i in order]
    assert [ask([slot])[0] for slot in slots] == outputs
