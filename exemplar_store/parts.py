"""Two parts of the units: those that a one-time release is made of, and those that it is measured on.

A unit's part is a function of its keyed tag and of public things: the release's name, and the share that is left out.
So it depends on no other unit and on no exemplar, whatever is uploaded or forgotten and in whichever order; and without
the key, a unit id cannot be chosen to be in one part. A release with another name divides the units anew.
"""

from dataclasses import dataclass

import numpy as np
import sqlalchemy as sa

from exemplar_store.encryption import KnowledgeBaseKeys
from exemplar_store.tables import units

_LOTS = 1 << 64


@dataclass(frozen=True)
class Part:
    """One of the two parts.

    Attributes:
        release: name of the release, such as ``support.queue@1``; public.
        share: share of the units that is left out of the release, 0 to 1; public.
        left_out: whether this is the part that is left out.
    """

    release: str
    share: float
    left_out: bool

    def has(self, keys: KnowledgeBaseKeys, unit_tag: bytes) -> bool:
        """Whether a unit is in this part.

        Args:
            keys: the knowledge base's encryption keys.
            unit_tag: tag of the unit.
        """
        return (keys.lot(unit_tag, self.release) < self.share * _LOTS) == self.left_out

    def positions(
        self, connection: sa.Connection, kb_id: int, keys: KnowledgeBaseKeys, first: int, end: int
    ) -> np.ndarray:
        """The positions of the units in this part, of those from ``first`` to ``end`` - 1: int64, ascending."""
        here = units.c.kb_id == kb_id, units.c.position >= first, units.c.position < end
        rows = connection.execute(sa.select(units.c.position, units.c.unit_tag).where(*here)).all()
        return np.array(sorted(row.position for row in rows if self.has(keys, bytes(row.unit_tag))), np.int64)
