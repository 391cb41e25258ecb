"""Liveness, readiness, and metrics for Prometheus."""

import asyncio
from importlib.metadata import version
from typing import Annotated, Literal

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials
from pydantic import BaseModel, Field

from service.gateway.api.dependencies import TheServices, authenticate, bearer
from service.gateway.api.problems import Problem
from service.operations.refusals import kind_of
from service.problem_kinds import ProblemKind

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """Alive or ready."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", summary="The process answers")
async def check_health() -> Health:
    """Always 200 while the process serves requests."""
    return Health()


class Version(BaseModel):
    """The service's version."""

    version: str = Field(examples=["0.1.0"])


@router.get("/version", summary="The service's version")
async def show_version() -> Version:
    """The version of the package that answers."""
    return Version(version=version("dp-icl"))


@router.get("/readyz", summary="The service can answer")
async def check_readiness(services: TheServices) -> Health:
    """200 if a new question could be answered now, otherwise 503 naming what is missing.

    Database and engines were looked at in the last seconds, and whether the database can be written to. The witness
    counts, too: without it nothing is charged.
    """
    missing = services.heartbeat.missing()
    if missing == "database":
        detail = "the database does not answer, or cannot be written to"
        raise Problem(ProblemKind.DATABASE_UNAVAILABLE, detail, retry_after_s=5)
    if missing:
        raise Problem(ProblemKind.ENGINE_UNAVAILABLE, f"the {missing} does not answer", retry_after_s=5)
    witness = services.records.witness
    if witness is not None and (trouble := witness.trouble):  # as charges, and a look once a second, found it last
        kind = kind_of(trouble)
        raise Problem(kind, kind.explanation, retry_after_s=5)
    measured = services.grains.report
    if measured is None:
        raise Problem(ProblemKind.MEASURING, "the service still measures how long answers take", retry_after_s=5)
    failing = [latency for latency in measured if latency.problem]
    if failing and len(failing) == len(measured):  # else the others are answered
        unusable = any(latency.unusable for latency in failing)
        kind = ProblemKind.UNUSABLE_REPLY if unusable else ProblemKind.LATENCY_GRAIN_TOO_SMALL
        raise Problem(kind, "; ".join(latency.problem for latency in failing))
    return Health()


for path, answer in (("/healthz", check_health), ("/version", show_version), ("/readyz", check_readiness)):
    # Load balancers ask for the status alone.
    router.add_api_route(path, answer, methods=["HEAD"], include_in_schema=False)


async def _may_read(
    request: Request,
    services: TheServices,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> None:
    """A key of any role that is not for some tasks alone, unless the operator opened the metrics to all."""
    if not services.records.settings.metrics_open:
        actor = await authenticate(request, services, credentials)
        actor.require_no_scope("reads no metrics, which are of all tasks")


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses={
        200: {"description": "Metrics.", "content": {"application/openmetrics-text": {"schema": {"type": "string"}}}}
    },
    dependencies=[Depends(_may_read)],
)
async def get_metrics(request: Request, services: TheServices) -> Response:
    """Budgets, charges, refusals, responses, the audit trail, the engine: in Prometheus' text format or OpenMetrics.

    Public quantities only. Needs a key of any role, without a scope, unless the service runs with
    `DPICL_METRICS_OPEN=true`.
    """
    up = services.heartbeat.alive("engine")
    accept = request.headers.get("accept", "")
    text, media_type = await asyncio.to_thread(request.app.state.metrics.exposition, engine_up=up, accept=accept)
    return Response(text, headers={"content-type": media_type})
