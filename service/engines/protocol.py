"""Engines: what turns slots of private exemplars and a query into one output per slot.

The pipeline knows engines only by the :class:`Engine` protocol. The part of the privacy contract an engine carries is
*isolation*: what a slot contributes depends on that slot's exemplars, the query and public things, and on nothing
else, be it through batch numerics, caches, shared random streams or failures.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, ClassVar, Literal, Protocol

import numpy as np

from service.problem_kinds import ProblemKind, RefusalError

if TYPE_CHECKING:
    from exemplar_store import Slot
    from service.engines.lock_step import Writing


class EngineUnavailableError(RefusalError, RuntimeError):
    """The engine cannot answer now. Only the zero-shot probe raises it, before anything private was read."""

    kind = ProblemKind.ENGINE_UNAVAILABLE
    retry_after_s: ClassVar[float | None] = 5
    hint = "check --engine-config and, if remote, DPICL_REMOTE_API_KEY, then rerun"


class EngineBusyError(EngineUnavailableError):
    """The engine has as much work as it takes on. Only the zero-shot probe raises it; come back in a moment."""


class NotKeptError(EngineUnavailableError):
    """The engine has started anew, and must keep a task's blocks again. Only the zero-shot probe raises it."""


class UnusableReplyError(EngineUnavailableError):
    """The engine replies, but with nothing to use; the message says what the operator can change. Only the probe raises
    it."""

    kind = ProblemKind.UNUSABLE_REPLY
    retry_after_s = None


class UnanswerableQueryError(ValueError):
    """This engine can never answer this query; the message says what to ask instead. Only the probe raises it."""


@dataclass(frozen=True, eq=False)
class Embedded:
    """A text whose embedding the engine has, so that nobody needs to compute it from what a slot said.

    Attributes:
        text: what the slot says.
        embedding: of it, float32 (d,), of norm 1.
    """

    text: str
    embedding: np.ndarray


Output = np.ndarray | str | Embedded
"""What a slot contributes: label probabilities, float64 (L,), or a text, with its embedding or without."""


@dataclass(frozen=True)
class Prompt:
    """Templates with ``{field}`` placeholders, to be filled by :mod:`service.engines.prompts`.

    Attributes:
        instruction: put before the exemplars as it stands.
        exemplar: rendered once per exemplar, answer included.
        query: rendered for the query, ending where the answer begins.
        keywords: asks for a sentence made of released words; empty makes one from ``query``.
        labels: the task's, as exemplars show them however they are spelt (:mod:`accounting.plans.labels`).
        label_field: the exemplars' field that holds them.
    """

    instruction: str
    exemplar: str
    query: str
    keywords: str = ""
    labels: tuple[str, ...] = ()
    label_field: str = ""


@dataclass(frozen=True)
class TaskSpec:
    """What an engine needs to know of a signed task; all of it is public.

    Attributes:
        name: the task's address, for messages.
        ensemble: how many slots the plan announces for a query, on the average.
        most_slots: how many slots a query may have at most; 0: as many as it has.
        slot_tokens: the most tokens that a slot's exemplars have in a language model's prompt; 0: whatever it takes.
        calibration: public queries. A language model that scores labels divides a prompt's scores by their mean with
            these in place of the query; none: it does not.
        measuring: whether slots are made up, to measure the most work: a language model cuts what does not fit, rather
            than leaving it out, and writes texts to the greatest length.
        knowledge_base: whose exemplars the slots hold; caches never mix two of them.
        latency_grain_s: how long an answer takes, whatever its sample; 0 if that is not so.
        labels: the public label set, empty for free text; probability vectors follow its order.
        prompt: the templates.
        answer_field: the exemplar field that holds its label or its response.
        input_field: the field that an exemplar and a query are compared by.
        label_descriptions: optional sentence per label, saying what belongs under it.
        quotes: whether slots say what their nearest exemplar says, and no model is asked for it.
        kind: what is asked for.
        candidates: of free text, how many zero-shot answers are wanted.
        public_answers: of free text, answers that are public anyway.
        document_field: of free text, the field of the query that answers may be taken from.
        responses_embedded: of free text, whether exemplars come with the embedding of ``answer_field``, too.
        writing: of free text, how slots write one answer together; None: each gives one of its own.
        kept: what :meth:`KeepsBlocks.keep` returned, if the slots are blocks that it keeps; else empty.
        turn: what :meth:`WritesTogether.turn` returned, if the slots write together and their places are taken.
        asker: the key or person whose text the query is, for what is remembered of people's texts. Empty for a text
            that is nobody's: made up, or an exemplar's. Nothing of these is remembered.
    """

    name: str
    labels: tuple[str, ...]
    prompt: Prompt
    answer_field: str = "label"
    input_field: str = "text"
    label_descriptions: Mapping[str, str] = field(default_factory=dict)
    quotes: bool = False
    kind: Literal["classify", "generate"] = "classify"
    candidates: int = 0
    public_answers: tuple[str, ...] = ()
    document_field: str | None = None
    responses_embedded: bool = False
    ensemble: int = 1
    most_slots: int = 0
    slot_tokens: int = 0
    calibration: tuple[Mapping[str, str], ...] = ()
    measuring: bool = False
    knowledge_base: str = ""
    latency_grain_s: float = 0.0
    writing: Writing | None = None
    kept: str = ""
    turn: str = ""
    asker: str = ""


class SanitizedQuery(dict[str, str]):
    """A query's fields as they may leave: an engine that is to see sanitised questions takes no other ones."""


@dataclass(frozen=True)
class ZeroShot:
    """The public answer, without any exemplar.

    Attributes:
        probabilities: of labels, float64 (L,), sums to 1; None for free text.
        texts: of free text, up to ``candidates`` different answers, the best first: that one is the fallback. Nothing
            for labels.
        embedded: whether every slot that says something will say it as :class:`Embedded`.
        tokens: of the query's prompt, by the language model's own count; 0 if it does not count.
        context: what the engine wants back in :meth:`Engine.contributions`; public, opaque to everyone else.
    """

    probabilities: np.ndarray | None = None
    texts: tuple[str, ...] = ()
    embedded: bool = False
    tokens: int = 0
    context: Any = None


@dataclass(frozen=True)
class Sentence:
    """A text made of released words.

    Attributes:
        text: the text.
        method: how it came about, for people.
    """

    text: str
    method: str


@dataclass(frozen=True)
class EngineInfo:
    """An engine described to people.

    Attributes:
        name: as in the configuration.
        isolation: how slots are kept from influencing each other, in one sentence.
        is_llm: whether a language model generates the outputs.
        notice: what a caller should know before relying on the answers.
        remote: whether exemplars leave the deployment, in clear text. Only knowledge bases that allow it are answered.
        reads_embeddings: whether slots' exemplars must come with their embeddings.
        keeps_blocks: whether it is a :class:`KeepsBlocks`.
        writes_together: whether it is a :class:`WritesTogether`.
        writing_slots: how many slots may write together; 0 if it is not one.
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
            UnusableReplyError: its reply holds no label, say; likewise.
            UnanswerableQueryError: the query is too long, say; likewise.
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
            task: of kind "generate".
            query: the query's fields.
            keywords: at least one word.
            ordered: whether the first of them matters most.
            zero_shot: the query's.

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
        """Return if the engine can answer. Never waits for work on anybody's exemplars: how long that takes is private.

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
            task: that needs it. Without ``blocks``, for its slots to write together.
            tokens: of a question's prompt without exemplars.
            blocks: how many of its blocks are to be kept.
            most: how many slots one sample may have.

        Returns:
            Why there is too little, and what to do; empty if there is enough, which then is this task's.
        """
        ...


class WritesTogether(SetsRoomAside, Protocol):
    """An engine whose slots can write one answer together, a language model that tells its log-probabilities."""

    async def turn(self, task: TaskSpec, tokens: int, takes_s: float) -> str:
        """Wait until all slots that a query may have can write together, and take their places.

        To be called before the sample is drawn. Who waits, and for how long, depends on public numbers alone.

        Args:
            task: with its ``writing`` and ``most_slots``.
            tokens: of the question's prompt without exemplars.
            takes_s: seconds for which the places stay taken, even if the answer is written sooner.

        Returns:
            The answer's :attr:`TaskSpec.turn`.

        Raises:
            EngineUnavailableError: there is no room for so many slots, whoever else is there.
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

        What it kept and is among them is not read again; the rest is let go.

        Args:
            task: with the room that was set aside.
            blocks: all of them. A block that is not among those kept abstains when it is asked: reading it would take
                longer than others do.

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
