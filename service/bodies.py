"""Which endpoints read their request's body themselves: each says so where it is defined, the gate asks here."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from starlette.routing import BaseRoute, Match, Mount
from starlette.types import Scope

_MARK = "_dpicl_streams_body"
Endpoint = TypeVar("Endpoint", bound=Callable[..., Any])


def streams_body(endpoint: Endpoint) -> Endpoint:
    """Declare that an endpoint reads the body as it comes, after authentication, up to a limit of its own."""
    setattr(endpoint, _MARK, True)
    return endpoint


def streamed(routes: Sequence[BaseRoute], scope: Scope) -> bool:
    """Whether a request goes to such an endpoint."""
    for route in routes:
        match, inner = route.matches(scope)
        if match is Match.FULL:
            if isinstance(route, Mount):
                return streamed(route.routes, {**scope, **inner})
            return hasattr(getattr(route, "endpoint", None), _MARK)
    return False
