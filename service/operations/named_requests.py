"""A request that changes something, done once for the name that its caller gives it."""

import asyncio

from accounting.ledger import trail
from service.operations.roles import Actor
from service.records.records import Records
from service.records.requests_once import KEPT, Answered, Attempt

KEPT_DAYS = KEPT.days
"""Number of days for which a name stands for its request."""


class NamedRequest:
    """One attempt at a request with a name.

    Args:
        records: opened records.
        caller: sender of the request.
        name: sender's name for the request, at most 255 characters.
    """

    def __init__(self, records: Records, caller: Actor, name: str) -> None:
        self._requests = records.requests
        self._caller = caller
        self._name = name
        self._attempt: Attempt | None = None

    async def begin(self, content: bytes) -> Answered | None:
        """Begin the request: changes by the calling task from here on are noted as done by it.

        Args:
            content: everything that distinguishes this request from others.

        Returns:
            The response that it had before; None: it was not done before.

        Raises:
            service.records.requests_once.InProgressError: the request is being done.
            service.records.requests_once.DoneBeforeError: the request was done, and its response is not kept.
            accounting.ledger.charges.IdempotencyConflictError: the name stands for another request.
        """
        begun = await asyncio.to_thread(self._requests.begin, self._caller.id, self._name, content)
        if isinstance(begun, Answered):
            return begun
        self._attempt = begun
        trail.beside.set(self._requests.noted(begun))
        return None

    async def keep(self, status: int, body: str) -> None:
        """Keep the response of the request, if it was begun."""
        if self._attempt is not None:
            await asyncio.to_thread(self._requests.keep, self._attempt, status, body)

    async def refused(self) -> None:
        """Forget the request if it was begun and changed nothing, so that it may be sent again."""
        if self._attempt is not None:
            await asyncio.to_thread(self._requests.refused, self._attempt)
