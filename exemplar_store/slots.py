"""What the slots of a query show of the units that it drew, and the rows that are read to find that out."""

from collections.abc import Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from exemplar_store import sampling
from exemplar_store.encryption import TAG_BYTES, KnowledgeBaseKeys
from exemplar_store.nearness import Nearest, nearest
from exemplar_store.reading import Edition, Stored, list_exemplars, open_vectors, read_listed
from exemplar_store.tables import exemplars
from exemplar_store.topics import OnTopic

_NOT_MEASURED = nullcontext()


@dataclass(frozen=True)
class SlotRule:
    """How slots choose what they show, each by itself.

    Attributes:
        ensemble: number of slots.
        max_exemplars: largest number of exemplars that a slot keeps.
        topic: topic to show of these; None: there are no topics.
        nearest: the question, and the number that a slot shows of what is left; None: all.
    """

    ensemble: int
    max_exemplars: int
    topic: OnTopic | None = None
    nearest: Nearest | None = None


def read_slots(
    connection: sa.Connection,
    edition: Edition,
    keys: KnowledgeBaseKeys,
    names: Sequence[str],
    positions: np.ndarray,
    slots: np.ndarray,
    rule: SlotRule,
    in_database: AbstractContextManager[object] = _NOT_MEASURED,
) -> tuple[dict[int, Stored], list[np.ndarray]]:
    """Read what some units' slots show.

    Of an exemplar that is not shown no text is read, unless its text decides on which topic it is. How long this takes
    is measured with made-up rows (:mod:`exemplar_store.made_up`).

    Args:
        connection: connection to the database, all of whose statements see the same state.
        edition: edition of the knowledge base.
        keys: the knowledge base's encryption keys.
        names: names of its fields.
        positions: the drawn units' positions, ascending: int array (units,).
        slots: each unit's slot: int array (units,).
        rule: choice of what a slot shows.
        in_database: entered whenever rows are read, which is measured by itself.

    Returns:
        The shown exemplars as stored, by number; and the numbers that each slot shows, in order.
    """

    def read(kept: Sequence[np.ndarray], column: sa.Column[bytes]) -> dict[int, Stored]:
        if column.name not in before:
            with in_database:
                before[column.name] = read_listed(connection, edition, listed, kept, column)
        return before[column.name]

    before: dict[str, dict[int, Stored]] = {}
    with in_database:
        listed = list_exemplars(connection, edition, positions)
    holder = slots[positions.searchsorted(listed.positions)]
    kept = sampling.deal(holder, sampling.words(holder.size), rule.ensemble, rule.max_exemplars)
    if rule.topic is not None:
        topics = rule.topic.topics
        rows = read(kept, topics.column)
        on_it = topics.of_rows(keys, names, [*rows.values()]) == rule.topic.number + 1
        shown = np.zeros(len(listed.positions), bool)
        shown[np.array([*rows], np.int64)[on_it]] = True
        kept = [numbers[shown[numbers]] for numbers in kept]
    if rule.nearest is not None:
        tags = np.frombuffer(listed.content_tags, f"S{TAG_BYTES}")
        kept = nearest(kept, tags, open_vectors(keys, read(kept, exemplars.c.vector)), rule.nearest)
    rows = read(kept, exemplars.c.payload)
    here = np.concatenate([np.empty(0, np.int64), *kept]).tolist()
    return {number: rows[number] for number in here if number in rows}, kept
