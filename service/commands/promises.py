"""A lifetime budget: its numbers, and what makes it a weak promise."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated

from pydantic import Field

from accounting.plan import SMALLEST_DELTA
from service.commands.command import Confirmation, check_confirmed

LARGEST_EPSILON = 10.0
SMALLEST_SIZE = 100

Epsilon = Annotated[float, Field(gt=0, le=1000, description="Lifetime ε: all plans together promise at most this.")]
Delta = Annotated[
    float, Field(ge=SMALLEST_DELTA, lt=1, description="Lifetime δ, well below one over the number of units.")
]
PublicSize = Annotated[
    int,
    Field(
        ge=1,
        le=1_000_000_000,
        description="About how many exemplars it will hold, as a figure you are willing to publish. Sampling "
        "probabilities rest on it; it is never computed from the exemplars.",
    ),
]


def check_promise(epsilon: float, delta: float, public_size: int, confirmed: Collection[Confirmation]) -> None:
    """Whether a lifetime budget is no weak promise, or is meant.

    Raises:
        UnconfirmedError: it is neither.
    """
    check_confirmed(Confirmation.WEAK_PROMISE, weaknesses(epsilon, delta, public_size), confirmed)


def weaknesses(epsilon: float, delta: float, public_size: int) -> list[str]:
    """What is weak about a lifetime budget that can never be changed, a sentence each."""
    weak = []
    if epsilon > LARGEST_EPSILON:
        weak.append(
            f"ε = {epsilon:g} is weak: one person's data may change the odds of anything visible by a factor of "
            f"e^{epsilon:g}. 1 is strong, 8 is common."
        )
    if delta * public_size > 1:
        weak.append(
            f"δ = {delta:g} is weak: publishing a random person's data outright would keep it. Choose far less than "
            f"1/{public_size}."
        )
    if public_size < SMALLEST_SIZE:
        weak.append(
            f"A public size of {public_size} is small: noise that hides one of so few exemplars hides the answers, too."
        )
    return weak
