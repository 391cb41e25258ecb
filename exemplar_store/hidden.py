"""Knowledge bases' rows by name, and the hidden one beside each while its keys are renewed.

A hidden knowledge base is a row whose name begins with a full stop, which nobody can choose. It is found by the number
of the one it belongs to, so each has one at most. Its ``next_position`` says what it is:

- 0 or more: a copy in the making. It holds every unit of the other below that position, and what uploads add to those.
- ``LEFT_OVER``: to be deleted. Nothing is added to it.

Whatever changes either first locks the row that has the name.
"""

from __future__ import annotations

import sqlalchemy as sa

from exemplar_store.tables import knowledge_bases

KnowledgeBaseRow = sa.Row[tuple[object, ...]]

LEFT_OVER = -1
VISIBLE = ~knowledge_bases.c.name.startswith(".")
_NAMED = sa.select(knowledge_bases).where(knowledge_bases.c.name == sa.bindparam("called"))


def find(connection: sa.Connection, name: str, *, lock: bool = False) -> KnowledgeBaseRow | None:
    """The row of this name; None where there is none, or a hidden one.

    Args:
        connection: of the database; in a transaction that writes, if ``lock``.
        name: as somebody gave it.
        lock: until the transaction ends.
    """
    if name.startswith("."):
        return None
    called = {"called": name}
    if not lock:
        return connection.execute(_NAMED, called).one_or_none()
    # PostgreSQL finds nothing where the row was given another name while we waited for it: then another row has ours.
    while (row := connection.execute(_NAMED.with_for_update(), called).one_or_none()) is None:
        if connection.execute(_NAMED, called).one_or_none() is None:
            return None
    return row


def beside(connection: sa.Connection, row: KnowledgeBaseRow) -> KnowledgeBaseRow | None:
    """The hidden knowledge base of another, if there is one.

    Args:
        connection: that ``row`` was locked with.
        row: from :func:`find`.
    """
    return connection.execute(_NAMED, {"called": hidden_name(row.id)}).one_or_none()


def hidden_name(kb_id: int) -> str:
    """What the hidden knowledge base of the one with this number is called."""
    return f".{kb_id}"
