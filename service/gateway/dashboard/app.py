"""The dashboard as one ASGI application, to be mounted in another."""

from __future__ import annotations

from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.routing import Route
from starlette.types import ASGIApp

from service.gateway.dashboard import (
    ask,
    audit,
    budgets,
    bundles,
    keys,
    knowledge_base,
    overview,
    reference,
    sanitising,
    sign_in,
)
from service.gateway.dashboard.errors import HANDLERS
from service.gateway.dashboard.plan_studio import page as plan_studio
from service.gateway.dashboard.security import SecurityHeaders
from service.gateway.dashboard.templating import static
from service.operations.services import Services
from service.operations.sessions import Sessions
from service.settings import Settings

if TYPE_CHECKING:
    from service.gateway.dashboard.provider import Provider

PAGES = (overview, ask, knowledge_base, budgets, sign_in, keys, audit, plan_studio, sanitising, bundles, reference)


def dashboard(services: Services) -> ASGIApp:
    """Build the dashboard around opened services."""
    routes = [Route("/static/{version}/{name}", static, methods=["GET"])]
    for page in PAGES:
        routes += page.pages.routes
    app = Starlette(routes=routes, exception_handlers=HANDLERS)
    app.state.services = services
    settings = services.records.settings
    app.state.sessions = Sessions(services.records.database, issuer=settings.oidc_issuer)
    app.state.provider = open_provider(settings)
    return SecurityHeaders(app)  # around everything, the page of an unexpected error too


def open_provider(settings: Settings) -> Provider | None:
    """The provider at which people sign in; None: they sign in with keys alone.

    Raises:
        ValueError: the provider's library is not installed, or its secret or certificates cannot be read.
    """
    if settings.oidc_issuer is None:
        return None
    try:
        from service.gateway.dashboard.provider import Provider  # an extra
    except ImportError as error:
        raise ValueError(
            f"DPICL_OIDC_ISSUER is set and {error.name} is not installed: pip install 'dp-icl[oidc]'"
        ) from None
    return Provider(settings)
