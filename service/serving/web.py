"""REST and the dashboard as one application, built by a factory that needs neither Ray nor a language model."""

import asyncio
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from importlib.metadata import version
from operator import attrgetter

import structlog
from fastapi import APIRouter, Depends, FastAPI, Request
from fastapi.responses import RedirectResponse
from starlette.routing import Route

from service.answering.measured_grains import REFUSED_FOR_S
from service.engines.errors import EngineUnavailableError
from service.gateway.api import (
    answers,
    audit,
    budgets,
    document,
    health,
    keys,
    knowledge_bases,
    plans,
    problems,
    releases,
    texts,
)
from service.gateway.api.dependencies import given_once
from service.gateway.api.gate import Doors, Gate
from service.gateway.dashboard.app import dashboard
from service.gateway.mcp import PATH, mcp_app, mcp_server
from service.gateway.openai import responses, surface
from service.gateway.paths import outer_path
from service.gateway.reverse_proxy import ReverseProxied
from service.gateway.telemetry.responses import Counted
from service.gateway.telemetry.tracing import Traced, open_tracing
from service.operations.services import Services
from service.records.checkpointing import keep_signed
from service.records.database import UNAVAILABLE
from service.records.engine_record import note_engine
from service.records.witness import keep_witnessed
from service.serving.metrics import Metrics

log = structlog.get_logger()

_API = APIRouter(dependencies=[Depends(given_once)], generate_unique_id_function=attrgetter("name"))
"""REST, which FastAPI analyses here and not again for each application.

Operations are called like the functions that do them, so that generated clients have names to read and to rely on.
"""

_ASKING = (answers, surface, responses, texts, releases)
for face in (*_ASKING, budgets, knowledge_bases, plans, keys, audit, health, problems):
    _API.include_router(face.router)

_ASK_ENGINE_EVERY_S = 1.0
_PREPARE_AGAIN_S = 10.0
_MEASURE_AGAIN_S = 10.0

DESCRIPTION = """
Answers from an LLM informed by private examples, under differential privacy.

Each answer charges a budget that cannot be overspent. A repeated query is answered for free.
Errors are problem details (RFC 9457); a 402 names the exhausted budget.
"""


def create_app(services: Services, *, proxy_answers_name: bool = False, doors: Doors | None = None) -> FastAPI:
    """Build the application.

    Args:
        services: opened.
        proxy_answers_name: see :class:`service.gateway.api.gate.Gate`.
        doors: limit on the requests inside; to be closed before the service stops.
    """

    tracing = open_tracing()
    agents = mcp_server(services)
    told = Metrics(services.records)

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        work: list[Coroutine[None, None, object]] = [
            services.heartbeat.keep_beating(),
            _measure_grains(services),
            _note_engine(services),
            asyncio.to_thread(app.openapi),  # takes a second, for which no request should wait
        ]
        if services.sanitizers.wanted:
            work.append(_prepare_sanitizers(services))
        if services.records.witness is not None:
            work.append(keep_witnessed(services.records.witness))
        if services.records.log is not None:
            work.append(keep_signed(services.records.log))
        background = [asyncio.create_task(part) for part in work]
        async with agents.session_manager.run():
            yield
        for task in background:
            task.cancel()
        await services.answering.drain()
        if tracing is not None:
            await asyncio.to_thread(tracing.close)

    app = FastAPI(
        title="dp-icl",
        version=version("dp-icl"),
        description=DESCRIPTION,
        lifespan=lifespan,
        routes=_API.routes,
        # They would run another host's script where an admin's session is open; the dashboard has one of its own.
        docs_url=None,
        redoc_url=None,
        # Tracebacks may quote private data, so errors never leave as anything but problem documents.
        debug=False,
    )
    app.state.services = services
    app.state.metrics = told
    problems.install(app)
    app.add_middleware(Gate, doors=doors or Doors(), proxy_answers_name=proxy_answers_name)
    app.add_middleware(Counted, responses=told.responses)  # around the gate, to count what it refuses, too
    if tracing is not None:
        app.add_middleware(Traced, tracing=tracing)  # around both: what the gate refuses has a span, too
    settings = services.records.settings
    app.add_middleware(ReverseProxied, root_path=settings.root_path, trusted=settings.trusted_proxies)
    document.install(app)

    @app.get("/", include_in_schema=False)
    def home(request: Request) -> RedirectResponse:
        return RedirectResponse(f"{outer_path(request.scope)}/admin/")

    @app.get("/docs", include_in_schema=False)
    def reference(request: Request) -> RedirectResponse:
        return RedirectResponse(f"{outer_path(request.scope)}/admin/docs")

    # Without sessions a GET would open a stream on which nothing is ever sent, and keep a place inside.
    app.router.routes.append(Route(PATH, mcp_app(agents, settings.mcp_hosts), methods=["POST"]))
    app.mount("/admin", dashboard(services))
    return app


async def _measure_grains(services: Services) -> None:
    """Once the engine has started, soon again while a task cannot be served with the grain, then from time to time."""
    served = False
    while True:
        try:
            if served:
                await asyncio.sleep(_MEASURE_AGAIN_S)
                await services.grains.again()
            elif not (served := not any(latency.problem for latency in await services.grains.all())):
                await asyncio.sleep(REFUSED_FOR_S)
        except EngineUnavailableError:
            await asyncio.sleep(_ASK_ENGINE_EVERY_S)
        except Exception as error:
            log.error("measuring_failed", error=type(error).__name__)
            await asyncio.sleep(_ASK_ENGINE_EVERY_S)


async def _prepare_sanitizers(services: Services) -> None:
    """Embed their words, once the embedder answers."""
    while True:
        try:
            return await asyncio.to_thread(services.sanitizers.prepare)
        except (RuntimeError, OSError) as error:
            log.error("sanitizers_unavailable", error=type(error).__name__)
            await asyncio.sleep(_PREPARE_AGAIN_S)


async def _note_engine(services: Services) -> None:
    """Note how the engine runs once it has started, as only then it is known."""
    while True:
        try:
            return await asyncio.to_thread(note_engine, services.records.database, await services.engine.describe())
        except (EngineUnavailableError, *UNAVAILABLE):
            await asyncio.sleep(_ASK_ENGINE_EVERY_S)
