"""Liveness and readiness."""

from __future__ import annotations

import asyncio
import time
from typing import Literal

import sqlalchemy as sa
from fastapi import APIRouter, Request
from pydantic import BaseModel

from accounting.compatibility import OLDEST, check
from service.api.dependencies import TheServices
from service.api.problems import Problem
from service.engines import EngineUnavailableError

router = APIRouter(tags=["health"])

_KEPT_S = 1.0  # anybody may ask, and the engine has better things to do than to answer each time


class Health(BaseModel):
    """Alive or ready."""

    status: Literal["ok"] = "ok"


@router.get("/healthz", summary="The process answers")
async def healthz() -> Health:
    """Always 200 while the process serves requests."""
    return Health()


@router.get("/readyz", summary="Database and engine answer")
async def readyz(request: Request, services: TheServices) -> Health:
    """200 when a query could be answered now, else 503 naming what is missing. Good news is kept for a second."""
    state = request.app.state
    if time.monotonic() < getattr(state, "ready_until", 0.0):
        return Health()

    def ping() -> None:
        with services.records.database.connect().execution_options(read_only=True) as connection:
            check(connection.execute(OLDEST).scalar())

    try:
        await asyncio.to_thread(ping)
    except sa.exc.SQLAlchemyError:
        raise Problem(503, "database-unavailable", "the database does not answer", retry_after_s=5) from None
    try:
        await asyncio.wait_for(services.engine.health(), timeout=5)
    except (EngineUnavailableError, TimeoutError):
        raise Problem(503, "engine-unavailable", "the engine does not answer", retry_after_s=5) from None
    state.ready_until = time.monotonic() + _KEPT_S
    return Health()
