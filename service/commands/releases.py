"""What left the service: public, and free to read."""

from __future__ import annotations

import builtins

from accounting.ledger.charges import Release
from accounting.ledger.history import History
from service.commands.command import command
from service.records.records import Records
from service.records.roles import Actor, Right


@command(Right.AUDIT)
def list_(
    _actor: Actor,
    records: Records,
    *,
    task: str | None = None,
    knowledge_base: str | None = None,
    after: str | None = None,
    limit: int,
) -> builtins.list[Release]:
    """What left, the newest first: of a task or a knowledge base, behind the release ``after``."""
    history = History(records.database)
    return history.releases(task=task, knowledge_base=knowledge_base, after=after, limit=limit)


@command(Right.SEE)
def read(_actor: Actor, records: Records, release: str) -> Release:
    """A release, by its id.

    Raises:
        accounting.ledger.charges.UnknownReleaseError: there is none.
    """
    return records.ledger.get_release(release)
