"""A knowledge base: what is public about it, its row, and what a caller may do beside a change."""

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime

import sqlalchemy as sa

from exemplar_store.dialects import as_utc
from exemplar_store.errors import InvalidKnowledgeBaseError
from exemplar_store.exemplar import MAX_EXEMPLAR_BYTES
from exemplar_store.tables import knowledge_bases, staged_uploads

KnowledgeBaseRow = sa.Row[tuple[object, ...]]
Progress = Callable[[int, int], None]
"""Called with the number done so far, and of all."""
BeforeCommit = Callable[[sa.Connection], None]
"""Something else to do last in the transaction of a change, so both are committed or neither."""

_NAME = re.compile(r"[a-z0-9][a-z0-9_-]{0,63}")
_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_RESPONSE = "response"
MAX_FIELDS = 64
MAX_PUBLIC_SIZE = 10**15
LEAST_EXEMPLAR_BYTES = 256
"""The smallest choice of ``max_exemplar_bytes``: made-up exemplars of this size can still be made."""


def do_nothing(*_: object) -> None:
    """Default for a caller's own part of a change: nothing."""


@dataclass(frozen=True, slots=True)
class KnowledgeBase:
    """A knowledge base's description. Nothing here but ``arrived`` is computed from private exemplars."""

    id: int
    name: str
    public_sizes: tuple[int, ...]
    """Number of exemplars declared by the admin for each cohort, the first one first, as a public figure."""
    fields: tuple[str, ...]
    """Names of an exemplar's fields."""
    embedded_field: str
    """The field whose embedding is stored."""
    response_field: str | None
    """Another field whose embedding is stored, for answers that are taken from exemplars; None for none."""
    remote_engine: bool
    """Whether exemplars may be shown to an engine outside the deployment."""
    embedding_dimension: int | None
    """Length of the stored embeddings; 0 for none, None before the first ingest."""
    created_at: datetime
    arrived: int | None = field(default=None, repr=False)
    """Number of units that have ever arrived: private, never shown. Draws leave out units that came later."""
    max_exemplar_bytes: int = MAX_EXEMPLAR_BYTES
    """The most bytes that an exemplar may have. Every answer takes as long as with exemplars of this size."""

    @property
    def public_size(self) -> int:
        """Number of exemplars declared by the admin in all."""
        return sum(self.public_sizes)

    def public_size_of(self, cohorts: Iterable[int]) -> int:
        """Number declared for some cohorts, by their numbers; sampling probabilities are computed from it."""
        return sum(self.public_sizes[number - 1] for number in cohorts)


def describe(row: KnowledgeBaseRow) -> KnowledgeBase:
    """The knowledge base that a row describes."""
    return KnowledgeBase(
        id=row.id,
        name=row.name,
        public_sizes=(row.public_size, *(size for _first, size in row.later_cohorts)),
        fields=tuple(row.fields),
        embedded_field=row.embedded_field,
        response_field=row.response_field,
        max_exemplar_bytes=row.max_exemplar_bytes,
        remote_engine=row.remote_engine,
        embedding_dimension=row.embedding_dimension,
        created_at=as_utc(row.created_at),
        arrived=row.next_position,
    )


def find(connection: sa.Connection, name: str, *, lock: bool = False) -> KnowledgeBaseRow | None:
    """The row of this name; None if there is none. ``lock`` keeps it until the transaction ends."""
    named = sa.select(knowledge_bases).where(knowledge_bases.c.name == name)
    return connection.execute(named.with_for_update() if lock else named).one_or_none()


def change(connection: sa.Connection, row: KnowledgeBaseRow, **values: object) -> None:
    """Give some columns of a row other values."""
    connection.execute(sa.update(knowledge_bases).where(knowledge_bases.c.id == row.id).values(values))


def as_published(connection: sa.Connection, row: KnowledgeBaseRow, **values: object) -> KnowledgeBaseRow:
    """The row as it will be with other values in some columns, for work on what is not published yet."""
    columns = [
        sa.literal(values[column.name], column.type).label(column.name) if column.name in values else column
        for column in knowledge_bases.c
    ]
    return connection.execute(sa.select(*columns).where(knowledge_bases.c.id == row.id)).one()


def delete_empty(connection: sa.Connection, row: KnowledgeBaseRow) -> bool:
    """Delete a row that never had a unit, and to which no upload is being written; whether there was such a row."""
    staged = sa.exists().where(staged_uploads.c.kb_id == row.id)
    never = sa.and_(knowledge_bases.c.id == row.id, knowledge_bases.c.next_position == 0, ~staged)
    return bool(connection.execute(sa.delete(knowledge_bases).where(never)).rowcount)


def default_response_field(fields: Sequence[str], embedded_field: str) -> str | None:
    """The response field where the admin names none: ``response``, if that is a field beside the embedded one."""
    return _RESPONSE if _RESPONSE in fields and embedded_field != _RESPONSE else None


def check_description(
    name: str, public_size: int, fields: Sequence[str], embedded_field: str, response_field: str | None
) -> None:
    """Refuse a knowledge base that cannot be.

    Raises:
        InvalidKnowledgeBaseError: names the argument.
    """
    if not _NAME.fullmatch(name):
        why = "use 1 to 64 small letters, digits, '-' and '_', beginning with a letter or digit"
        raise InvalidKnowledgeBaseError("name", why)
    check_public_size(public_size)
    if isinstance(fields, str) or not 1 <= len(fields) <= MAX_FIELDS or len(set(fields)) != len(fields):
        raise InvalidKnowledgeBaseError("fields", f"name between 1 and {MAX_FIELDS} fields, each once")
    for name in fields:
        if not _FIELD.fullmatch(name):
            why = f"in {name!r} use 1 to 64 letters, digits and '_', not beginning with a digit"
            raise InvalidKnowledgeBaseError("fields", why)
    if embedded_field not in fields:
        raise InvalidKnowledgeBaseError("embedded_field", f"choose one of {', '.join(fields)}")
    others = [name for name in fields if name != embedded_field]
    if response_field is not None and response_field not in others:
        which = f"choose one of {', '.join(others)}" if others else "there is no field beside the embedded one"
        raise InvalidKnowledgeBaseError("response_field", f"{which}, or none")


def check_max_exemplar_bytes(size: int) -> None:
    """Refuse a greatest size of an exemplar that cannot be.

    Raises:
        InvalidKnowledgeBaseError: it cannot.
    """
    if isinstance(size, bool) or not isinstance(size, int) or not LEAST_EXEMPLAR_BYTES <= size <= MAX_EXEMPLAR_BYTES:
        why = f"use a whole number from {LEAST_EXEMPLAR_BYTES} to {MAX_EXEMPLAR_BYTES}"
        raise InvalidKnowledgeBaseError("max_exemplar_bytes", why)


def check_public_size(public_size: int) -> None:
    """Refuse a public size that cannot be.

    Raises:
        InvalidKnowledgeBaseError: it cannot.
    """
    if isinstance(public_size, bool) or not isinstance(public_size, int) or not 1 <= public_size <= MAX_PUBLIC_SIZE:
        raise InvalidKnowledgeBaseError("public_size", f"use a whole number from 1 to {MAX_PUBLIC_SIZE}")
