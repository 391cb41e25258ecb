"""REST, drawn by Swagger UI from the service's own OpenAPI document: admins read it, and try requests with a key."""

from starlette.responses import Response

from service.gateway.dashboard.pages import Pages, Visit
from service.gateway.dashboard.security import POLICY

pages = Pages()

# Its icons stand in its style sheet.
_POLICY = POLICY.replace("img-src 'self'", "img-src 'self' data:")


@pages.get("/docs")
async def reference(visit: Visit) -> Response:
    """All operations of REST."""
    response = visit.page("reference.html", here="reference")
    response.headers["Content-Security-Policy"] = _POLICY
    return response
