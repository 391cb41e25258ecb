"""Errors as pages a person can go on from."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response

from accounting.ledger.charges import UnknownReleaseError
from accounting.ledger.errors import UnknownGroupError, UnknownPlanError, UnknownTaskError
from accounting.ledger.history import UnknownCursorError
from exemplar_store import EncryptionKeyError, UnknownKnowledgeBaseError
from service.dashboard.pages import Visit
from service.pipeline.restoring import UnknownBundleError
from service.records.api_keys import UnknownKeyError
from service.records.webhooks import UnknownWebhookError

_GONE = (
    UnknownCursorError,
    UnknownKnowledgeBaseError,
    UnknownGroupError,
    UnknownPlanError,
    UnknownTaskError,
    UnknownReleaseError,
    UnknownKeyError,
    UnknownBundleError,
    UnknownWebhookError,
)


def _not_there(request: Request, error: Exception) -> Response:
    return _page(request, 404, "Not found", str(error))


def _http(request: Request, error: Exception) -> Response:
    status = error.status_code if isinstance(error, HTTPException) else 500
    if status == 404:
        return _page(request, 404, "Not found", "There is no page at this address.")
    if status == 405:
        return _page(
            request, 405, "Method not allowed", "This address only takes forms; open the page that sends them."
        )
    return _page(request, status, "Refused", "The request could not be understood.")


def _wrong_key(request: Request, error: Exception) -> Response:
    return _page(request, 503, "Wrong encryption key", str(error))


def _unexpected(request: Request, _error: Exception) -> Response:
    # The error itself may quote what is private; the gate logs its kind.
    return _page(
        request, 500, "Something failed", "The service could not make this page. Its log says where it failed."
    )


def _page(request: Request, status: int, title: str, detail: str) -> Response:
    return Visit(request, None).page("error.html", status, title=title, detail=detail)


HANDLERS: dict[Any, Callable[[Request, Exception], Response]] = {
    **dict.fromkeys(_GONE, _not_there),
    HTTPException: _http,
    EncryptionKeyError: _wrong_key,
    Exception: _unexpected,
}
