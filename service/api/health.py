"""Liveness and readiness."""

from __future__ import annotations

from typing import Literal

from fastapi import APIRouter
from pydantic import BaseModel

from service.api.dependencies import TheServices
from service.api.problems import Problem
from service.problem_kinds import ProblemKind

router = APIRouter(tags=["health"])


class Health(BaseModel):
    """Alive or ready."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", summary="The process answers")
async def healthz() -> Health:
    """Always 200 while the process serves requests."""
    return Health()


@router.get("/readyz", summary="The service can answer")
async def readyz(services: TheServices) -> Health:
    """200 if a query could be answered now, otherwise 503 naming what is missing. The check is up to a second old."""
    if missing := services.heartbeat.missing():
        kind = ProblemKind.DATABASE_UNAVAILABLE if missing == "database" else ProblemKind.ENGINE_UNAVAILABLE
        raise Problem(kind, f"the {missing} does not answer", retry_after_s=5)
    measured = services.grains.report
    if measured is None:
        raise Problem(ProblemKind.MEASURING, "the service still measures how long answers take", retry_after_s=5)
    if problems := [latency.problem for latency in measured if latency.problem]:
        raise Problem(ProblemKind.LATENCY_GRAIN_TOO_SMALL, "; ".join(problems))
    return Health()
