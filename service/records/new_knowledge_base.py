"""A knowledge base, cohort or group to make, as REST and the dashboard read it."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from accounting.plan import SMALLEST_DELTA
from exemplar_store import default_response_field

REMOTE_ENGINE = (
    "Whether exemplars may be shown, in clear text, to a language model outside the deployment. Privacy towards that "
    "one is not what the budget is about."
)


_NAME = "[a-z0-9][a-z0-9_-]{0,63}"
NAME, SCOPE = rf"^{_NAME}$", rf"^{_NAME}(\.{_NAME})?$"
LARGEST_EPSILON = 10.0
SMALLEST_SIZE = 100


class WeakPromiseError(ValueError):
    """The lifetime budget protects hardly anyone, and nobody said that this is meant."""


def weaknesses(epsilon: float, delta: float, public_size: int) -> list[str]:
    """What is weak about a lifetime budget that can never be changed, a sentence each."""
    found = []
    if epsilon > LARGEST_EPSILON:
        found.append(
            f"ε = {epsilon:g} is weak: one person's data may change the odds of anything visible by a factor of "
            f"e^{epsilon:g}. 1 is strong, 8 is common."
        )
    if delta * public_size > 1:
        found.append(
            f"δ = {delta:g} is weak: publishing a random person's data outright would keep it. Choose far less than "
            f"1/{public_size}."
        )
    if public_size < SMALLEST_SIZE:
        found.append(
            f"A public size of {public_size} is small: noise that hides one of so few exemplars hides the answers, too."
        )
    return found


def check_promise(epsilon: float, delta: float, public_size: int, *, accepted: bool) -> None:
    """Whether a budget may be given for life without another question.

    Args:
        epsilon: of the lifetime budget.
        delta: of the lifetime budget.
        public_size: see :class:`NewKnowledgeBase`.
        accepted: whether whoever gives it knows its weaknesses.

    Raises:
        WeakPromiseError: names them.
    """
    if not accepted and (found := weaknesses(epsilon, delta, public_size)):
        raise WeakPromiseError(" ".join(found))


class NewCohort(BaseModel):
    """A cohort to open."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"epsilon": 8, "delta": 1e-4, "public_size": 600}]}
    )
    epsilon: float = Field(gt=0, le=1000, description="Lifetime ε: all plans that name it together promise at most it.")
    delta: float = Field(ge=SMALLEST_DELTA, lt=1, description="Lifetime δ, well below one over the number of units.")
    public_size: int = Field(
        ge=1,
        le=1_000_000_000,
        description="About how many exemplars it will hold, as a figure you are willing to publish.",
    )


class NewGroup(BaseModel):
    """A group to make."""

    model_config = ConfigDict(
        extra="forbid", strict=True, json_schema_extra={"examples": [{"name": "care", "epsilon": 10, "delta": 1e-4}]}
    )
    name: str = Field(pattern=NAME, description="Small letters, digits, - and _.")
    epsilon: float = Field(gt=0, le=1000, description="Lifetime ε of whoever is in all of its knowledge bases.")
    delta: float = Field(ge=SMALLEST_DELTA, lt=1, description="Lifetime δ of whoever is in all of them.")


class NewKnowledgeBase(BaseModel):
    """A knowledge base to create."""

    model_config = ConfigDict(
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"name": "support", "epsilon": 8, "delta": 1e-4, "public_size": 600}]},
    )
    name: str = Field(pattern=NAME, description="Small letters, digits, - and _.")
    epsilon: float = Field(gt=0, le=1000, description="Lifetime ε: all plans together promise at most this.")
    delta: float = Field(ge=SMALLEST_DELTA, lt=1, description="Lifetime δ, well below one over the number of units.")
    public_size: int = Field(
        ge=1,
        le=1_000_000_000,
        description="About how many exemplars it will hold, as a figure you are willing to publish. Sampling "
        "probabilities rest on it; it is never computed from the exemplars.",
    )
    fields: list[str] = Field(default=["text", "label"], description="An exemplar's fields.")
    embedded_field: str = Field(default="text", description="The field by which exemplars and queries are compared.")
    response_field: str | None = Field(
        default=None,
        description="The field that answers in words are taken from. It is embedded at ingest, too: ingest takes twice "
        "as long, such answers of `nearest_exemplar` a fraction. Left out: `response`, if that is a field beside the "
        "embedded one. Null: none.",
    )
    remote_engine: bool = Field(default=False, description=REMOTE_ENGINE)

    @model_validator(mode="after")
    def _default_response_field(self) -> Self:
        if "response_field" not in self.model_fields_set:
            self.response_field = default_response_field(self.fields, self.embedded_field)
        return self
