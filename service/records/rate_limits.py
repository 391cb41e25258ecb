"""Rate limits of callers, by the generic cell rate algorithm.

The database keeps one number for each caller: the time when its whole burst will be free again. So replicas share the
limit, and a decision is one statement.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass

import sqlalchemy as sa

from accounting.ledger.dialects import insert
from service.records.tables import rate_limits

CLOCKS_DIFFER_S = 60.0
"""The greatest difference between replicas' clocks that is allowed for."""


@dataclass(frozen=True)
class Rate:
    """The requests that a caller may still send.

    Attributes:
        left: requests it may send at once.
        full_in_s: seconds until it may send a whole burst again.
        wait_s: seconds until its next request, if this one is refused; None if it is not.
    """

    left: int
    full_in_s: float
    wait_s: float | None


class RateLimits:
    """Rate limits in the database.

    Args:
        database: a database from :func:`service.records.database.open_database`.
        clock: a function that returns Unix time in seconds.
    """

    def __init__(self, database: sa.Engine, *, clock: Callable[[], float] = time.time) -> None:
        self._database = database
        self._clock = clock

    def take(self, name: str, per_minute: float, burst: int | None = None) -> Rate:
        """Count one request, unless it comes too soon.

        Args:
            name: name of the caller and of what it asks for, at most 300 characters.
            per_minute: number of requests a minute in the long run.
            burst: number of requests at once; those of a minute unless given.
        """
        interval = 60 / per_minute
        capacity = interval * (max(1, round(per_minute)) if burst is None else burst)
        now = self._clock()
        # No caller uses up more than a burst: a time far beyond was written while a clock was wrong.
        used = sa.and_(rate_limits.c.free_at > now, rate_limits.c.free_at <= now + capacity + CLOCKS_DIFFER_S)
        with self._database.begin() as connection:
            begins = sa.case((used, rate_limits.c.free_at), else_=now)
            taken = connection.execute(
                insert(connection.dialect.name, rate_limits)
                .values(name=name, free_at=now + interval)
                .on_conflict_do_update(
                    index_elements=[rate_limits.c.name],
                    set_={"free_at": begins + interval},
                    where=begins + interval <= now + capacity,
                )
                .returning(rate_limits.c.free_at)
            ).scalar_one_or_none()
            if taken is not None:
                return Rate(int((now + capacity - taken) / interval), taken - now, None)
            free_at = connection.execute(
                sa.select(rate_limits.c.free_at).where(rate_limits.c.name == name)
            ).scalar_one()
            return Rate(0, free_at - now, free_at + interval - capacity - now)

    def forget_idle(self) -> None:
        """Delete the rows of callers whose whole burst is free again: a new row would be equal."""
        with self._database.begin() as connection:
            connection.execute(sa.delete(rate_limits).where(rate_limits.c.free_at <= self._clock()))
