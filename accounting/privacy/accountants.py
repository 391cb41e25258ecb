"""The accountants by name, and a comparison in which they check each other.

All of them bound the same thing, so their answers must not contradict each other. A contradiction means that one of
them is wrong, and nothing may be promised until it is known which.
"""

import math
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Literal, get_args

from accounting.privacy.bounds import Accountant, EpsilonBounds, UnsupportedEventsError
from accounting.privacy.events import Event
from accounting.privacy.pairs import certain_loss

AccountantName = Literal["pld", "prv", "rdp"]
ACCOUNTANTS: tuple[AccountantName, ...] = get_args(AccountantName)
"""Names of the accountants in plans."""

# PRV and PLD compute the same quantity by different numerics.
_PRV_PLD_TOLERANCE = 0.02
# PLD's δ at its own ε, over the δ it was asked for; grids differ a little.
_INVERSE_TOLERANCE = 1.5


class AccountantsDisagreeError(RuntimeError):
    """Two accountants contradict each other about the same events."""


@cache
def get_accountant(name: str) -> Accountant:
    """The accountant that plans call ``name``.

    Raises:
        ValueError: there is none; the message lists those there are.
    """
    match name:  # Imported here: their libraries take most of a second, and most commands and replicas need none.
        case "pld":
            from accounting.privacy.pld import PldAccountant

            return PldAccountant()
        case "prv":
            from accounting.privacy.prv import PrvAccountant

            return PrvAccountant()
        case "rdp":
            from accounting.privacy.rdp import RdpAccountant

            return RdpAccountant()
    raise ValueError(f"there is no accountant {name!r}; choose one of {', '.join(ACCOUNTANTS)}")


def get_shared_accountant(name: str, events: Sequence[Event], epsilon: float, delta: float) -> Accountant:
    """The accountant of that name, to bound many plans that are like one another; sooner, if it is PLD.

    Args:
        name: name of the accountant.
        events: a plan of the kind.
        epsilon: about its ε.
        delta: δ at which plans are bounded.
    """
    if name != "pld":
        return get_accountant(name)
    from accounting.privacy.pld import SharedPldAccountant

    return SharedPldAccountant(events, epsilon, delta)


def compare(events: Sequence[Event], delta: float) -> dict[str, EpsilonBounds]:
    """The bounds of every accountant that supports the events at this delta, by its name.

    They are compared at ``delta``, and at a δ that certain losses alone exceed, where none may know a finite ε: a loss
    that counts once per answer moves ε so little that it must be looked for. PLD is also asked back.

    Args:
        events: events that are composed.
        delta: δ at which to compare.

    Raises:
        AccountantsDisagreeError: they contradict each other.
    """
    found = _bounds(events, delta)
    require_agreement(found)
    lost = certain_loss(events)
    if lost > 0:
        require_agreement(_bounds(events, 0.99 * lost))
    _require_inverse(events, delta, found["pld"].upper)
    return found


def require_agreement(found: Mapping[str, EpsilonBounds]) -> None:
    """Raise :class:`AccountantsDisagreeError` if bounds of the same events contradict each other."""
    for one, its in found.items():
        for other, others in found.items():
            if its.upper < others.lower:
                raise AccountantsDisagreeError(
                    f"{one} bounds epsilon by {its.upper:.6g}, {other} finds at least "
                    f"{others.lower:.6g}; do not use this plan, and report it"
                )
    if "pld" in found and "prv" in found:
        pld, prv = found["pld"].upper, found["prv"]
        apart = max(prv.lower - pld, pld - prv.upper)
        if apart > _PRV_PLD_TOLERANCE * pld:
            raise AccountantsDisagreeError(
                f"pld finds epsilon {pld:.6g} and prv {prv.lower:.6g} to {prv.upper:.6g}, more than "
                f"{_PRV_PLD_TOLERANCE:.0%} apart; do not use this plan, and report it"
            )


def _bounds(events: Sequence[Event], delta: float) -> dict[str, EpsilonBounds]:
    found: dict[str, EpsilonBounds] = {}
    for name in ACCOUNTANTS:
        accountant = get_accountant(name)
        if accountant.unsupported(events) is None:
            try:
                found[name] = accountant.bounds(events, delta)
            except UnsupportedEventsError:
                continue  # its numerics do not reach this delta
    return found


def _require_inverse(events: Sequence[Event], delta: float, upper: float) -> None:
    """Whether PLD finds the plan's δ at the ε that it found for it."""
    from accounting.privacy.pld import PldAccountant

    if math.isfinite(upper):
        back = PldAccountant().delta(events, upper)
        if back > _INVERSE_TOLERANCE * delta:
            raise AccountantsDisagreeError(
                f"pld finds an epsilon of at most {upper:.6g} at a delta of {delta:.3g}, and a delta of {back:.3g} "
                "at that epsilon; do not use this plan, and report it"
            )
