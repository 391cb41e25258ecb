"""From the units that a query drew to its slots: their exemplars read, and those that slots keep decrypted."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import among
from exemplar_store.encryption import KnowledgeBaseKeys, place
from exemplar_store.errors import TamperedError
from exemplar_store.exemplar import Slot, unpack
from exemplar_store.tables import exemplars

Stored = tuple[int, bytes, bytes]
"""An exemplar as it is stored: its unit's position, content tag, payload."""


def read_exemplars(connection: sa.Connection, kb_id: int, positions: np.ndarray) -> list[Stored]:
    """All exemplars of the units at some positions, and no other rows.

    Args:
        connection: of the database.
        kb_id: the knowledge base.
        positions: int array (units,).
    """
    found = connection.execute(
        sa.select(
            exemplars.c.position,
            # SQLite keeps whatever type was written behind our back; as bytes it fails to open, like any other.
            sa.cast(exemplars.c.content_tag, sa.LargeBinary),
            sa.cast(exemplars.c.payload, sa.LargeBinary),
        ).where(exemplars.c.kb_id == kb_id, among(connection, exemplars.c.position, positions.tolist()))
    )
    return [(position, content_tag, payload) for position, content_tag, payload in found]


def fill(
    keys: KnowledgeBaseKeys, names: Sequence[str], dimension: int, found: Sequence[Stored], kept: Sequence[np.ndarray]
) -> list[Slot]:
    """The slots' exemplars, decrypted. One that does not open is left out of its slot, in silence.

    Args:
        keys: the knowledge base's.
        names: its fields.
        dimension: of its embeddings, 0 for none.
        found: exemplars as stored.
        kept: for each slot, which of them it keeps, in order: int arrays.
    """
    decrypted = {i: packed for one in kept for i in one.tolist() if (packed := _decrypt(keys, *found[i])) is not None}
    opened = dict(zip(decrypted, unpack([*decrypted.values()], names, dimension), strict=True))
    return [tuple(opened[i] for i in one.tolist() if i in opened) for one in kept]


def _decrypt(keys: KnowledgeBaseKeys, position: int, content_tag: bytes, payload: bytes) -> bytes | None:
    try:
        return keys.decrypt(payload, place(position, content_tag))
    except TamperedError:
        return None
