"""Errors as RFC 9457 problem details that also carry an OpenAI ``error`` object.

A problem says what to do. It never says anything of private data: after a charge every failure looks the same, and
nothing invites a blind retry (``x-should-retry: false``).
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
import structlog
from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import Match
from starlette.types import Receive, Scope, Send

from accounting.ledger.budgets import BudgetExceededError, UnknownTaskError
from accounting.ledger.charges import AnswersExhaustedError, IdempotencyConflictError, UnknownReleaseError
from accounting.ledger.compatibility import SchemaError
from accounting.ledger.history import UnknownCursorError
from accounting.ledger.quotas import QuotaExhaustedError
from accounting.ledger.witness import LedgerRestoredError, WitnessUnavailableError
from accounting.plan import PlanError
from accounting.privacy.accountants import AccountantsDisagreeError
from exemplar_store import (
    BadRowError,
    EncryptionKeyError,
    InvalidKnowledgeBaseError,
    KnowledgeBaseExistsError,
    UnitTooLargeError,
    UnknownKnowledgeBaseError,
    UnknownUnitError,
)
from service.engines.protocol import EngineUnavailableError
from service.pipeline.answering import BusyError, RemoteEngineForbiddenError, StillAnsweringError
from service.pipeline.latency import GrainTooSmallError
from service.pipeline.queries import InvalidQueryError
from service.records.api_keys import UnknownKeyError
from service.records.synthetic_store import SyntheticUploadError
from service.telemetry.routes import route_pattern

log = structlog.get_logger()

MEDIA_TYPE = "application/problem+json"
TYPE_BASE = "https://dp-icl.dev/problems#"
"""Where docs/problems.md is published: a problem's slug is the heading it is explained under."""


class OpenAIError(BaseModel):
    """The same as OpenAI's clients expect it."""

    message: str
    type: str = Field(examples=["insufficient_quota"])
    code: str = Field(examples=["answers_exhausted"])


class ProblemDocument(BaseModel):
    """An error: problem details (RFC 9457) that also carry an OpenAI `error` object."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(examples=[TYPE_BASE + "answers-exhausted"], description="Explains this kind of problem.")
    title: str = Field(examples=["Answers exhausted"])
    status: int = Field(examples=[402])
    detail: str = Field(description="What is wrong, and what to do.")
    problems: list[str] = Field(default=[], description="One by one, where several things are wrong.")
    error: OpenAIError


class Problem(Exception):  # noqa: N818  (the term of RFC 9457)
    """An error with its HTTP status.

    Args:
        status: HTTP status code.
        slug: last part of the stable ``type`` URI.
        detail: what is wrong and what to do.
        retry_after_s: whole seconds after which the same request may succeed.
        extra: further public members of the problem document.
    """

    def __init__(
        self,
        status: int,
        slug: str,
        detail: str,
        *,
        retry_after_s: float | None = None,
        headers: Mapping[str, str] | None = None,
        extra: Mapping[str, Any] | None = None,
    ):
        super().__init__(detail)
        self.status = status
        self.slug = slug
        self.detail = detail
        self.retry_after_s = retry_after_s
        self.headers = dict(headers or {})
        self.extra = dict(extra or {})

    def response(self) -> JSONResponse:
        """The problem as an HTTP response; once it is sent, the request's state has its slug as ``problem``."""
        headers = dict(self.headers)
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(math.ceil(self.retry_after_s))
        elif self.status in (402, 409) or self.status >= 500:
            headers.setdefault("x-should-retry", "false")
        document = {
            "type": TYPE_BASE + self.slug,
            "title": self.slug.replace("-", " ").capitalize(),
            "status": self.status,
            "detail": self.detail,
            **self.extra,
            "error": {"message": self.detail, "type": _openai_type(self.status), "code": self.slug.replace("-", "_")},
        }
        response = _ProblemResponse(document, self.status, headers, MEDIA_TYPE)
        response.slug = self.slug
        return response


class _ProblemResponse(JSONResponse):
    slug: str

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope.setdefault("state", {})["problem"] = self.slug
        await super().__call__(scope, receive, send)


_STATUS_OF: dict[type[Exception], tuple[int, str]] = {
    AnswersExhaustedError: (402, "answers-exhausted"),
    QuotaExhaustedError: (402, "quota-exhausted"),
    BudgetExceededError: (402, "budget-exceeded"),
    RemoteEngineForbiddenError: (403, "remote-engine-forbidden"),
    UnknownTaskError: (404, "unknown-task"),
    UnknownReleaseError: (404, "unknown-release"),
    UnknownKnowledgeBaseError: (404, "unknown-knowledge-base"),
    SyntheticUploadError: (403, "made-up-data"),
    UnknownUnitError: (404, "unknown-unit"),
    UnknownKeyError: (404, "unknown-key"),
    KnowledgeBaseExistsError: (409, "knowledge-base-exists"),
    InvalidKnowledgeBaseError: (422, "invalid-knowledge-base"),
    IdempotencyConflictError: (422, "idempotency-conflict"),
    InvalidQueryError: (422, "invalid-query"),
    BadRowError: (422, "bad-row"),
    UnitTooLargeError: (422, "unit-too-large"),
    UnknownCursorError: (422, "unknown-cursor"),
    PlanError: (422, "invalid-plan"),
    AccountantsDisagreeError: (422, "accountants-disagree"),
    LedgerRestoredError: (503, "ledger-restored"),
    SchemaError: (503, "schema-too-new"),
    GrainTooSmallError: (503, "latency-grain-too-small"),
}
_DATABASE_DOWN = "the database does not answer; asking a question again is free if it was answered"
_SLUG_OF_STATUS = {400: "unreadable-body", 404: "not-found", 405: "method-not-allowed"}
"""Of the framework's own refusals."""


def install(app: FastAPI) -> None:
    """Make every error of the app a problem document."""

    def known(_request: Request, error: Exception) -> JSONResponse:
        status, slug = _STATUS_OF[type(error)]
        extra = {"problems": error.problems} if isinstance(error, PlanError) else None
        return Problem(status, slug, str(error), extra=extra).response()

    for kind in _STATUS_OF:
        app.add_exception_handler(kind, known)

    @app.exception_handler(Problem)
    def problem(_request: Request, error: Problem) -> JSONResponse:
        return error.response()

    @app.exception_handler(EngineUnavailableError)
    def engine_down(_request: Request, error: EngineUnavailableError) -> JSONResponse:
        return Problem(503, "engine-unavailable", str(error), retry_after_s=5).response()

    @app.exception_handler(sa.exc.TimeoutError)  # all connections are waiting
    @app.exception_handler(sa.exc.OperationalError)
    def database_down(request: Request, error: Exception) -> JSONResponse:
        log.error("database_unavailable", route=route_pattern(request.scope), error=type(error).__name__)
        return Problem(503, "database-unavailable", _DATABASE_DOWN).response()

    @app.exception_handler(EncryptionKeyError)
    def wrong_key(_request: Request, error: EncryptionKeyError) -> JSONResponse:
        return Problem(503, "wrong-encryption-key", str(error)).response()

    @app.exception_handler(WitnessUnavailableError)
    def witness_down(_request: Request, error: WitnessUnavailableError) -> JSONResponse:
        return Problem(503, "witness-unavailable", str(error), retry_after_s=5).response()

    @app.exception_handler(StillAnsweringError)
    def still_answering(_request: Request, error: StillAnsweringError) -> JSONResponse:
        return Problem(429, "still-answering", str(error), retry_after_s=2).response()

    @app.exception_handler(BusyError)
    def busy(_request: Request, error: BusyError) -> JSONResponse:
        return Problem(429, "busy", str(error), retry_after_s=1).response()

    @app.exception_handler(RequestValidationError)
    def invalid(_request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [_invalid(one) for one in error.errors()]
        return Problem(422, "invalid-request", "; ".join(problems), extra={"problems": problems}).response()

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> JSONResponse:
        slug = _SLUG_OF_STATUS.get(error.status_code, "http-error")
        headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
        return Problem(error.status_code, slug, str(error.detail), headers=headers).response()


def _allowed(request: Request) -> str:
    """The methods of all routes at this address: the framework names those of the first one."""
    here = (route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE)
    return ", ".join(sorted({method for route in here for method in getattr(route, "methods", None) or ()}))


def _invalid(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors: where, and what is wrong (in our own words where a validator of ours says it)."""
    place = ".".join(str(part) for part in error["loc"] if part != "body")
    return f"{place}: {error['msg'].removeprefix('Value error, ')}"


def _openai_type(status: int) -> str:
    match status:
        case 401:
            return "authentication_error"
        case 402:
            return "insufficient_quota"
        case 403:
            return "permission_error"
        case 429:
            return "rate_limit_error"
        case _ if status >= 500:
            return "server_error"
        case _:
            return "invalid_request_error"
