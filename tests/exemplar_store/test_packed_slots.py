"""Slots stay the same when they go from one process to another."""

import pickle
from collections.abc import Sequence

import numpy as np
import pytest

from exemplar_store import Exemplar, PackedSlots, Slot


def exemplar(number: int, embedded: int) -> Exemplar:
    """An exemplar with the given number of embeddings."""
    vectors = [np.full(3, number + part, np.float32) for part in range(embedded)]
    return Exemplar({"text": f"text {number}", "label": f"label {number}"}, *vectors)


def contents(slots: Sequence[Slot]) -> list[list[str]]:
    """The whole contents of slots, as texts that can be compared."""
    return [[f"{one.fields} {one.embedding!r} {one.response_embedding!r}" for one in slot] for slot in slots]


@pytest.mark.parametrize("embedded", [0, 1, 2])
@pytest.mark.parametrize("sizes", [(2, 0, 3, 1), (0, 0), ()], ids=str)
def test_there_and_back(sizes: tuple[int, ...], embedded: int) -> None:
    numbers = iter(range(100))
    slots = [tuple(exemplar(next(numbers), embedded) for _ in range(size)) for size in sizes]
    there = pickle.loads(pickle.dumps(PackedSlots.of(slots)))  # noqa: S301
    assert contents(there.slots()) == contents(slots)


def test_an_exemplar_without_its_embedding_takes_no_other_one() -> None:
    slots = [(exemplar(0, 0),), (exemplar(1, 1),)]
    with pytest.raises(ValueError, match="shape"):
        PackedSlots.of(slots)
