"""Units larger than units may be (:mod:`exemplar_store.limits`), found by the lengths of what is stored."""

from __future__ import annotations

import sqlalchemy as sa

from exemplar_store.encryption import OVERHEAD_BYTES
from exemplar_store.exemplar import overhead
from exemplar_store.limits import MAX_EXEMPLAR_BYTES, MAX_EXEMPLARS_PER_UNIT, MAX_UNIT_BYTES
from exemplar_store.tables import exemplars


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
