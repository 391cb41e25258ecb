"""Holders of charges: processes that show others that they are still at work on what they charged.

A process that has had charges open for a second counts its beats in the database, once a second. A caller of the same
query who watches that number stand still knows, whatever any clock shows, that the process is gone (:class:`Watch`),
and need not wait for the charge's lease to end.

A holder that is only slow, or cut off from the database, loses nothing: the first of two releases stands, and the query
has cost one answer more (:meth:`accounting.ledger.charges.Ledger.release`).
"""

from __future__ import annotations

import threading
import time
import uuid
from typing import TYPE_CHECKING

import sqlalchemy as sa

from accounting.ledger.dialects import insert
from accounting.ledger.tables import holders

if TYPE_CHECKING:
    from accounting.ledger.charges import InFlight

BEAT_S = 1.0
GONE_AFTER_S = 5.0
"""Seconds without a beat after which a holder is taken for dead."""


class Holder:
    """This process, as the holder of its open charges. Thread-safe.

    Args:
        database: the ledger's database.

    Attributes:
        id: name of the process in its charges.
    """

    def __init__(self, database: sa.Engine) -> None:
        self.id = str(uuid.uuid4())
        self._database = database
        self._changed = threading.Condition()
        self._ends: dict[str, float] = {}
        self._thread: threading.Thread | None = None

    def hold(self, charge_id: str, lease_s: float) -> None:
        """Beat for a charge until it is settled, or its lease ends."""
        with self._changed:
            self._ends[charge_id] = time.monotonic() + lease_s
            if self._thread is None:
                self._thread = threading.Thread(target=self._beat, name="holder", daemon=True)
                self._thread.start()

    def settled(self, charge_id: str) -> None:
        """Beat for a charge no more."""
        with self._changed:
            self._ends.pop(charge_id, None)
            self._changed.notify()

    def _beat(self) -> None:
        beats = 0
        while self._holds():
            beats += 1
            count = insert(self._database.dialect.name, holders).values(id=self.id, beats=beats)
            self._write(count.on_conflict_do_update(index_elements=[holders.c.id], set_={"beats": holders.c.beats + 1}))
        if beats:
            self._write(sa.delete(holders).where(holders.c.id == self.id))

    def _holds(self) -> bool:
        """Whether there are open charges, a beat later. If not, the thread is about to end."""
        with self._changed:
            self._changed.wait_for(lambda: not self._ends, BEAT_S)
            now = time.monotonic()
            self._ends = {charge: ends for charge, ends in self._ends.items() if ends > now}
            if not self._ends:
                self._thread = None
            return bool(self._ends)

    def _write(self, statement: sa.Executable) -> None:
        try:
            with self._database.begin() as connection:
                connection.execute(statement)
        except sa.exc.SQLAlchemyError:
            return  # one beat fewer; what the database refuses, the charge's own statements report


class Watch:
    """How long the holder of a query's open charge has not beaten, as one caller sees it who asks again and again."""

    def __init__(self) -> None:
        self._seen: tuple[str, int | None] | None = None
        self._at = 0.0
        self._still_s = 0.0

    def is_gone(self, twin: InFlight) -> bool:
        """Whether the holder is gone, after another look.

        Args:
            twin: the open charge as it is now.
        """
        now, seen = time.monotonic(), (twin.charge_id, twin.beats)
        if seen == self._seen:
            # Where the database did not answer for long, no holder could beat: a look counts as one beat at most.
            self._still_s += min(now - self._at, BEAT_S)
        else:
            self._seen, self._still_s = seen, 0.0
        self._at = now
        return twin.beats is not None and self._still_s >= GONE_AFTER_S
