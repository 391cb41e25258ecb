"""The dashboard as one ASGI application, to be mounted."""

from __future__ import annotations

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from service.dashboard import (
    audit,
    bundles,
    cohorts,
    keys,
    knowledge_base,
    new_knowledge_base,
    overview,
    sanitising,
    sign_in,
)
from service.dashboard.errors import HANDLERS
from service.dashboard.plan_studio import page as plan_studio
from service.dashboard.plan_studio import signing
from service.dashboard.security import SecurityHeaders
from service.dashboard.templating import static
from service.records.sessions import Sessions
from service.services import Services

PAGES = (
    overview,
    new_knowledge_base,
    knowledge_base,
    cohorts,
    sign_in,
    keys,
    audit,
    plan_studio,
    signing,
    sanitising,
    bundles,
)


def dashboard(services: Services) -> ASGIApp:
    """Build the dashboard around opened services."""
    routes = [Route("/static/{version}/{name}", static, methods=["GET"])]
    for page in PAGES:
        routes += page.pages.routes
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.state.services = services
    app.state.sessions = Sessions(services.records.database)
    return SecurityHeaders(app)  # around everything, the page of an unexpected error too
