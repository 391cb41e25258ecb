"""Topics as a plan writes them: public parts of the units, each with answers of its own.

A unit is on one topic of a task for life, and a question is on one. An answer draws from the units of its topic alone,
and is charged to that topic. So a unit pays for the answers on one topic, whatever is asked on the others: all of
them together cost what the dearest costs (docs/privacy/topics.md has the proof).
"""

from abc import abstractmethod
from typing import Annotated, Literal

from pydantic import Field, StringConstraints, model_validator

from accounting.ledger.entries import SEPARATOR
from accounting.plans.labels import check_distinct
from accounting.plans.strict import Strict

MOST_TOPICS = 1000
_TEXT = StringConstraints(min_length=1, max_length=5000, strip_whitespace=True)
_Text = Annotated[str, _TEXT]
TopicName = Annotated[str, StringConstraints(min_length=1, max_length=100, pattern=rf"^[^@{SEPARATOR}\x00-\x1f]+$")]
"""Name of a topic as addresses have it, without @ and #."""


class _Topics(Strict):
    sizes: dict[str, Annotated[int, Field(ge=1, le=10**15)]] = Field(
        default_factory=dict, exclude_if=lambda sizes: not sizes
    )
    """A public number of exemplars by topic, never computed from them. Where it is not written, the knowledge base's
    public size divided by the number of topics."""

    @property
    @abstractmethod
    def all(self) -> tuple[str, ...]:
        """The topics' names, in order."""

    @model_validator(mode="after")
    def _are_distinct(self) -> "_Topics":
        check_distinct("names", self.all, "each topic")
        if unknown := sorted(set(self.sizes) - set(self.all)):
            raise ValueError(f"sizes: {', '.join(unknown)} is not among the topics")
        return self

    def size(self, topic: str, public_size: int) -> int:
        """A topic's public number of exemplars.

        Args:
            topic: name of the topic.
            public_size: public size of the knowledge base.
        """
        return self.sizes.get(topic, max(1, public_size // len(self.all)))


class TopicsByField(_Topics):
    """A field names the topic, of an exemplar and of a question."""

    by: Literal["field"]
    field: str
    """Name of the field. A question brings it, too, whether or not the prompt shows it."""
    names: tuple[TopicName, ...] = Field(min_length=2, max_length=MOST_TOPICS, strict=False)
    """The topics' names, as the field holds them. Exemplars with another value are on no topic."""

    @property
    def all(self) -> tuple[str, ...]:
        """The topics' names, in order."""
        return self.names


class TopicsBySimilarity(_Topics):
    """The topic is the public description that is most similar."""

    by: Literal["similarity"]
    names: dict[TopicName, _Text] = Field(min_length=2, max_length=MOST_TOPICS)
    """A public description of each topic, or some words."""

    @property
    def all(self) -> tuple[str, ...]:
        """The topics' names, in order."""
        return tuple(self.names)


class TopicsByTexts(_Topics):
    """The topic is the nearest of some centres of public texts, which are found once, when the plan is prepared."""

    by: Literal["public_texts"]
    number: int = Field(ge=2, le=MOST_TOPICS)
    """Number of centres; topics are called by their numbers, from 1."""
    texts: tuple[_Text, ...] = Field(min_length=2, max_length=10_000, strict=False)
    """Public texts such as callers ask. They are not exemplars: the centres would give them away."""

    @property
    def all(self) -> tuple[str, ...]:
        """The topics' names, in order."""
        return tuple(str(number) for number in range(1, self.number + 1))

    @model_validator(mode="after")
    def _enough_texts(self) -> "TopicsByTexts":
        if len(set(self.texts)) < self.number:
            raise ValueError(f"texts: needs at least {self.number} different public texts, one for each topic")
        return self


Topics = Annotated[TopicsByField | TopicsBySimilarity | TopicsByTexts, Field(discriminator="by")]
WAYS = ("field", "similarity", "public_texts")
"""Ways to find a topic."""
