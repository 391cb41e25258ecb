"""Alerts: at what, to which webhooks, and those that were raised. A signing secret is shown once, when it is made."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

from starlette.responses import Response

from service.dashboard.pages import Pages, Visit
from service.plans.alerts import Thresholds, change, recent, thresholds
from service.records.roles import Right
from service.records.webhooks import MOST, UnknownWebhookError, Webhook, in_clear

pages = Pages()

_TEST = {"event": "test", "text": "A test by dp-icl: alerts arrive here."}


@pages.get("/alerts", needs=Right.BROWSE)
async def alerts(visit: Visit) -> Response:
    """Thresholds, webhooks, and the newest alerts; addresses are nobody's to see."""
    return await _page(visit)


@pages.post("/alerts")
async def set_thresholds(visit: Visit) -> Response:
    """Alert at other thresholds from now on."""
    given = {name: visit.field(name) for name in ("percents", "days")}
    database = visit.services.records.database
    try:
        to = Thresholds(_percents(given["percents"]), _days(given["days"]))
    except ValueError as error:
        return await _page(visit, given, str(error))
    await asyncio.to_thread(change, database, to, datetime.now(UTC), by=visit.session.by)
    return visit.redirect("/alerts", done="Alerts are raised at these thresholds from now on.")


@pages.post("/alerts/webhooks")
async def add(visit: Visit) -> Response:
    """Add a webhook, and show its signing secret in this answer alone."""
    given = {name: visit.field(name) for name in ("name", "address")}
    webhooks = visit.services.alerts.webhooks
    try:
        _, secret = await asyncio.to_thread(webhooks.add, given["name"], given["address"], by=visit.session.by)
    except ValueError as error:
        return await _page(visit, given, str(error))
    clear = in_clear(given["address"])
    return visit.page("webhook_added.html", 201, here="alerts", name=given["name"], secret=secret, clear=clear)


@pages.post("/alerts/webhooks/{id}/test")
async def test(visit: Visit) -> Response:
    """Send a test now, and say what came of it."""
    alerts, id = visit.services.alerts, visit.request.path_params["id"]
    await asyncio.to_thread(alerts.webhooks.test, id, _TEST)
    await alerts.deliver()
    one = await _find(visit, id)
    if one.last is None or one.last.state == "waiting":
        return visit.redirect("/alerts", done=f"The test is on its way to “{one.name}”.")
    if one.last.error is None:
        return visit.redirect("/alerts", done=f"The test arrived at “{one.name}”.")
    why = f"The test did not arrive at “{one.name}” ({one.last.error}). It is tried again for a day."
    return visit.redirect("/alerts", refused=why)


@pages.post("/alerts/webhooks/{id}/remove")
async def remove(visit: Visit) -> Response:
    """Send nothing there any more."""
    webhooks = visit.services.alerts.webhooks
    name = await asyncio.to_thread(webhooks.remove, visit.request.path_params["id"], by=visit.session.by)
    return visit.redirect("/alerts", done=f"“{name}” is removed: nothing is sent there any more.")


async def _find(visit: Visit, id: str) -> Webhook:
    for one in await asyncio.to_thread(visit.services.alerts.webhooks.all):
        if one.id == id:
            return one
    raise UnknownWebhookError("There is no such webhook; perhaps it was removed.")


async def _page(visit: Visit, given: dict[str, str] | None = None, problem: str | None = None) -> Response:
    """The page; with what was entered and what is wrong with it, as ``field: why``."""
    database = visit.services.records.database
    at = await asyncio.to_thread(thresholds, database)
    shown = {"percents": ", ".join(map(str, at.percents)), "days": str(at.days or ""), "name": "", "address": ""}
    field, _, why = (problem or "").partition(": ")
    return visit.page(
        "alerts.html",
        422 if problem else 200,
        here="alerts",
        at=at,
        given=shown | (given or {}),
        problems={field: f"{why[0].upper()}{why[1:]}."} if problem else {},
        webhooks=await asyncio.to_thread(visit.services.alerts.webhooks.all),
        most=MOST,
        elsewhere=visit.services.records.settings.alert_webhook is not None,
        recent=await asyncio.to_thread(recent, database),
    )


def _percents(text: str) -> tuple[int, ...]:
    """Whole numbers with commas or blanks between, in ascending order."""
    words = text.replace(",", " ").replace("%", " ").split()
    if not all(word.isascii() and word.isdigit() and len(word) <= 3 for word in words):
        raise ValueError("percents: enter whole numbers from 1 to 100 with commas between, such as 75, 90, 100")
    return tuple(sorted({int(word) for word in words}))


def _days(text: str) -> int | None:
    if not text:
        return None
    if not (text.isascii() and text.isdigit() and len(text) <= 3):
        raise ValueError("days: enter a whole number, such as 14, or nothing for no forecast")
    return int(text)
