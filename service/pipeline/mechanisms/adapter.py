"""What the service has to know of a mechanism: how it answers, what an admin is told of it, where a trial finds it.

An :class:`Adapter` is made of a signed task and its noise. From public things only it makes an :class:`Aggregator`
ready for a query, and refuses what cannot be answered while the charge can still be voided. The aggregator's
``release`` then sees the slots' outputs. From there nothing fails: an unusable output abstains.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar

import accounting.plan
from accounting.mechanisms import Mechanism
from accounting.plan import TaskNoise
from accounting.privacy.profiles import SymmetricProfile
from accounting.tasks import ClassifyTask, GenerateTask
from service.embedding.embedder import TextEmbedder
from service.engines.protocol import Embedded, Output, Sentence, ZeroShot
from service.pipeline.mechanisms.outlook import Outlook
from service.pipeline.queries import InvalidQueryError

Outputs = Sequence[Output | None]
Answer = Mapping[str, str | bool | float | Sequence[str] | Mapping[str, float]]
"""What leaves: ``label``, where a posterior decides with its ``probability`` and the ``probabilities`` of all; or
``text`` with ``method``, and where there are such, ``keywords`` and ``fallback``."""

Reconstruct = Callable[[Sequence[str], bool], Awaitable[Sentence]]
"""Released words, and whether they are ranked, to a sentence; never raises."""

M = TypeVar("M", bound=Mechanism)
P = TypeVar("P", bound=SymmetricProfile)


class Aggregator(Protocol):
    """A mechanism, ready for one query."""

    async def release(self, outputs: Outputs) -> Answer:
        """Release one answer, with noise; one output per slot, None for an abstention."""


@dataclass(frozen=True)
class Public:
    """What a mechanism is made ready with for a query; none of it has seen an exemplar.

    Attributes:
        query: its fields.
        zero_shot: the engine's public output.
        embedder: for candidates and outputs.
        reconstruct: makes a sentence of released words.
    """

    query: Mapping[str, str]
    zero_shot: ZeroShot
    embedder: TextEmbedder
    reconstruct: Reconstruct


class Adapter(ABC, Generic[M, P]):
    """A task's mechanism, with its noise.

    Attributes:
        schema: the mechanism as plans write it.
        profile: what its noise is calibrated as.
        noiseless: ``module:function`` of its noiseless answer, for trials; a name, for nothing here may import it.
        example: sensible parameters, to begin a plan with and to compare other mechanisms with.
        about: what leaves, a sentence for people.

    Args:
        task: as signed.
        noise: what calibration decided for it.

    Raises:
        TypeError: such noise is not this mechanism's.
    """

    schema: type[M]
    profile: type[P]
    noiseless: str
    example: M
    about: str
    task: Any  # of the kind that may have such a mechanism; each kind's adapter says which

    def __init__(self, task: ClassifyTask | GenerateTask, noise: TaskNoise):
        written, profile = task.mechanism, noise.mechanism
        if not (isinstance(written, self.schema) and isinstance(profile, self.profile)):
            raise TypeError(f"{written.type} is not released with {profile}")
        self.task, self.written, self.noise = task, written, profile

    @abstractmethod
    async def prepare(self, public: Public) -> Aggregator:
        """The mechanism, ready for a query.

        Raises:
            InvalidQueryError: there is too little to choose from.
            ValueError: the engine's zero-shot output is unusable.
        """

    @abstractmethod
    def outlook(self) -> Outlook:
        """What a good release takes."""

    @property
    @abstractmethod
    def public_calls(self) -> int:
        """Engine calls of an answer that show no exemplar."""


class LabelAdapter(Adapter[M, P]):
    """Of a mechanism that releases a label."""

    task: ClassifyTask

    @property
    def public_calls(self) -> int:
        """See :class:`Adapter`: the zero-shot one."""
        return 1


class TextAdapter(Adapter[M, P]):
    """Of a mechanism that releases a text.

    Attributes:
        reconstructs: whether the engine makes the text of released words.
    """

    task: GenerateTask
    reconstructs = False

    @property
    def public_calls(self) -> int:
        """See :class:`Adapter`: one for each candidate, and one for the sentence."""
        return self.task.candidates + self.reconstructs

    def candidates(self, zero_shot: ZeroShot) -> list[str]:
        """The public answers, at least one.

        Raises:
            InvalidQueryError: there is none.
        """
        candidates = [text.strip() for text in zero_shot.texts[: self.task.candidates] if text.strip()]
        if not candidates:
            raise InvalidQueryError(
                "no zero-shot answer to choose from: an admin can list public_answers in the plan or name the "
                "document_field, or use an engine that writes text"
            )
        return candidates


ADAPTERS: dict[type[Mechanism], type[Adapter[Any, Any]]] = {}
"""By the mechanism as plans write it."""


def register(adapter: type[Adapter[Any, Any]]) -> None:
    """Make a mechanism known: plans may name it from now on, and the service answers with it.

    Raises:
        ValueError: there is another of its type.
    """
    accounting.plan.register(adapter.schema)
    ADAPTERS[adapter.schema] = adapter


def adapter_of(task: ClassifyTask | GenerateTask, noise: TaskNoise) -> Adapter[Any, Any]:
    """A signed task's adapter."""
    return ADAPTERS[type(task.mechanism)](task, noise)


def said(output: Output | None) -> str | None:
    """What an output says, if it is a text with something in it."""
    text = output.text if isinstance(output, Embedded) else output
    return text if isinstance(text, str) and text.strip() else None
