"""The audit trail: read in sentences, replayed, and exported."""

import asyncio
import secrets
from datetime import UTC, datetime
from typing import Any

from starlette.responses import PlainTextResponse, Response, StreamingResponse

from service.gateway.dashboard.computing import Computations
from service.gateway.dashboard.pages import Pages, Visit, whole
from service.operations import audit as commands
from service.operations.fields import FieldError
from service.operations.roles import Right

pages = Pages()

_PER_PAGE = 9  # on a phone, two screens
_WAIT_S = 20.0
_POLL_S = 1.0
_MOST_HEADS = 100
_replays = Computations("audit-replay", kept=20)


@pages.get("/audit", needs=Right.AUDIT)
async def audit(visit: Visit) -> Response:
    """Events, the newest first, with links to the export and the replay of the trail."""
    filters = {name: visit.asked(name) for name in ("kind", "knowledge_base", "key", "day")}
    day = None
    try:
        if filters["day"]:
            day = datetime.strptime(filters["day"], "%Y-%m-%d").date()
    except ValueError:
        visit.status, visit.problems = 422, {"day": "Write the day as 2027-03-14."}
    before = whole(visit.asked("before"), 17)
    listed = await visit.do(
        commands.describe,
        before=before,
        limit=_PER_PAGE + 1,
        kinds=[filters["kind"]] if filters["kind"] else None,
        knowledge_base=filters["knowledge_base"] or None,
        by=[filters["key"]] if filters["key"] else None,
        day=day,
    )
    choices = await visit.do(commands.filters)
    return visit.page(
        "audit.html",
        here="audit",
        filters=filters,
        chosen={name: value for name, value in filters.items() if value},
        choices=choices,
        knowledge_bases=[(name, name) for name in choices.knowledge_bases],
        events=listed[:_PER_PAGE],
        older=listed[_PER_PAGE - 1].event.sequence if len(listed) > _PER_PAGE else None,
        first_page=before is None,
    )


@pages.get("/audit/export", needs=Right.AUDIT)
async def export(visit: Visit) -> Response:
    """The whole trail, an event of JSON per line: `dpicl audit verify` replays it anywhere."""
    named = f'attachment; filename="dpicl-audit-{datetime.now(UTC):%Y-%m-%d}.ndjson"'
    return StreamingResponse(
        await visit.do(commands.export),
        media_type="application/x-ndjson",
        headers={"Content-Disposition": named},
    )


@pages.get("/audit/checkpoint", needs=Right.AUDIT)
async def checkpoint(visit: Visit) -> Response:
    """A signed checkpoint of the trail, to be kept elsewhere."""
    signed = await visit.do(commands.checkpoint)
    named = f'attachment; filename="dpicl-checkpoint-{signed.size}.txt"'
    return PlainTextResponse(str(signed), headers={"Content-Disposition": named})


@pages.get("/audit/verify", needs=Right.AUDIT)
async def verify(visit: Visit) -> Response:
    """The newest event's hash, and the form that replays the trail."""
    return await _replayed(visit)


@pages.post("/audit/verify", needs=Right.AUDIT, again=verify)
async def replay(visit: Visit) -> Response:
    """Replay the trail as it is now; until that is done, show so, and let the page ask again for the same replay."""
    heads = visit.field("heads").split()
    if len(heads) > _MOST_HEADS or any(len(head) != 64 or set(head) - set("0123456789abcdef") for head in heads):
        why = f"a hash is 64 of the characters 0-9 and a-f. Give at most {_MOST_HEADS}, with spaces between them"
        raise FieldError("heads", why)
    recompute = visit.field("recompute") == "yes"
    job = visit.field("job") or secrets.token_urlsafe(16)
    records = visit.services.records
    report = await _replays.result(
        job,
        (visit.actor.id, job),
        lambda: commands.replay(visit.actor, records, heads, recompute=recompute),
        _POLL_S if visit.is_htmx else _WAIT_S,
        insist=False,
    )
    if report is None:
        return await _replayed(visit, job=job, recompute=recompute)
    _replays.leave(job)
    return await _replayed(visit, report=report, recompute=recompute)


async def _replayed(visit: Visit, **context: Any) -> Response:
    template = "audit_replay.html" if visit.is_htmx and context else "audit_verify.html"
    shown = {"job": None, "report": None, "recompute": True} | context
    records = visit.services.records
    head = await asyncio.to_thread(records.audit.head)
    shown["verifier"] = records.log and str(records.log.verifier)
    return visit.page(template, here="audit", heads=visit.field("heads"), head=head, **shown)
