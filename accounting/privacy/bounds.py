"""What every accountant offers, and what it answers with."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from accounting.privacy.events import Event


@dataclass(frozen=True)
class EpsilonBounds:
    """What may be promised of some events, and what may not.

    Attributes:
        lower: an ε that is surely leaked by mechanisms these events allow; no valid ``upper`` is below.
        upper: an ε that is surely kept by all of them: what may be promised. Infinite if there is none.
    """

    lower: float
    upper: float


class UnsupportedEventsError(ValueError):
    """An accountant was asked about events, or a delta, that it cannot bound; the message says why."""


class Accountant(Protocol):
    """Turns events into guarantees. Events may be asked for in any adaptive and interleaved order."""

    @property
    def name(self) -> str:
        """How plans refer to it."""

    def unsupported(self, events: Sequence[Event]) -> str | None:
        """Why these events cannot be bounded, or None if they can."""

    def bounds(self, events: Sequence[Event], delta: float) -> EpsilonBounds:
        """Bounds of the ε at which the composition of ``events`` is (ε, delta)-DP; ``upper`` may be infinite.

        Raises:
            UnsupportedEventsError: see :meth:`unsupported`.
            ValueError: delta is not in (0, 1).
        """

    def upper(self, events: Sequence[Event], delta: float) -> float:
        """The upper one of :meth:`bounds` alone, which takes less time; raises the same."""

    def delta(self, events: Sequence[Event], epsilon: float) -> float:
        """An upper bound of the δ at which the composition of ``events`` is (epsilon, δ)-DP."""


def require_delta(delta: float) -> None:
    """Raise a ``ValueError`` unless ``delta`` is in (0, 1)."""
    if not 0 < delta < 1:
        raise ValueError(f"delta must be in (0, 1), not {delta}")


def require_epsilon(epsilon: float) -> None:
    """Raise a ``ValueError`` unless ``epsilon`` is at least 0."""
    if not epsilon >= 0:
        raise ValueError(f"epsilon must be at least 0, not {epsilon}")
