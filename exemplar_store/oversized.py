"""Units larger than units may be (:mod:`exemplar_store.limits`), found by the lengths of what is stored."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import sqlalchemy as sa

from exemplar_store.dialects import empty_write_ahead_log, overwrite_deleted
from exemplar_store.encryption import OVERHEAD_BYTES
from exemplar_store.exemplar import overhead
from exemplar_store.limits import MAX_EXEMPLAR_BYTES, MAX_EXEMPLARS_PER_UNIT, MAX_UNIT_BYTES
from exemplar_store.tables import exemplars, knowledge_bases, units

BeforeCommit = Callable[[sa.Connection, Mapping[str, int]], None]
"""Called last in the transaction, with how many units were deleted from each knowledge base."""


def too_large(kb_id: int, dimension: int, *, response: bool) -> sa.Select[tuple[int]]:
    """Selects the positions of a knowledge base's units that are too large; may be narrowed down by ``where``.

    Args:
        kb_id: the knowledge base.
        dimension: of its embeddings, 0 for none.
        response: whether responses' embeddings are stored.
    """
    size = sa.func.length(exemplars.c.payload) - (OVERHEAD_BYTES + overhead(dimension, response=response))
    beyond = sa.or_(
        sa.func.count() > MAX_EXEMPLARS_PER_UNIT,
        sa.func.max(size) > MAX_EXEMPLAR_BYTES,
        sa.func.sum(size) > MAX_UNIT_BYTES,
    )
    of_units = sa.select(exemplars.c.position).where(exemplars.c.kb_id == kb_id)
    return of_units.group_by(exemplars.c.position).having(beyond)


def forget_oversized(database: sa.Engine, before_commit: BeforeCommit) -> dict[str, int]:
    """Delete all units that versions without these limits stored and this one may not; for before it migrates.

    Needs no encryption key. What is deleted goes from the files as :meth:`exemplar_store.ExemplarStore.forget` says.

    Args:
        database: of a database as those versions left it: no knowledge base had a response field.
        before_commit: called with them.

    Returns:
        How many units were deleted, by the knowledge base's name; those with none are left out.
    """
    forgotten = {}
    with database.begin() as connection:
        overwrite_deleted(connection)
        row_of = knowledge_bases.c
        in_order = sa.select(row_of.id, row_of.name, row_of.embedding_dimension).order_by(row_of.id).with_for_update()
        for row in connection.execute(in_order).all():
            positions = connection.scalars(too_large(row.id, row.embedding_dimension or 0, response=False)).all()
            for position in positions:
                for table in (exemplars, units):
                    unit = sa.and_(table.c.kb_id == row.id, table.c.position == position)
                    connection.execute(sa.delete(table).where(unit))
            if positions:
                forgotten[row.name] = len(positions)
        before_commit(connection, forgotten)
    empty_write_ahead_log(database)
    return forgotten
