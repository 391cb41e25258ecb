"""Renewal: a knowledge base's exemplars encrypted, and their tags made, under keys that nobody has seen yet.

For when a master key became known together with a copy of the database: then its data keys are known too, and another
master key alone would not help. Renewal keeps whoever has them from reading later copies. It cannot take back what the
known copy holds. A unit keeps its position; its block (:mod:`exemplar_store.blocks`) is drawn anew, by its new tag.
"""

from __future__ import annotations

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import among
from exemplar_store.encryption import KnowledgeBaseKeys, place
from exemplar_store.errors import TamperedError
from exemplar_store.exemplar import packed_content
from exemplar_store.ingest import Progress
from exemplar_store.reading import read_exemplars
from exemplar_store.tables import exemplars, units

UNITS_BATCH = 500


def renew(
    connection: sa.Connection,
    kb_id: int,
    before: KnowledgeBaseKeys,
    after: KnowledgeBaseKeys,
    progress: Progress | None = None,
) -> int:
    """Encrypt all exemplars of a knowledge base anew, batch by batch, in the caller's transaction.

    Args:
        connection: in a transaction that has the knowledge base's row locked.
        kb_id: the knowledge base.
        before: its present keys.
        after: the keys to come.
        progress: called now and then with the number of positions done so far.

    Returns:
        How many exemplars do not open under the present keys, since their rows were changed outside this program. They
        stay as they are, and queries leave them out, as before.
    """
    last, unreadable = -1, 0
    unit_of = units.c.kb_id == kb_id
    moved = sa.update(units).where(unit_of, units.c.position == sa.bindparam("at")).values(unit_tag=sa.bindparam("tag"))
    following = sa.select(units.c.position, units.c.unit_tag).order_by(units.c.position).limit(UNITS_BATCH)
    while batch := connection.execute(following.where(unit_of, units.c.position > last)).all():
        tags = {row.position: after.renewed_tag(bytes(row.unit_tag), before) for row in batch}
        rows = []
        for position, content_tag, payload in read_exemplars(connection, kb_id, np.array([*tags], np.int64)):
            try:
                packed = before.decrypt(payload, place(position, content_tag))
            except TamperedError:
                unreadable += 1
            else:
                content_tag = after.content_tag(tags[position], packed_content(packed))
                payload = after.encrypt(packed, place(position, content_tag))
            rows.append({"kb_id": kb_id, "position": position, "content_tag": content_tag, "payload": payload})
        of_batch = among(connection, exemplars.c.position, [*tags])
        connection.execute(sa.delete(exemplars).where(exemplars.c.kb_id == kb_id, of_batch))
        if rows:
            connection.execute(sa.insert(exemplars), rows)
        connection.execute(moved, [{"at": position, "tag": tag} for position, tag in tags.items()])
        last = batch[-1].position
        if progress:
            progress(last + 1)
    return unreadable
