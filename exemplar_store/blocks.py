"""Blocks: fixed groups of units, so that a language model sees the same prompts again and again.

A unit's block is a function of its keyed tag and of the number of blocks, a public figure: the tags, read as 128-bit
numbers, are cut into as many ranges of (all but) equal length. So it depends on no other unit, whatever is ingested
or forgotten and in whichever order; and without the key, a unit id cannot be chosen to share another unit's block.
(Cutting the units by their positions or ranks is another mechanism: one unit more or less could shift all the others.)
A range is one seek in the index of tags.
"""

import numpy as np
import sqlalchemy as sa

from exemplar_store.cohorts import Spans
from exemplar_store.dialects import NUMBERS, listed, numbered
from exemplar_store.encryption import TAG_BYTES
from exemplar_store.tables import units

_TAGS = 1 << 8 * TAG_BYTES


def tag_range(block: int, blocks: int) -> tuple[bytes, bytes]:
    """The first and the last unit tag of a block.

    Args:
        block: 0 to blocks - 1.
        blocks: number of blocks.
    """
    first, end = -(-block * _TAGS // blocks), -(-(block + 1) * _TAGS // blocks)
    return first.to_bytes(TAG_BYTES, "big"), (end - 1).to_bytes(TAG_BYTES, "big")


def members(
    connection: sa.Connection, kb_id: int, spans: Spans, drawn: np.ndarray, blocks: int
) -> tuple[np.ndarray, np.ndarray]:
    """The units of some blocks, by one index seek a block.

    Args:
        connection: connection to the database.
        kb_id: id of the knowledge base.
        spans: positions of the units that may be drawn; others are in no block.
        drawn: distinct block numbers: int array (n,).
        blocks: number of blocks.

    Returns:
        The units' positions in ascending order, and for each the index of its block among the n: two int64 arrays.
    """
    if drawn.size == 0:
        return np.empty(0, np.int64), np.empty(0, np.int64)
    firsts, lasts = (b"".join(tags) for tags in zip(*(tag_range(b, blocks) for b in drawn.tolist()), strict=True))
    number, _ = numbered(connection.dialect.name, sa.literal(drawn.tolist(), NUMBERS))

    def own(tags: bytes) -> sa.ColumnElement[bytes]:
        return sa.func.substr(sa.literal(tags, sa.LargeBinary), number * TAG_BYTES + 1, TAG_BYTES)

    of_block = sa.select(listed(connection, units.c.position)).where(
        units.c.kb_id == kb_id,
        units.c.unit_tag.between(own(firsts), own(lasts)),
        # A sum has no index: the range of tags is short, that of positions is not.
        sa.or_(sa.false(), *((units.c.position + 0).between(first, end - 1) for first, end in spans)),
    )
    # One subquery a block. A join may be turned about, so that all units are read and compared with every block.
    rows = connection.execute(sa.select(number, of_block.scalar_subquery())).all()
    pairs = np.array([(position, block) for block, positions in rows for position in positions or ()], np.int64)
    positions, numbers = pairs[np.argsort(pairs[:, 0])].T if pairs.size else np.empty((2, 0), np.int64)
    return positions, numbers
