"""How the API and the dashboard answered, counted by status, for Prometheus.

The counts are in the database, like everything else that the metrics tell: whichever replica a scrape reaches, it tells
of all. Each replica counts in memory and adds what is new every few seconds, so counting costs no answer anything; a
replica that is killed takes its last seconds' counts with it.
"""

import asyncio
from collections import Counter
from contextlib import suppress
from threading import Lock

import sqlalchemy as sa
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from accounting.ledger.dialects import insert, reading
from service.problem_kinds import ProblemKind
from service.records.tables import http_responses
from service.telemetry.routes import concerns_exemplars, route_pattern

_STORED_EVERY_S = 5.0
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
    """Counts of all replicas.

    Args:
        database: from :func:`service.records.database.open_database`.
    """

    def __init__(self, database: sa.Engine) -> None:
        self._database = database
        self._lock = Lock()
        self._new: Counter[Kind] = Counter()

    def note(self, kind: Kind) -> None:
        """Count one response."""
        with self._lock:
            self._new[kind] += 1

    def store(self) -> None:
        """Add to the database what this replica has counted since the last time.

        Raises:
            sqlalchemy.exc.SQLAlchemyError: it could not; the counts are kept for the next time.
        """
        with self._lock:
            new, self._new = self._new, Counter()
        if not new:
            return
        rows = [  # in one order, so that replicas cannot wait for each other in a circle
            {"surface": surface, "status": status, "problem": problem, "times": times}
            for (surface, status, problem), times in sorted(new.items())
        ]
        adding = insert(self._database.dialect.name, http_responses)
        adding = adding.on_conflict_do_update(
            index_elements=list(http_responses.primary_key),
            set_={"times": http_responses.c.times + adding.excluded.times},
        )
        try:
            with self._database.begin() as connection:
                connection.execute(adding, rows)
        except sa.exc.SQLAlchemyError:
            with self._lock:
                self._new.update(new)
            raise

    async def keep_storing(self) -> None:
        """Store every few seconds, until cancelled; what a database that is away cannot take waits until it can."""
        while True:
            await asyncio.sleep(_STORED_EVERY_S)
            with suppress(sa.exc.SQLAlchemyError):
                await asyncio.to_thread(self.store)

    def counts(self) -> dict[Kind, int]:
        """What was counted by all replicas, ever; of the others without their last seconds."""
        self.store()
        with reading(self._database) as connection:
            rows = connection.execute(sa.select(http_responses))
            counted = {(row.surface, row.status, row.problem): int(row.times) for row in rows}
        return dict(sorted((dict.fromkeys(_FROM_THE_START, 0) | counted).items()))


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
