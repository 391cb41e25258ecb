"""How the API and the dashboard answered, counted by status, for Prometheus.

Each replica counts its own responses, from 0 when it starts, under a name of its own: a scrape shows the replica that
it reached, and Prometheus adds them up.
"""

import os
from collections import Counter
from threading import Lock

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.gateway.telemetry.routes import concerns_exemplars, route_pattern
from service.problem_kinds import ProblemKind

_SURFACES = {"/v1/": "api", "/admin/": "dashboard"}
"""What is counted. Who asks for health or metrics is no caller, and asks all the time."""

Kind = tuple[str, int, str]
"""Surface, status, and the slug of the problem that the response tells of ('' for none)."""

_WATCHED = (
    ProblemKind.INVALID_KEY,
    ProblemKind.BUSY,
    ProblemKind.INTERNAL_ERROR,
    ProblemKind.ENGINE_UNAVAILABLE,
    ProblemKind.UNUSABLE_REPLY,
)
_FROM_THE_START: tuple[Kind, ...] = (
    *(("api", kind.status, kind.slug) for kind in _WATCHED),
    ("dashboard", 401, ""),
    ("dashboard", 429, ""),
)
"""Told as 0 before they happen: Prometheus sees no increase in a counter that begins at its first event."""


class Responses:
    """Counts of one replica.

    Attributes:
        replica: its name among all replicas, drawn at random.
    """

    def __init__(self) -> None:
        self.replica = os.urandom(4).hex()
        self._lock = Lock()
        self._counts: Counter[Kind] = Counter()

    def note(self, kind: Kind) -> None:
        """Count one response."""
        with self._lock:
            self._counts[kind] += 1

    def counts(self) -> dict[Kind, int]:
        """Responses since the replica started."""
        with self._lock:
            return dict(sorted((dict.fromkeys(_FROM_THE_START, 0) | self._counts).items()))


class Counted:
    """An ASGI middleware around everything that answers."""

    def __init__(self, app: ASGIApp, *, responses: Responses) -> None:
        self._app = app
        self._responses = responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path = scope.get("path", "")
        surface = next((name for prefix, name in _SURFACES.items() if path.startswith(prefix)), None)
        if scope["type"] != "http" or surface is None:
            await self._app(scope, receive, send)
            return

        async def noted_send(message: Message) -> None:
            # How uploads and deletions end depends on what is stored; that a key is wrong does not.
            if message["type"] == "http.response.start" and (
                message["status"] == 401 or not concerns_exemplars(route_pattern(scope))
            ):
                self._responses.note((surface, message["status"], scope.get("state", {}).get("problem", "")))
            await send(message)

        await self._app(scope, receive, noted_send)
