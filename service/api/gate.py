"""The outermost layer of the API: names requests, tells limits, bounds bodies, and lets no exception out.

A plain ASGI middleware. What it catches is answered with a problem document and logged by its kind alone: the servers
around it would print a traceback, and with it perhaps private text.
"""

from __future__ import annotations

import uuid

import structlog
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.api.problems import Problem

log = structlog.get_logger()

MAX_BODY_BYTES = 256 * 1024
_BULK = ("/exemplars", "/plans")
"""Endpoints that read their body themselves, up to limits of their own, after authentication."""


class Gate:
    """Wraps the application."""

    def __init__(self, app: ASGIApp):
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        name = uuid.uuid4().hex
        started = False

        async def named_send(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                limits = scope.get("state", {}).get("limits", ())
                message["headers"] = [*message.get("headers", ()), (b"x-request-id", name.encode()), *limits]
            await send(message)

        with structlog.contextvars.bound_contextvars(request=name):
            try:
                if "\0" in scope["path"]:
                    raise Problem(400, "bad-address", "the address contains a NUL character")
                if not scope["path"].endswith(_BULK):
                    receive = await _bounded(receive)
                await self._app(scope, receive, named_send)
            except Problem as problem:
                await problem.response()(scope, receive, named_send)
            except Exception as error:
                log.error("unexpected", route=_route(scope), error=type(error).__name__)
                if not started:
                    await Problem(500, "internal-error", _FAILED).response()(scope, receive, named_send)


_FAILED = "the service failed; if this was a question, asking it again is free should it have been answered"


def _route(scope: Scope) -> str:
    """The address's pattern: the address itself may name a unit."""
    return str(getattr(scope.get("route"), "path", "?"))


async def _bounded(receive: Receive) -> Receive:
    """The body read up to the limit, to be received again.

    Raises:
        Problem: 413, the body is larger.
    """
    messages: list[Message] = []
    size = 0
    while True:
        message = await receive()
        messages.append(message)
        size += len(message.get("body", b""))
        if size > MAX_BODY_BYTES:
            raise Problem(413, "body-too-large", f"the body of this request is at most {MAX_BODY_BYTES} bytes")
        if message["type"] != "http.request" or not message.get("more_body", False):
            break
    pending = iter(messages)

    async def replay() -> Message:
        return next(pending, None) or await receive()

    return replay
