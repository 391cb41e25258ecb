"""Every knowledge base and its budget, at a glance."""

from __future__ import annotations

from starlette.responses import Response

from service.dashboard.pages import Pages, Visit

pages = Pages()


@pages.get("/")
async def overview(visit: Visit) -> Response:
    """The page one starts from."""
    return visit.page("overview.html", here="overview")
