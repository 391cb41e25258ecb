"""Events that happened, or are planned: mechanisms run on samples, a number of times each.

Events do not carry their cost; accountants compute it.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Literal

from accounting.privacy.profiles import SymmetricProfile


@dataclass(frozen=True)
class Sampling:
    """The sampling of an answer's exemplars.

    Args:
        kind: ``units`` draws each privacy unit independently; ``blocks`` draws fixed blocks of units, each whole.
        probability: probability of one unit, or one block, to be drawn.

    Raises:
        ValueError: the kind is unknown, or the probability is not in (0, 1].
    """

    kind: Literal["units", "blocks"]
    probability: float

    def __post_init__(self) -> None:
        if self.kind not in ("units", "blocks"):
            raise ValueError(f"sampling must be 'units' or 'blocks', not {self.kind!r}")
        if not 0 < self.probability <= 1:
            raise ValueError(
                f"the sampling probability must be in (0, 1], not {self.probability}; it is shots x ensemble / "
                "public size, so lower the shots or the ensemble, or use a larger knowledge base"
            )


@dataclass(frozen=True)
class Event:
    """``count`` answers of one mechanism, each on its own sample.

    Raises:
        ValueError: the count is not a whole number of at least 0.
    """

    mechanism: SymmetricProfile
    sampling: Sampling
    count: int = 1

    def __post_init__(self) -> None:
        if isinstance(self.count, bool) or not isinstance(self.count, int) or self.count < 0:
            raise ValueError(f"count must be a whole number of at least 0, not {self.count!r}")


def merge(events: Iterable[Event]) -> list[Event]:
    """The same answers with equal events counted together, and without those that were never given."""
    counts: dict[Event, int] = {}
    for event in events:
        mechanism, count = event.mechanism, event.count
        if event.sampling.probability == 1:
            mechanism, count = mechanism.unsampled(count)
        single = replace(event, mechanism=mechanism, count=1)
        counts[single] = counts.get(single, 0) + count
    return [replace(single, count=count) for single, count in counts.items() if count]
