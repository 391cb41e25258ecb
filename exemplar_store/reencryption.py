"""Encrypt all exemplars, and make their tags, under a new data key.

For when a master key became known together with a copy of the database: then its data key is known too, and another
master key alone would not help. This keeps a thief from reading later copies. It cannot take back what the known copy
holds. A unit keeps its position; its block (:mod:`exemplar_store.blocks`) is drawn anew, by its new tag.

It is one transaction, in which no other process has the database open: the time others waited would show how many
exemplars there are. Interrupted, it has changed nothing.
"""

import numpy as np
import sqlalchemy as sa

from exemplar_store.dialects import alone, empty_write_ahead_log, overwrite_deleted
from exemplar_store.encryption import KnowledgeBaseKeys, place
from exemplar_store.errors import TamperedError
from exemplar_store.exemplar import embeddings_of, packed_content
from exemplar_store.keyring import Keyring
from exemplar_store.knowledge_base import BeforeCommit, KnowledgeBaseRow, Progress, change
from exemplar_store.nearness import rounded
from exemplar_store.reading import Edition, read_exemplars
from exemplar_store.staging import discard
from exemplar_store.tables import exemplars, knowledge_bases, units
from exemplar_store.topics import reencrypt_pages

_UNITS_AT_ONCE = 100  # each has at most a quarter of a mebibyte


def reencrypt(database: sa.Engine, keyring: Keyring, progress: Progress, before_commit: BeforeCommit) -> int:
    """Encrypt every knowledge base anew; see :meth:`exemplar_store.ExemplarStore.reencrypt`."""
    unreadable = done = 0
    with alone(database) as connection:
        overwrite_deleted(connection)
        fresh = keyring.replace(connection)
        rows = connection.execute(sa.select(knowledge_bases).with_for_update()).all()
        for row in rows:
            discard(connection, row)
            before, after = keyring.of(row), KnowledgeBaseKeys(fresh, bytes(row.key_salt))
            for first in range(0, row.next_position, _UNITS_AT_ONCE):
                positions = range(first, min(first + _UNITS_AT_ONCE, row.next_position))
                unreadable += _reencrypt_units(connection, row, positions, before, after)
                done += len(positions)
                progress(done, sum(row.next_position for row in rows))
            reencrypt_pages(connection, row.id, before, after)
            change(connection, row, key_check=after.check)
        before_commit(connection)
    empty_write_ahead_log(database)
    return unreadable


def _reencrypt_units(
    connection: sa.Connection,
    row: KnowledgeBaseRow,
    positions: range,
    before: KnowledgeBaseKeys,
    after: KnowledgeBaseKeys,
) -> int:
    kb_id, dimension = row.id, row.embedding_dimension or 0
    here = sa.and_(units.c.kb_id == kb_id, units.c.position.between(positions[0], positions[-1]))
    rows = connection.execute(sa.select(units.c.position, units.c.unit_tag).where(here)).all()
    tags = {at: after.reencrypted_tag(bytes(tag), before) for at, tag in rows}
    unreadable, changed = 0, []
    for at, content_tag, payload in read_exemplars(connection, Edition.of(row), np.array(positions)):
        try:
            packed = before.decrypt(payload, place(at, content_tag))
        except TamperedError:
            unreadable += 1
            continue
        tag = after.content_tag(tags[at], packed_content(packed))
        encrypted = after.encrypt(packed, place(at, tag))
        vector = rounded(embeddings_of([packed], dimension)).tobytes() if dimension else None
        sealed = None if vector is None else after.encrypt_vector(vector, place(at, tag))
        changed.append({"at": at, "before": content_tag, "tag": tag, "encrypted": encrypted, "sealed": sealed})
    if tags:
        update = sa.update(units).where(units.c.kb_id == kb_id, units.c.position == sa.bindparam("at"))
        new_tags = [{"at": at, "tag": tag} for at, tag in tags.items()]
        connection.execute(update.values(unit_tag=sa.bindparam("tag")), new_tags)
    if changed:
        this = exemplars.c.position == sa.bindparam("at"), exemplars.c.content_tag == sa.bindparam("before")
        update = sa.update(exemplars).where(exemplars.c.kb_id == kb_id, *this)
        anew = {"content_tag": "tag", "payload": "encrypted", "vector": "sealed"}
        connection.execute(update.values({name: sa.bindparam(value) for name, value in anew.items()}), changed)
    return unreadable
