"""A question, answered under a task's budget."""

from __future__ import annotations

from collections.abc import Mapping

from service.commands.command import command
from service.pipeline.answering import Answer, Answering
from service.records.roles import Actor, Right


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
    """See :meth:`service.pipeline.answering.Answering.answer`.

    Raises:
        service.records.roles.OutOfScopeError: the actor may not ask this task.
    """
    actor.require_task(task)
    return await answering.answer(
        task, query, key_id=actor.id, idempotency_key=idempotency_key, abstain_below=abstain_below
    )
