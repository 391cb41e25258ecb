"""Errors as pages a person can go on from."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from accounting.ledger.errors import UnknownPlanError
from accounting.ledger.history import UnknownCursorError
from service.dashboard.pages import Visit
from service.pipeline.restoring import UnknownBundleError
from service.problem_kinds import ProblemKind
from service.records.database import UNAVAILABLE
from service.refusals import KIND_OF
from service.telemetry.routes import route_pattern

log = structlog.get_logger()

_IN_ADDRESSES = (UnknownBundleError, UnknownCursorError, UnknownPlanError)


def _known(kind: ProblemKind, request: Request, error: Exception) -> Response:
    return _page(request, kind.status, kind.title, f"{str(error).removesuffix('.')}.")


def _not_there(request: Request, error: Exception) -> Response:
    return _page(request, 404, "Not found", f"{error}.")


def _database_down(request: Request, error: Exception) -> Response:
    log.error("database_unavailable", route=route_pattern(request.scope), error=type(error).__name__)
    return _page(request, 503, "The database does not answer", "Load the page again in a moment.")


def _http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return _page(request, 404, "Not found", "There is no page at this address.")
    if status == 405:
        return _page(
            request, 405, "Method not allowed", "This address only takes forms; open the page that sends them."
        )
    return _page(request, status, "Refused", "The request could not be understood.")


def _unexpected(request: Request, _error: Exception) -> Response:
    # The error itself may quote what is private; the gate logs its kind.
    return _page(
        request, 500, "Something failed", "The service could not make this page. Its log says where it failed."
    )


def _page(request: Request, status: int, title: str, detail: str) -> Response:
    return Visit(request, None).page("error.html", status, title=title, detail=detail)


HANDLERS: dict[Any, Callable[[Request, Exception], Response]] = {
    **{refusal: partial(_known, kind) for refusal, kind in KIND_OF.items()},
    **dict.fromkeys(_IN_ADDRESSES, _not_there),
    **dict.fromkeys(UNAVAILABLE, _database_down),
    HTTPException: _http,
    Exception: _unexpected,
}
