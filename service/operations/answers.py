"""Questions answered under a task's budget; and what left the service, which is public and free to read."""

from collections.abc import Mapping

from accounting.ledger.charges import Release
from accounting.ledger.history import History
from service.answering.answering import Answer, Answering
from service.operations.command import command
from service.operations.roles import Actor, Right
from service.records.records import Records


@command(Right.ASK)
async def ask(
    actor: Actor,
    answering: Answering,
    task: str,
    query: str | Mapping[str, str],
    *,
    idempotency_key: str | None = None,
    abstain_below: float | None = None,
) -> Answer:
    """See :meth:`service.answering.answering.Answering.answer`.

    Raises:
        service.operations.roles.OutOfScopeError: the actor may not ask this task.
    """
    actor.require_task(task)
    return await answering.answer(
        task, query, key_id=actor.id, idempotency_key=idempotency_key, abstain_below=abstain_below
    )


@command(Right.AUDIT)
def list_releases(
    _actor: Actor,
    records: Records,
    *,
    task: str | None = None,
    knowledge_base: str | None = None,
    after: str | None = None,
    limit: int,
) -> list[Release]:
    """What left, the newest first: of a task or a knowledge base, behind the release ``after``."""
    history = History(records.database)
    return history.releases(task=task, knowledge_base=knowledge_base, after=after, limit=limit)


@command(Right.SEE)
def read_release(_actor: Actor, records: Records, release: str) -> Release:
    """A release, by its id.

    Raises:
        accounting.ledger.charges.UnknownReleaseError: there is none.
    """
    return records.ledger.get_release(release)
