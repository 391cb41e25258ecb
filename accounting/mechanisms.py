"""Mechanisms as a plan writes them: their parameters, and which profiles calibration chooses their noise from.

This is all that a plan needs to be read and signed. What answers with a mechanism and describes it is the service's
(``service/pipeline/mechanisms``), which this package does not import.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, ClassVar, Literal, Self, Union, get_args

from pydantic import Field, GetCoreSchemaHandler, model_validator
from pydantic_core import CoreSchema

from accounting.privacy.calibration import BoundedRangeFamily, Family, GaussianFamily, ProposeTestReleaseFamily
from accounting.strict import Strict

LARGEST_DELTA0 = 0.1
"""A test that passes more often than this where it must not is none."""


class Mechanism(Strict):
    """A mechanism with its parameters.

    Attributes:
        kind: of the tasks that may have it.
    """

    kind: ClassVar[str]
    type: str

    @abstractmethod
    def family(self, delta: float, draws: float) -> Family:
        """What calibration chooses this mechanism's noise from.

        Args:
            delta: the task's part of the plan's δ.
            draws: how often a unit is expected to be drawn, in all of the task's answers.
        """

    def __str__(self) -> str:
        """The mechanism and its parameters, in a few words."""
        return ", ".join([self.type, *(f"{name} {value}" for name, value in self if name != "type")])


class LabelMechanism(Mechanism):
    """One that releases a label."""

    kind = "classify"


class TextMechanism(Mechanism):
    """One that releases a text."""

    kind = "generate"


class RnmGaussianMechanism(LabelMechanism):
    """Report noisy max: one label leaves, the one with the most votes after Gaussian noise."""

    type: Literal["rnm_gaussian"]
    vote: Literal["hard", "soft"] = "hard"
    """Whether a slot votes for its likeliest label, or for each label with its probability."""
    prior_weight: float = Field(default=0.0, ge=0, le=1e6)
    """How many votes the public zero-shot probabilities count for; costs nothing."""

    def family(self, delta: float, draws: float) -> GaussianFamily:
        """See :class:`Mechanism`."""
        return GaussianFamily()


class EmbeddingMeanMechanism(TextMechanism):
    """The public candidate nearest to the noisy sum of the slots' sentence embeddings leaves."""

    type: Literal["embedding_mean"]
    radius: float = Field(default=1.0, gt=0, le=2)
    """Embeddings are clipped to this norm, and the noise is in proportion to it; 1 clips nothing."""
    centred: bool = False
    """Whether embeddings are measured from the mean of the candidates, so that a radius below 1 loses little."""

    def family(self, delta: float, draws: float) -> GaussianFamily:
        """See :class:`Mechanism`."""
        return GaussianFamily()

    def __str__(self) -> str:
        return f"embedding_mean{', centred' if self.centred else ''}, radius {self.radius:g}"


class KeywordJointEmMechanism(TextMechanism):
    """The joint exponential mechanism: an ordered sequence of k words of a public domain leaves."""

    type: Literal["keyword_joint_em"]
    k: int = Field(ge=1, le=100)
    """How many words leave."""
    typical_domain: int = Field(default=100, ge=1, le=1_000_000)
    """A public guess of how many words the query and the zero-shot answers have together, for the preview only."""

    @model_validator(mode="after")
    def _domain_holds_k(self) -> Self:
        if self.typical_domain < self.k:
            raise ValueError(f"typical_domain: {self.k} words cannot come from a domain of {self.typical_domain}")
        return self

    def family(self, delta: float, draws: float) -> BoundedRangeFamily:
        """See :class:`Mechanism`."""
        return BoundedRangeFamily()

    def __str__(self) -> str:
        return f"keyword_joint_em, k = {self.k}"


class KeywordPtrMechanism(TextMechanism):
    """Propose-test-release: the k most frequent words leave if they stand out, else the zero-shot answer."""

    type: Literal["keyword_ptr"]
    k_min: int = Field(ge=1, le=100)
    """Fewest words that may leave."""
    k_max: int = Field(ge=1, le=100)
    """Most words that may leave."""
    choice_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of an answer's cost that goes to choosing k; the test gets the rest."""
    delta_share: float = Field(default=0.5, gt=0, lt=1)
    """Share of the task's part of δ that its tests may fail with, all answers together."""

    @model_validator(mode="after")
    def _is_a_range(self) -> Self:
        if self.k_min > self.k_max:
            raise ValueError("k_min: must be at most k_max")
        return self

    def family(self, delta: float, draws: float) -> ProposeTestReleaseFamily:
        """See :class:`Mechanism`."""
        return ProposeTestReleaseFamily(min(self.delta_share * delta / draws, LARGEST_DELTA0), self.choice_share)

    def __str__(self) -> str:
        return f"keyword_ptr, k = {self.k_min} to {self.k_max}"


def type_of(mechanism: type[Mechanism]) -> str:
    """What ``mechanism.type`` says in a plan."""
    (written,) = get_args(mechanism.model_fields["type"].annotation)
    return str(written)


MECHANISMS: dict[str, type[Mechanism]] = {
    type_of(known): known
    for known in (RnmGaussianMechanism, EmbeddingMeanMechanism, KeywordJointEmMechanism, KeywordPtrMechanism)
}
"""By type; :func:`accounting.plan.register` adds to them."""


def types_of(kind: str) -> list[str]:
    """The types that a task of this kind may name."""
    return [written for written, known in MECHANISMS.items() if known.kind == kind]


class Registered:
    """Marks a field that holds one of :data:`MECHANISMS`, as its annotation's subclass: told apart by their types."""

    def __get_pydantic_core_schema__(self, source: type[Mechanism], handler: GetCoreSchemaHandler) -> CoreSchema:
        known = tuple(one for one in MECHANISMS.values() if issubclass(one, source))
        union: Any = Union[known]  # noqa: UP007  (of a tuple)
        return handler.generate_schema(Annotated[union, Field(discriminator="type")] if len(known) > 1 else union)
