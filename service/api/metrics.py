"""Metrics, for Prometheus."""

from __future__ import annotations

import asyncio
from typing import Annotated

from fastapi import APIRouter, Depends, Request, Response
from fastapi.responses import PlainTextResponse
from fastapi.security import HTTPAuthorizationCredentials

from service.api.dependencies import TheServices, authenticate, bearer
from service.telemetry.metrics import Metrics

router = APIRouter(tags=["health"])


async def _may_read(
    request: Request,
    services: TheServices,
    credentials: Annotated[HTTPAuthorizationCredentials | None, Depends(bearer)],
) -> None:
    """A key of any role, unless the operator opened the metrics to all."""
    if not services.records.settings.metrics_open:
        await authenticate(request, services, credentials)


@router.get(
    "/metrics",
    summary="Metrics for Prometheus",
    response_class=PlainTextResponse,
    responses={200: {"description": "Metrics.", "content": {"application/openmetrics-text": {}}}},
    dependencies=[Depends(_may_read)],
)
async def metrics(request: Request, services: TheServices) -> Response:
    """Budgets, charges, refusals, responses, the audit trail, the engine: in Prometheus' text format or OpenMetrics.

    Public quantities only. Needs a key of any role unless the service runs with `DPICL_METRICS_OPEN=true`.
    """
    up = services.heartbeat.alive("engine")
    accept = request.headers.get("accept", "")
    told: Metrics = request.app.state.metrics
    text, media_type = await asyncio.to_thread(told.exposition, engine_up=up, accept=accept)
    return Response(text, headers={"content-type": media_type})
