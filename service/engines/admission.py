"""How much work an engine takes on. What is counted is public: being told to come back must tell of no sample."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from service.engines import EngineBusyError, TaskSpec


class Admission:
    """Counts prompts in flight as plans announce them, whatever the samples came to.

    Args:
        limit: from so many on, new queries are refused.
    """

    def __init__(self, limit: int):
        self._limit = limit
        self.in_flight = 0

    @contextmanager
    def probe(self, task: TaskSpec) -> Iterator[None]:
        """Carry a query's prompts without exemplars.

        Raises:
            service.engines.EngineBusyError: there is too much in flight already.
        """
        if self.in_flight >= self._limit:
            raise EngineBusyError("the engine has as many prompts in flight as it takes on")
        with self._carry(max(task.candidates, 1)):
            yield

    @contextmanager
    def slots(self, task: TaskSpec) -> Iterator[None]:
        """Carry a query's slots; never refused, since they are paid for."""
        with self._carry(task.ensemble):
            yield

    @contextmanager
    def _carry(self, prompts: int) -> Iterator[None]:
        self.in_flight += prompts
        try:
            yield
        finally:
            self.in_flight -= prompts
