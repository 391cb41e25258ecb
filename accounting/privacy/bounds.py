"""The interface of every accountant, and its answers."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass

from accounting.privacy.events import Event
from accounting.privacy.pairs import lower_epsilon


@dataclass(frozen=True)
class EpsilonBounds:
    """Bounds of the ε of some events: ``upper`` may be promised, less than ``lower`` may not.

    Attributes:
        lower: an ε that is surely leaked by mechanisms these events allow; no valid ``upper`` is below.
        upper: an ε that is surely kept by all of them: what may be promised. Infinite if there is none.
    """

    lower: float
    upper: float


class UnsupportedEventsError(ValueError):
    """An accountant was asked about events, or a delta, that it cannot bound; the message gives the reason."""


class Accountant(ABC):
    """Turns events into guarantees. Events may be asked for in any adaptive and interleaved order."""

    def unsupported(self, events: Sequence[Event]) -> str | None:
        """Reason why these events cannot be bounded, or None if they can. By default, all can."""
        return None

    def bounds(self, events: Sequence[Event], delta: float) -> EpsilonBounds:
        """Bounds of the ε at which the composition of ``events`` is (ε, delta)-DP; ``upper`` may be infinite.

        ``lower`` is that of :mod:`accounting.privacy.pairs` by default.

        Raises:
            UnsupportedEventsError: see :meth:`unsupported`.
            ValueError: delta is not in (0, 1).
        """
        return EpsilonBounds(lower_epsilon(events, delta), self.upper(events, delta))

    @abstractmethod
    def upper(self, events: Sequence[Event], delta: float) -> float:
        """The upper one of :meth:`bounds` alone, which takes less time; raises the same."""
