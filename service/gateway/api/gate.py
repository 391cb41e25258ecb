"""The outermost layer of the API: names requests, lets them in, reports limits, bounds bodies, lets no exception out.

A plain ASGI middleware. Exceptions are answered with a problem document and logged by their kind alone: the servers
around it would print a traceback, and with it perhaps private text.
"""

import asyncio
import math
import re
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from secrets import randbelow

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.gateway.api.problems import Problem
from service.gateway.bodies import streamed
from service.gateway.paths import inner_path
from service.gateway.telemetry.routes import route_pattern
from service.problem_kinds import ProblemKind

log = structlog.get_logger()

MAX_HEADER_BYTES = 64 * 1024
MAX_BODY_BYTES = 256 * 1024
BODY_WITHIN_S = 30.0
"""Time limit of a body: a slow one holds a connection and some memory, though no place. In a flood all bodies come
late."""
_NAME = re.compile(rb"[0-9A-Za-z-]{1,64}")
_ALIVE = "/healthz"
_OUTSIDE = frozenset({_ALIVE, "/readyz", "/metrics"})
"""The service's state is reported even when it rejects requests."""


class Doors:
    """Admits and counts requests. Belongs to one event loop.

    Requests are refused here, at little cost, and not before: Ray Serve's router queues requests beyond
    `max_ongoing_requests`, and after a burst releases them one by one.

    Args:
        places: number of requests that may be inside at once.
    """

    def __init__(self, places: float = math.inf) -> None:
        self.inside = 0
        self._places = places
        self._closed = False
        self._left = asyncio.Event()

    @property
    def closed(self) -> bool:
        """Whether new requests are refused."""
        return self._closed

    def check(self, path: str) -> None:
        """Check that a request to this path may come in.

        Raises:
            service.gateway.api.problems.Problem: 503, after which the same request reaches another replica or cluster;
                429, all places are taken.
        """
        if self.closed and path != _ALIVE:  # liveness is reported to the end
            raise Problem(ProblemKind.STOPPING, "this service is about to stop; ask again", retry_after_s=5)
        if self.inside >= self._places and path not in _OUTSIDE:
            # Callers who are refused together come back apart.
            raise Problem(ProblemKind.BUSY, "the service is busy; ask again later", retry_after_s=1 + randbelow(4))

    @contextmanager
    def enter(self, path: str) -> Iterator[None]:
        """Take a place until the block ends.

        Raises:
            service.gateway.api.problems.Problem: the request may not come in, as of :meth:`check`.
        """
        self.check(path)
        self.inside += 1
        try:
            yield
        finally:
            self.inside -= 1
            self._left.set()

    async def close(self) -> None:
        """Refuse new requests, and return when all requests inside are answered."""
        self._closed = True
        while self.inside:
            self._left.clear()
            await self._left.wait()


class Gate:
    """The application with this layer around it.

    Args:
        app: the application.
        doors: doors by which a request comes in once its body is there.
        proxy_answers_name: whether a proxy in front already sends ``x-request-id`` with the response, as Ray Serve's
            does; a second header would be one too many.
    """

    def __init__(self, app: ASGIApp, *, doors: Doors, proxy_answers_name: bool = False):
        self._app = app
        self._doors = doors
        self._proxy_answers_name = proxy_answers_name

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = _name(scope)
        scope.setdefault("state", {})["request_id"] = name
        named = [] if self._proxy_answers_name else [(b"x-request-id", name.encode())]
        started = False

        async def named_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                limits = scope.get("state", {}).get("limits", ())
                message["headers"] = [*message.get("headers", ()), *named, *limits]
            await send(message)

        with structlog.contextvars.bound_contextvars(request=name):
            try:
                if "\0" in scope["path"] or b"%00" in scope["query_string"]:
                    raise Problem(ProblemKind.BAD_ADDRESS, "the address contains a NUL character")
                if sum(len(header) + len(value) for header, value in scope["headers"]) > MAX_HEADER_BYTES:
                    raise Problem(
                        ProblemKind.HEADERS_TOO_LARGE, f"headers are at most {MAX_HEADER_BYTES} bytes together"
                    )
                path = inner_path(scope)
                self._doors.check(path)  # before waiting for its body, which under a flood comes late
                if not streamed(scope["app"].routes, scope):
                    receive = await _bounded(receive)
                with self._doors.enter(path):
                    await self._app(scope, receive, named_send)
            except Problem as problem:
                await problem.response(scope)(scope, receive, named_send)
            except Exception as error:
                log.error("unexpected", route=route_pattern(scope), error=type(error).__name__)
                if not started:
                    failure = Problem(ProblemKind.INTERNAL_ERROR, _FAILED)
                    await failure.response(scope)(scope, receive, named_send)


_FAILED = "the service failed; if this was a question, asking it again is free should it have been answered"


def _name(scope: Scope) -> str:
    """The name that a caller or a proxy gave the request, if it is harmless in a log; else a new name."""
    given = next((value for header, value in scope["headers"] if header == b"x-request-id"), b"")
    return given.decode() if _NAME.fullmatch(given) else uuid.uuid4().hex


async def _bounded(receive: Receive) -> Receive:
    """Read the body up to the limit.

    Returns:
        A function that receives the same body again.

    Raises:
        Problem: 413, the body is larger; 408, it does not arrive in time.
    """
    messages: list[Message] = []
    try:
        async with asyncio.timeout(BODY_WITHIN_S):
            size = 0
            while True:
                message = await receive()
                messages.append(message)
                size += len(message.get("body", b""))
                if size > MAX_BODY_BYTES:
                    raise Problem(
                        ProblemKind.BODY_TOO_LARGE, f"the body of this request is at most {MAX_BODY_BYTES} bytes"
                    )
                if message["type"] != "http.request" or not message.get("more_body", False):
                    break
    except TimeoutError:
        raise Problem(
            ProblemKind.BODY_TOO_SLOW,
            f"the body did not arrive within {BODY_WITHIN_S:.0f} seconds; send it again",
        ) from None
    pending = iter(messages)

    async def replay() -> Message:
        return next(pending, None) or await receive()

    return replay
