"""Base of the models that a plan is made of."""

from pydantic import ConfigDict

from accounting.plans.described import Described


class Strict(Described):
    """Immutable, without unknown keys, without silent conversions."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


def is_unset(value: object) -> bool:
    """Whether a field is left out of what is signed: with ``exclude_if``."""
    return value is None
