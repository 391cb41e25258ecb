"""Cohorts: a knowledge base's units by the time of their first arrival.

Positions are given out in the order in which units first arrive and are never taken back, nor is a unit's tag. So a
cohort is a range of positions, which begins where the next one to be given out was when the cohort was opened; and a
unit stays in its cohort permanently, also when it is forgotten and uploaded again, by its tag.

A position below ``next_position`` without a tag belonged to a unit that a restore lost and that would not be recognised
(:func:`note_lost_arrivals`). If that unit came back, it would be taken for a new arrival, so no cohort is opened after
the one that it belongs to.
"""

from collections.abc import Iterable

import sqlalchemy as sa

from exemplar_store.knowledge_base import KnowledgeBaseRow, change, find
from exemplar_store.staging import discard
from exemplar_store.tables import units

FIRST = (1,)
"""The cohort that every knowledge base has."""

Spans = list[tuple[int, int]]
"""Ranges of positions, first and end, in ascending order."""


def spans(row: KnowledgeBaseRow, cohorts: Iterable[int], arrived: int | None = None) -> Spans:
    """Ranges of positions of the units of some cohorts. A cohort that the knowledge base does not have is empty.

    Args:
        row: row of the knowledge base.
        cohorts: their numbers, from 1.
        arrived: number of units that had arrived: those that came later are left out; None includes all.
    """
    starts = [0, *(first for first, _size in row.later_cohorts)]
    ends = [*starts[1:], row.next_position]
    if arrived is not None:
        ends = [max(start, min(end, arrived)) for start, end in zip(starts, ends, strict=True)]
    ranges: Spans = []
    for number in sorted({number for number in cohorts if 1 <= number <= len(starts)}):
        start, end = starts[number - 1], ends[number - 1]
        if ranges and ranges[-1][1] == start:
            ranges[-1] = ranges[-1][0], end
        else:
            ranges.append((start, end))
    return ranges


def unrecognised(connection: sa.Connection, row: KnowledgeBaseRow, first: int = 0) -> bool:
    """Whether a position from ``first`` on has lost its tag, so that its unit would not be recognised."""
    here = sa.and_(units.c.kb_id == row.id, units.c.position >= first, units.c.position < row.next_position)
    known = connection.execute(sa.select(sa.func.count()).select_from(units).where(here)).scalar_one()
    return bool(known < row.next_position - first)


def add(connection: sa.Connection, row: KnowledgeBaseRow, public_size: int) -> int:
    """Open a cohort for units that arrive from now on; returns its number.

    Args:
        connection: connection in a transaction that has locked the knowledge base.
        row: row of the knowledge base, read after locking it.
        public_size: number of the cohort's exemplars declared as public.
    """
    later = [*row.later_cohorts, [row.next_position, public_size]]
    change(connection, row, later_cohorts=later)
    return len(later) + 1


def note_lost_arrivals(connection: sa.Connection, name: str) -> None:
    """Record that a restore lost units: leave a position without a tag, so that no further cohort is opened.

    Args:
        connection: connection in a transaction.
        name: name of the knowledge base; without effect if the restore lost it, too.
    """
    if row := find(connection, name, lock=True):
        discard(connection, row)  # its units would be at positions that are given out now
        change(connection, row, next_position=row.next_position + 1)


def add_lost(connection: sa.Connection, name: str, number: int, public_size: int) -> None:
    """Open again a cohort that a restore lost.

    Args:
        connection: connection in a transaction.
        name: name of the knowledge base; without effect if the restore lost it, too.
        number: number of the cohort; without effect unless it is the next.
        public_size: public size that was declared for it.
    """
    row = find(connection, name, lock=True)
    if row is not None and number == len(row.later_cohorts) + 2:
        add(connection, row, public_size)
