"""Repeated checks that the audit trail's chain is still whole, a bounded number of events at a time.

A process that stays remembers how far it has checked and the hash it found there, which an attacker who rewrites the
database can reach: so it also notices when what it has checked is rewritten from some event on, or cut off, and made
consistent again. Whether the ledger kept its plans is for a replay to find (:mod:`accounting.replay.trail`).
"""

from dataclasses import dataclass
from threading import Lock

from accounting.ledger.trail import START, AuditTrail


@dataclass(frozen=True)
class Checked:
    """The checked part of a trail.

    Attributes:
        events: number of events, from the first on, that are as they were written.
        broken: whether the next one is not, or one of these was changed since.
    """

    events: int
    broken: bool


class ChainCheck:
    """Checks a trail from its first event on.

    Args:
        trail: trail to check.
    """

    def __init__(self, trail: AuditTrail) -> None:
        self._trail = trail
        self._lock = Lock()
        self._last = START
        self._broken = False

    def advance(self, limit: int) -> Checked:
        """Check the newest event checked so far once more, and at most ``limit`` events after it.

        A break is remembered for as long as the process lives, and nothing after it is looked at.
        """
        with self._lock:
            if not self._broken:
                following = self._trail.following(self._last, limit)
                self._broken = following is None
                for event in following or ():
                    if not event.continues(self._last):
                        self._broken = True
                        break
                    self._last = event.mark
            return Checked(self._last.sequence, self._broken)
