"""Bodies of requests.

Endpoints that read them themselves are marked where they are defined; the gate asks here. The bodies of others are
JSON that means the same to every reader.
"""

import json
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeVar

from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
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


class ExactRoute(APIRoute):
    """A route whose bodies are read as :class:`ExactRequest` does."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """The function that answers a request."""
        handle = super().get_route_handler()

        async def exactly(request: Request) -> Response:
            return await handle(ExactRequest(request.scope, request.receive))

        return exactly


class ExactRequest(Request):
    """A request whose JSON gives no member twice: which one counts depends on who reads it."""

    async def json(self) -> Any:
        """The body.

        Raises:
            json.JSONDecodeError: it is not such JSON.
            UnicodeDecodeError: it is not UTF-8.
        """
        body = await self.body()
        body.decode()
        return exact_json(body)


def exact_json(body: bytes) -> Any:
    """JSON that means the same to every reader.

    Raises:
        json.JSONDecodeError: it is not JSON, gives a member twice, or has NaN, Infinity, a number of thousands of
            digits or too many levels.
    """
    try:
        return json.loads(body, object_pairs_hook=_members, parse_constant=_no_number)
    except json.JSONDecodeError:
        raise
    except UnicodeDecodeError:
        raise json.JSONDecodeError("it is not UTF-8", "", -1) from None
    except ValueError:
        raise json.JSONDecodeError("a number has too many digits", "", -1) from None
    except RecursionError:
        raise json.JSONDecodeError("it has too many levels", "", -1) from None


def _members(members: list[tuple[str, Any]]) -> dict[str, Any]:
    read = dict(members)
    if len(read) < len(members):
        names = [name for name, _ in members]
        twice = next(name for name in names if names.count(name) > 1)
        raise json.JSONDecodeError(f"an object gives {twice[:100]!r} twice; give it once", "", -1)
    return read


def _no_number(written: str) -> Any:
    raise json.JSONDecodeError(f"{written} is not a number", "", -1)


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
