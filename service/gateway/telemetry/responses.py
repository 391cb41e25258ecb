"""Responses of the API and the dashboard, counted by status, for Prometheus.

Each replica counts its own responses, from 0 when it starts, under a name of its own: a scrape shows the replica that
it reached, and Prometheus adds them up.
"""

import os
from collections import Counter
from threading import Lock

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from service.gateway.paths import inner_path
from service.gateway.telemetry.routes import concerns_exemplars, route_pattern
from service.problem_kinds import ProblemKind

_SURFACES = {"/v1/": "api", "/admin/": "dashboard"}
"""Surface by beginning of the path; other paths are not counted. Probes of health and metrics are not callers, and
frequent."""

Kind = tuple[str, int, str]
"""Tuple (surface, HTTP status, slug of the problem that the response reports, empty for none)."""

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
"""Reported as 0 before they happen: Prometheus sees no increase in a counter that begins at its first event."""


class Responses:
    """Counts of one replica.

    Attributes:
        replica: name of the replica among all replicas, drawn at random.
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
        """Numbers of responses since the replica started."""
        with self._lock:
            return dict(sorted((dict.fromkeys(_FROM_THE_START, 0) | self._counts).items()))


class Counted:
    """An ASGI middleware that counts responses."""

    def __init__(self, app: ASGIApp, *, responses: Responses) -> None:
        self._app = app
        self._responses = responses

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        path = inner_path(scope) if scope["type"] == "http" else ""
        surface = next((name for prefix, name in _SURFACES.items() if path.startswith(prefix)), None)
        if surface is None:
            await self._app(scope, receive, send)
            return

        async def noted_send(message: Message) -> None:
            # The result of an upload or a deletion depends on what is stored; the refusal of a key does not.
            if message["type"] == "http.response.start" and (
                message["status"] == 401 or not concerns_exemplars(route_pattern(scope))
            ):
                self._responses.note((surface, message["status"], scope.get("state", {}).get("problem", "")))
            await send(message)

        await self._app(scope, receive, noted_send)
