"""Errors as pages with a way to go on."""

from collections.abc import Callable
from functools import partial
from typing import Any
from urllib.parse import urlencode, urlsplit

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from service.gateway.dashboard.forms import FormError
from service.gateway.dashboard.pages import COOKIE, NotSignedInError, Visit
from service.gateway.telemetry.routes import route_pattern
from service.operations.fields import sentence
from service.operations.refusals import NOT_THERE, OUTAGES, REFUSALS, kind_of

log = structlog.get_logger()


def _page(status: int, title: str, request: Request, error: Exception, detail: str = "") -> Response:
    visit = Visit(request, getattr(request.state, "session", None))
    return visit.page("error.html", status, title=title, detail=detail or sentence(str(error)))


def _refused(request: Request, error: Exception) -> Response:
    kind = kind_of(error)
    return _page(kind.status, kind.title, request, error)


def _not_taken(request: Request, error: FormError) -> Response:
    return _page(error.status, "Not taken", request, error)


def _database_down(request: Request, error: Exception) -> Response:
    log.error("database_unavailable", route=route_pattern(request.scope), error=type(error).__name__)
    return _page(503, "The database does not answer", request, error, "Load the page again in a moment.")


def _http(request: Request, error: HTTPException) -> Response:
    title, detail = {
        404: ("Not found", "There is no page at this address."),
        405: ("Method not allowed", "This address only takes forms; open the page that sends them."),
    }.get(error.status_code, ("Refused", "The request could not be understood."))
    return _page(error.status_code, title, request, error, detail)


def _unexpected(request: Request, error: Exception) -> Response:
    # The error itself may quote what is private; the gate logs its kind.
    detail = "The service could not make this page. Its log names the place."
    return _page(500, "Something failed", request, error, detail)


def _to_sign_in(request: Request, _error: Exception) -> Response:
    """Send the browser to the sign-in page, and from there back to its page, or the page of the form that it sent."""
    visit = Visit(request, None)
    address = str(request.url)
    if request.method == "POST" or visit.is_htmx:
        address = request.headers.get("hx-current-url") or request.headers.get("referer", "")
    page = urlsplit(address)
    back = visit.inside(page.path + (f"?{page.query}" if page.query else ""))
    path = "/sign-in" + (f"?{urlencode({'next': back})}" if back and back != "/" else "")
    if request.method == "POST":
        ended = "Your session has ended, and nothing was done. Sign in, then send the form again."
    else:
        ended = "Your session has ended. Sign in to continue."
    response = visit.redirect(path, refused=ended if COOKIE in request.cookies else None)
    if visit.is_htmx:  # which would follow a redirect and put the sign-in page into a corner of this one
        response.status_code = 204
        response.headers["HX-Redirect"] = response.headers["location"]
        del response.headers["location"]
    return response


HANDLERS: dict[Any, Callable[[Request, Any], Response]] = {
    **dict.fromkeys(REFUSALS, _refused),
    **dict.fromkeys(NOT_THERE, partial(_page, 404, "Not found")),
    **dict.fromkeys(OUTAGES, _database_down),
    NotSignedInError: _to_sign_in,
    FormError: _not_taken,
    HTTPException: _http,
    Exception: _unexpected,
}
