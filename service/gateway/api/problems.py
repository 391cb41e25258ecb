"""Errors as RFC 9457 problem details that also carry an OpenAI ``error`` object, and pages that explain their kinds.

A problem names the remedy. It never reveals anything of private data: after a charge every failure looks the same, and
nothing invites a blind retry (``x-should-retry: false``).
"""

import math
from collections.abc import Mapping
from dataclasses import KW_ONLY, dataclass, field
from typing import Annotated, Any

import structlog
from fastapi import APIRouter, FastAPI, Path, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from pydantic import BaseModel, ConfigDict, Field
from starlette.exceptions import HTTPException
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from service.gateway.paths import inner_path, outer_path
from service.gateway.telemetry.routes import route_pattern
from service.operations.fields import advice_on
from service.operations.refusals import OUTAGES, REFUSALS, kind_of, members_of
from service.problem_kinds import ProblemKind

log = structlog.get_logger()
ROUTE = "/problems"
router = APIRouter(prefix=ROUTE, tags=["problems"])

MEDIA_TYPE = "application/problem+json"


class OpenAIError(BaseModel):
    """The error in the form that OpenAI's clients expect."""

    message: str
    type: str = Field(examples=["insufficient_quota"])
    code: str = Field(examples=["answers_exhausted"])


class ProblemDocument(BaseModel):
    """An error: problem details (RFC 9457) that also carry an OpenAI `error` object."""

    model_config = ConfigDict(extra="allow")

    type: str = Field(
        examples=["/problems/answers-exhausted"], description="Name of the kind of problem; leads to its explanation."
    )
    title: str = Field(examples=[ProblemKind.ANSWERS_EXHAUSTED.title])
    status: int = Field(examples=[ProblemKind.ANSWERS_EXHAUSTED.status])
    detail: str = Field(description="The cause and the remedy.")
    problems: list[str] = Field(default=[], description="Each cause, where there are several.")
    error: OpenAIError


@dataclass(eq=False)
class Problem(Exception):  # noqa: N818  (the term of RFC 9457)
    """An error of a kind.

    Attributes:
        kind: kind of problem, on which callers can act.
        detail: sentence with the cause and the remedy.
        status: HTTP status code; 0: the kind's.
        retry_after_s: whole seconds after which the same request may succeed.
        headers: further headers of the response.
        extra: further public members of the problem document.
        parameter: parameter of the request that is wrong, if it is one alone.
    """

    kind: ProblemKind
    detail: str
    _: KW_ONLY
    status: int = 0
    retry_after_s: float | None = None
    headers: Mapping[str, str] | None = None
    extra: Mapping[str, Any] = field(default_factory=dict)
    parameter: str | None = None

    def __post_init__(self) -> None:
        self.status = self.status or self.kind.status

    def document(self, base: str) -> dict[str, Any]:
        """The problem document.

        Args:
            base: beginning of ``type``.
        """
        code = self.kind.slug.replace("-", "_")
        openai_type = "server_error" if self.status >= 500 else _OPENAI_TYPES.get(self.status, "invalid_request_error")
        return {
            "type": base + self.kind.slug,
            "title": self.kind.title,
            "status": self.status,
            "detail": self.detail,
            **self.extra,
            "error": {"message": self.detail, "type": openai_type, "param": self.parameter, "code": code},
        }

    def response(self, scope: Scope) -> JSONResponse:
        """The problem as an HTTP response to this request; sets ``problem`` of the request's state to its slug."""
        scope.setdefault("state", {})["problem"] = self.kind.slug
        base = scope["app"].state.services.records.settings.problem_base or f"{outer_path(scope)}{ROUTE}/"
        headers = dict(self.headers or {})
        if self.retry_after_s is not None:
            headers["Retry-After"] = str(math.ceil(self.retry_after_s))
        elif self.status in (402, 409) or self.status >= 500:
            headers.setdefault("x-should-retry", "false")
        return JSONResponse(self.document(base), self.status, headers, MEDIA_TYPE)


def may_meet(*kinds: ProblemKind) -> dict[int | str, dict[str, Any]]:
    """Responses of an operation that may be refused for these reasons, for the OpenAPI document."""
    explained: dict[int | str, list[str]] = {}
    for kind in kinds:
        explained.setdefault(kind.status, []).append(kind.explanation)
    return {status: {"description": " ".join(said)} for status, said in explained.items()}


class ProblemKindView(BaseModel):
    """A kind of problem."""

    title: str
    status: int | None = Field(description="HTTP status code; null: several.")
    explanation: str = Field(description="The cause, whether anything was charged or changed, and the remedy.")


_KINDS = {kind.slug: kind for kind in ProblemKind}
_UNKNOWN: dict[int | str, dict[str, Any]] = {404: {"description": "There is no such kind of problem."}}


@router.get("/{kind}", summary="Explain a kind of problem", responses=_UNKNOWN)
async def explain_problem(kind: Annotated[str, Path(examples=["answers-exhausted"])]) -> ProblemKindView:
    """Needs no key."""
    if (known := _KINDS.get(kind)) is None:
        raise Problem(ProblemKind.NOT_FOUND, f"there is no kind of problem named {kind!r}")
    return ProblemKindView(title=known.title, status=known.status or None, explanation=known.explanation)


_OPENAI_TYPES = {
    401: "authentication_error",
    402: "insufficient_quota",
    403: "permission_error",
    429: "rate_limit_error",
}
_DATABASE_DOWN = "the database does not answer; asking a question again is free if it was answered"
_FRAMEWORKS_OWN = {
    400: ProblemKind.UNREADABLE_BODY,
    404: ProblemKind.NOT_FOUND,
    405: ProblemKind.METHOD_NOT_ALLOWED,
}
"""Kinds of problem of the web framework's own refusals, by status."""


def install(app: FastAPI) -> None:
    """Make every error of the app a problem document."""
    for exception in REFUSALS:
        app.add_exception_handler(exception, _refused)

    @app.exception_handler(Problem)
    def problem(request: Request, error: Problem) -> JSONResponse:
        return error.response(request.scope)

    def database_down(request: Request, error: Exception) -> JSONResponse:
        log.error("database_unavailable", route=route_pattern(request.scope), error=type(error).__name__)
        return Problem(kind_of(error), _DATABASE_DOWN).response(request.scope)

    for exception in OUTAGES:
        app.add_exception_handler(exception, database_down)

    @app.exception_handler(RequestValidationError)
    def invalid(request: Request, error: RequestValidationError) -> JSONResponse:
        problems = [_invalid(detail) for detail in error.errors()]
        named = {str(part) for detail in error.errors() for part in detail["loc"][1:2] if isinstance(part, str)}
        problem = Problem(
            ProblemKind.INVALID_REQUEST,
            "; ".join(problems),
            extra={"problems": problems},
            parameter=named.pop() if len(named) == 1 else None,
        )
        return problem.response(request.scope)

    @app.exception_handler(HTTPException)
    def http(request: Request, error: HTTPException) -> JSONResponse:
        kind = _FRAMEWORKS_OWN.get(error.status_code, ProblemKind.HTTP_ERROR)
        headers = {"Allow": _allowed(request)} if error.status_code == 405 else error.headers
        detail = _nowhere(request) if error.status_code == 404 else str(error.detail)
        return Problem(kind, detail, status=error.status_code, headers=headers).response(request.scope)


def _refused(request: Request, error: Exception) -> JSONResponse:
    retry_after_s = getattr(error, "retry_after_s", None)
    problem = Problem(kind_of(error), str(error), retry_after_s=retry_after_s, extra=members_of(error))
    return problem.response(request.scope)


def _nowhere(request: Request) -> str:
    """Advice about an address that does not exist."""
    path, root = inner_path(request.scope), outer_path(request.scope)
    if _routes(request, f"/v1{path}"):
        return f"there is no {root}{path}, but there is {root}/v1{path}: let the base URL end in /v1"
    if path.startswith("/v1/") and _routes(request, path.removeprefix("/v1")):
        without = path.removeprefix("/v1")
        return f"there is no {root}{path}, but there is {root}{without}: leave /v1 out of the base URL"
    return (
        f"there is no {root}{path}; {root}/openapi.json lists the addresses of the API, and the dashboard is at "
        f"{root}/admin/"
    )


def _routes(request: Request, path: str) -> list[BaseRoute]:
    scope = {**request.scope, "path": outer_path(request.scope) + path}
    return [route for route in request.app.routes if route.matches(scope)[0] is not Match.NONE]


def _allowed(request: Request) -> str:
    """The methods of all routes at this address: the framework names only those of the first."""
    here = _routes(request, inner_path(request.scope))
    return ", ".join(sorted({method for route in here for method in getattr(route, "methods", None) or ()}))


def _invalid(error: Mapping[str, Any]) -> str:
    """One of pydantic's errors, with its place; in our own words if one of our validators raised it."""
    if error["type"] == "json_invalid":
        place = error["loc"][1] + 1 if len(error["loc"]) > 1 else 0  # pydantic itself names it
        return f"the body is not JSON: {error['ctx']['error']}" + (f" at character {place}" if place else "")
    if error["loc"] == ("body",):
        return "the body must be a JSON object, sent with Content-Type: application/json"
    place = ".".join(str(part) for part in error["loc"] if part != "body")
    if error["type"] == "extra_forbidden":
        return f"{place}: not known here; leave it out"
    return f"{place}: {advice_on(error) or error['msg'].removeprefix('Value error, ')}"
