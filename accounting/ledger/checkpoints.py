"""Checkpoints that were signed, as they are stored: one for each origin and size, for good."""

import sqlalchemy as sa

from accounting.ledger.dialects import insert
from accounting.ledger.errors import LedgerError
from accounting.ledger.notes import Checkpoint, NoteError


class CheckpointError(LedgerError):
    """There is no signed checkpoint, or signing one would contradict one that was signed before."""


def newest(connection: sa.Connection, table: sa.Table, origin: str) -> Checkpoint | None:
    """The checkpoint of the largest size, whose signature is not checked; None if there is none of this origin.

    Args:
        connection: a connection to the table's database.
        table: a table like :data:`accounting.ledger.tables.audit_checkpoints`.
        origin: name of the log.

    Raises:
        CheckpointError: the stored note is not a checkpoint.
    """
    of = sa.select(table.c.note).where(table.c.origin == origin).order_by(table.c.size.desc()).limit(1)
    note = connection.scalars(of).first()
    return None if note is None else _read(note)


def keep(connection: sa.Connection, table: sa.Table, checkpoint: Checkpoint) -> None:
    """Store a checkpoint, unless it is stored.

    Args:
        connection: a connection in a transaction that writes.
        table: see :func:`newest`.
        checkpoint: the checkpoint.

    Raises:
        CheckpointError: another one of the same origin and size is stored.
    """
    origin, size = checkpoint.origin, checkpoint.size
    row = {"origin": origin, "size": size, "note": str(checkpoint)}
    connection.execute(insert(connection.dialect.name, table).values(row).on_conflict_do_nothing())
    stored = sa.select(table.c.note).where(table.c.origin == origin, table.c.size == size)
    if _read(connection.scalars(stored).one()).root != checkpoint.root:
        raise fork(origin, size)


def _read(note: str) -> Checkpoint:
    try:
        return Checkpoint.read(note)
    except NoteError as error:
        raise CheckpointError(f"a stored checkpoint of the audit trail was changed: {error}") from None


def fork(origin: str, size: int) -> CheckpointError:
    """The error that the trail does not continue one of this size that was signed before."""
    return CheckpointError(
        f"the audit trail does not continue the {size} events that {origin} signed before: it was rewritten, or events "
        "were lost in a restore. A log that lost entries is another log: look at `dpicl ledger status` and `dpicl "
        "audit verify`, then sign under another name (DPICL_AUDIT_ORIGIN), and give auditors its verifier key"
    )
