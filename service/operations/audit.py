"""The audit trail: read, exported whole, and replayed."""

from collections.abc import Collection, Iterator
from typing import Any

from accounting.ledger.trail import AuditEvent
from accounting.replay.trail import Progress, Report
from service.operations.command import command
from service.operations.roles import Actor, Right
from service.records import replaying
from service.records.records import Records


@command(Right.AUDIT)
def events(_actor: Actor, /, records: Records, **wanted: Any) -> list[AuditEvent]:
    """Events; see :meth:`accounting.ledger.trail.AuditTrail.events` for what can be wanted."""
    return records.audit.events(**wanted)


@command(Right.AUDIT)
def export(_actor: Actor, records: Records) -> Iterator[str]:
    """Every event as a line of JSON, and a last line that shows where the trail ended."""
    return records.audit.export()


@command(Right.AUDIT)
def replay(
    _actor: Actor,
    records: Records,
    heads: Collection[str] = (),
    *,
    recompute: bool = True,
    progress: Progress = lambda _plan: None,
) -> Report:
    """See :func:`service.records.replaying.replay`."""
    return replaying.replay(records, heads=heads, recompute=recompute, progress=progress)
