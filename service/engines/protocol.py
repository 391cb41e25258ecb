"""Engines: what turns slots of private exemplars and a query into one output per slot.

The pipeline knows engines only by the :class:`Engine` protocol. The part of the privacy contract an engine carries is
*isolation*: what a slot contributes depends on that slot's exemplars, the query and public things, and on nothing
else, be it through batch numerics, caches, shared random streams or failures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import numpy as np

from service.engines.task import Output, Sentence, TaskSpec, ZeroShot

if TYPE_CHECKING:
    from exemplar_store import Slot


@dataclass(frozen=True)
class EngineInfo:
    """An engine described to people.

    Attributes:
        name: name in the configuration.
        isolation: description, in one sentence, of how slots are kept from influencing each other.
        is_llm: whether a language model generates the outputs.
        notice: advice for callers to read before they rely on the answers.
        remote: whether exemplars leave the deployment, in clear text. Only knowledge bases that allow it are answered.
        reads_embeddings: whether slots' exemplars must come with their embeddings.
        keeps_blocks: whether it is a :class:`KeepsBlocks`.
        writes_together: whether it is a :class:`WritesTogether`.
        writing_slots: number of slots that may write together; 0 if it is not one.
        cache_tokens: tokens that its cache has room for; 0 if it has none.
        model_tokens: tokens of a prompt and its answer at most; 0 if it counts none.
    """

    name: str
    isolation: str
    is_llm: bool
    notice: str
    remote: bool = False
    reads_embeddings: bool = False
    keeps_blocks: bool = False
    writes_together: bool = False
    writing_slots: int = 0
    cache_tokens: int = 0
    model_tokens: int = 0


class Engine(Protocol):
    """Gives public zero-shot output per query and one output per slot."""

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        """Answer from the query alone.

        Raises:
            EngineUnavailableError: the engine is down; the pipeline voids the charge.
            EngineBusyError: it is busy; likewise.
            UnusableReplyError: it replies with nothing to use, such as no label; likewise.
            UnanswerableQueryError: it can never answer the query, such as one that is too long; likewise.
        """
        ...

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> Sequence[Output | None]:
        """Answer once per slot, in order.

        Returns:
            Per slot a float64 probability vector (L,) or a text, as the task's kind asks; or None: an empty slot or an
            abstention. Never raises for anything an exemplar contains.
        """
        ...

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        """Make a sentence of released words; sees no exemplar.

        Args:
            task: task of kind "generate".
            query: fields of the query.
            keywords: at least one word.
            ordered: whether the first of them matters most.
            zero_shot: public answer to the query.

        Raises:
            EngineUnavailableError: the engine is down; the words are released as they are.
        """
        ...

    async def describe(self) -> EngineInfo:
        """Describe the engine to people.

        Raises:
            EngineUnavailableError: it has not started yet.
        """
        ...

    async def health(self) -> None:
        """Return if the engine can answer. Never waits for work on private exemplars: how long that takes is private.

        Raises:
            EngineUnavailableError: it cannot.
        """
        ...

    def close(self) -> None:
        """Free what the engine holds; nothing may be asked of it afterwards."""
        ...


class SetsRoomAside(Engine, Protocol):
    """An engine whose room is promised to tasks before they are answered."""

    async def room(self, task: TaskSpec, tokens: int, blocks: int, most: int) -> str:
        """Set room aside for a task, by public numbers alone.

        Args:
            task: task that needs it. Without ``blocks``, for its slots to write together.
            tokens: length of a question's prompt without exemplars.
            blocks: number of its blocks that are to be kept.
            most: number of slots that one sample may have.

        Returns:
            Why there is too little, and what to do; empty if there is enough, which then is this task's.
        """
        ...


class WritesTogether(SetsRoomAside, Protocol):
    """An engine whose slots can write one answer together, a language model that reports its log-probabilities."""

    async def turn(self, task: TaskSpec, tokens: int, takes_s: float) -> str:
        """Wait until all slots that a query may have can write together, and take their places.

        To be called before the sample is drawn. Who waits, and for how long, depends on public numbers alone.

        Args:
            task: task with its ``writing`` and ``most_slots``.
            tokens: length of the question's prompt without exemplars.
            takes_s: seconds for which the places stay taken, even if the answer is written sooner.

        Returns:
            The answer's :attr:`TaskSpec.turn`.

        Raises:
            EngineUnavailableError: there is too little room for these slots, even without other answers.
        """
        ...

    async def write(self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot) -> str:
        """The released answer; empty if that is what was drawn. Randomness is drawn by :attr:`TaskSpec.writing`.

        Without a turn it takes one first, and gives it back as soon as the answer is written: for what is public.

        Raises:
            EngineUnavailableError: the engine has died, or where slots are made up, one did not answer.
        """
        ...


class KeepsBlocks(SetsRoomAside, Protocol):
    """An engine that can read blocks of exemplars ahead, so that answers find them read."""

    async def keep(self, task: TaskSpec, blocks: Sequence[Slot]) -> str:
        """Read a task's blocks ahead, and keep them until it is called for this task again.

        What it has kept already and is among them is not read again; the rest is let go.

        Args:
            task: task with the room that was set aside.
            blocks: all blocks of the task. A block that is not among those kept abstains when it is asked: reading it
                would take longer than others do.

        Returns:
            The task's :attr:`TaskSpec.kept` from now on.
        """
        ...


class Steerer(Protocol):
    """A language model whose heads bundles can steer."""

    async def bundles(self) -> frozenset[str]:
        """SHA-256 of the bundles that it has."""
        ...

    async def health(self) -> None:
        """Return if it can answer."""
        ...

    async def restore(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> np.ndarray:
        """Probabilities of the options after a redacted text, steered by a profile; None steers nothing."""
        ...

    async def restore_text(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> str:
        """The likeliest answer in free text, steered from the prompt's last token to the answer's."""
        ...
