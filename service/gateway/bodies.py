"""Bodies of requests: endpoints that read them themselves are marked where they are defined; the gate asks here."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Scope

_MARK = "_dpicl_streams_body"
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def streams_body(endpoint: Endpoint) -> Endpoint:
    """Mark an endpoint that reads the body as it comes, after authentication, up to a limit of its own."""
    setattr(endpoint, _MARK, True)
    return endpoint


def reads_body_itself(endpoint: Callable[..., Any]) -> bool:
    """Whether an endpoint reads the body itself, as marked by :func:`streams_body`."""
    return hasattr(endpoint, _MARK)


async def body_within(request: Request, limit: int, refusal: Exception) -> bytes:
    """The body, kept in memory: private text is never written to disk in the clear.

    Raises:
        Exception: the body has more than ``limit`` bytes; raises ``refusal``.
    """
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise refusal
    return bytes(body)


def streamed(routes: Sequence[BaseRoute], scope: Scope) -> bool:
    """Whether a request goes to an endpoint that reads the body itself."""
    for route in routes:
        match, inner = route.matches(scope)
        if match is Match.FULL:
            if isinstance(route, Mount):
                return streamed(route.routes, {**scope, **inner})
            return reads_body_itself(getattr(route, "endpoint", streamed))
    return False
