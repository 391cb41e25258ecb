"""What the service needs to know of a mechanism: how it answers, its description for an admin, and its registration.

An :class:`Adapter` is made of a signed task and its noise. There are two sorts.

An :class:`AnswerAdapter` releases each answer by itself. From public things only it makes an :class:`Aggregator` ready
for a query, and refuses what cannot be answered while the charge can still be voided. The aggregator's ``release`` then
sees the slots' outputs. From there nothing fails: an unusable output abstains.

A :class:`OnceAdapter` makes one release of the whole knowledge base, and a :class:`Reader` of it for any number of
answers.
"""

from abc import ABC, abstractmethod
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeVar, runtime_checkable

import numpy as np
from typing_extensions import override

import accounting.plans.mechanisms
from accounting.plans.labels import spellings
from accounting.plans.mechanisms import Mechanism
from accounting.plans.plan import TaskNoise
from accounting.plans.releases import Releases
from accounting.plans.tasks import ClassifyTask, GenerateTask
from accounting.privacy.profiles import SymmetricProfile
from aggregation.accuracy import Accuracy
from aggregation.keywords import keywords
from exemplar_store import Exemplar, Slot
from service.answering.mechanisms.outlook import Outlook
from service.answering.queries import InvalidQueryError
from service.engines.covering import COVERED, best_covering
from service.engines.embedding.embedder import TextEmbedder
from service.engines.task import Embedded, Output, Sentence, TaskSpec, Writing, ZeroShot

Outputs = Sequence[Output | None]
Answer = Mapping[str, str | bool | float | Sequence[str] | Mapping[str, float] | Mapping[str, Sequence[str]]]
"""What leaves: ``label``, which may be :func:`scored`; or
``text`` with ``method``, and where there are such, ``keywords``, ``sentences`` and ``fallback``; or what a
:class:`OnceAdapter` made, under ``made_once`` its mechanism's type, and where it was measured, :data:`MEASURED`."""

MEASURED = "measured"
"""Key, in a one-time release and in each answer from it, of the release's own accuracy: ``accuracy``,
``standard_error`` and ``units`` of :class:`aggregation.accuracy.Accuracy`."""

Reconstruct = Callable[[Sequence[str], bool], Awaitable[Sentence]]
"""Released words, and whether they are ranked, to a sentence; never raises."""

_DIGITS = 4
"""Decimal places of a score that leaves."""

M = TypeVar("M", bound=Mechanism)
P = TypeVar("P", bound=SymmetricProfile)


class Aggregator(Protocol):
    """A mechanism, ready for one query."""

    async def release(self, outputs: Outputs) -> Answer:
        """Release one answer, with noise; one output per slot, None for an abstention."""


@runtime_checkable
class Author(Protocol):
    """A mechanism whose one answer the engine lets all slots write together, ready for one query."""

    @property
    def writing(self) -> Writing:
        """Rules of how the slots write."""
        ...

    @property
    def before(self) -> Aggregator | None:
        """Mechanism that first releases ``keywords`` of the same outputs, for the prompts; None: there is none."""
        ...

    @property
    def words(self) -> int:
        """Number of keywords that may be released first, at most."""
        ...

    def answer(self, text: str, keywords: Sequence[str]) -> Answer:
        """What leaves, given the text that was written; an empty text: nothing was, or the engine failed."""
        ...


@dataclass(frozen=True)
class Public:
    """The public things that a mechanism is made ready with for a query; none of it depends on an exemplar.

    Attributes:
        query: fields of the query.
        zero_shot: the engine's public output.
        embedder: embedder of candidates and outputs.
        reconstruct: function that makes a sentence of released words.
        prior: label probabilities (labels,) of a one-time release, to be weighed instead of zero-shot's.
    """

    query: Mapping[str, str]
    zero_shot: ZeroShot
    embedder: TextEmbedder
    reconstruct: Reconstruct
    prior: np.ndarray | None = None


class Adapter(ABC, Generic[M, P]):
    """A task's mechanism, with its noise.

    Attributes:
        schema: the mechanism as plans write it.
        profile: privacy profile that the mechanism's noise is calibrated by.
        example: sensible parameters, to begin a plan with and to compare other mechanisms with.
        about: description of what leaves, a sentence for people.
        plainly: the same and what protects it, in whole sentences for readers who know no differential privacy. They
            know a slot as a small set of rows, drawn at random for one question.

    Args:
        task: the signed task.
        noise: calibrated noise of the task.

    Raises:
        TypeError: such noise is not this mechanism's.
    """

    schema: type[M]
    profile: type[P]
    example: M
    about: str
    plainly: str
    task: ClassifyTask | GenerateTask  # each kind's adapter narrows it

    def __init__(self, task: ClassifyTask | GenerateTask, noise: TaskNoise):
        written, profile = task.mechanism, noise.mechanism
        if not (isinstance(written, self.schema) and isinstance(profile, self.profile)):
            raise TypeError(f"{written.type} is not released with {profile}")
        self.task, self.written, self.noise = task, written, profile

    @property
    def writing(self) -> Writing | None:
        """Rules by which slots write one text together; None: each gives an answer of its own, or none is asked."""
        return None

    @abstractmethod
    def outlook(self) -> Outlook:
        """The noise of the task, and the requirements for a good release."""

    @abstractmethod
    def voices(self, public_size: int) -> int:
        """Number of the voices that :attr:`Outlook.needed` counts, such as slots.

        Args:
            public_size: the knowledge base's public number of exemplars.
        """

    @property
    @abstractmethod
    def calls(self) -> int:
        """Engine calls of an answer, at most."""

    @property
    @abstractmethod
    def exemplars(self) -> int:
        """Exemplars that these calls show, on average."""


class AnswerAdapter(Adapter[M, P]):
    """The adapter of a mechanism that releases each answer by itself.

    Attributes:
        slowest: output that takes the mechanism longer than one of many different words does; empty: none does.
    """

    slowest = ""

    @abstractmethod
    async def prepare(self, public: Public) -> Aggregator | Author:
        """The mechanism, ready for a query.

        Raises:
            InvalidQueryError: there is too little to choose from.
            ValueError: the engine's zero-shot output is unusable.
        """

    @property
    def public_calls(self) -> int:
        """Engine calls of an answer that show no exemplar: the zero-shot one."""
        return 1

    @property
    def rounds(self) -> int:
        """Number of times that each slot is asked for an answer."""
        return 0 if self.task.slots == "quote" else 1

    @property
    def calls(self) -> int:
        """See :class:`Adapter`: those of the slots, and the public ones."""
        return self.task.ensemble * self.rounds + self.public_calls

    @property
    def exemplars(self) -> int:
        """See :class:`Adapter`: those of the slots."""
        return self.task.ensemble * self.task.shots * self.rounds

    def voices(self, public_size: int) -> int:
        """See :class:`Adapter`: the slots."""
        return self.task.ensemble


class Reader(Protocol):
    """A one-time release, ready to answer."""

    async def answer(self, query: Mapping[str, str], asker: str) -> Answer:
        """The answer to a question; post-processing of the release.

        Args:
            query: fields of the query.
            asker: the id of the key that asks.

        Raises:
            service.engines.errors.EngineUnavailableError: the engine is asked, and does not answer.
            service.engines.errors.UnanswerableQueryError: it can never answer this question.
        """


Show = Callable[[TaskSpec, Mapping[str, str], Slot], Awaitable[np.ndarray | str]]
"""Asks the engine a question and shows it public exemplars: the probability of each label, shape (labels,); or for free
text without exemplars, the text. Raises as :meth:`Reader.answer`."""

Write = Callable[[Mapping[str, str], Sequence[Slot]], str]
"""Lets the engine's slots write one answer together to a public question. Blocks, and never raises."""


class OnceAdapter(Adapter[M, P]):
    """The adapter of a mechanism with one release of the whole knowledge base.

    Raises:
        TypeError: such noise is not this mechanism's, or counts on units that are not drawn, but all of them are read.
    """

    calls = 0  # questions are embedded and compared

    def __init__(self, task: ClassifyTask | GenerateTask, noise: TaskNoise):
        super().__init__(task, noise)
        if noise.sampling_probability != 1:
            raise TypeError(f"{self.written.type} reads every unit, so its noise must not count on sampling")

    def public_texts(self, field: str) -> Sequence[str]:
        """Public texts whose embeddings the release is made with.

        Args:
            field: the knowledge base's embedded one.
        """
        return ()

    @abstractmethod
    def make(self, units: Iterable[Sequence[Exemplar]], public: np.ndarray, write: Write, public_size: int) -> Answer:
        """The release, with noise, as JSON. It counts no unit for more than the noise allows for.

        Args:
            units: the exemplars of each, with their embeddings; read once. Nothing that they hold raises.
            public: embeddings of :meth:`public_texts`, shape (texts, d), with d that of the exemplars'.
            write: function that asks the engine for the answer to one of the task's public questions, where its slots
                write together.
            public_size: the public number of exemplars, as it was when the plan was signed.
        """

    def measure(self, made: Answer, units: Iterable[Sequence[Exemplar]]) -> Accuracy:
        """The accuracy of a release, counted with noise on units that it was not made of.

        It counts no unit for more than the noise allows for.

        Args:
            made: result of :meth:`make`.
            units: the exemplars of each, with their embeddings; read once. Nothing that they hold raises.

        Raises:
            TypeError: such releases are not measured.
        """
        raise TypeError(f"{self.written.type} is not measured")

    def chosen(self, made: Mapping[str, Any]) -> list[dict[str, str]]:
        """The fields of the public exemplars that a release gives.

        Raises:
            ValueError: it gives none.
        """
        raise ValueError(f"{self.written.type} gives no exemplars: synthetic_exemplars and token_ensemble do")

    @abstractmethod
    def open(self, made: Mapping[str, Any], spec: TaskSpec, embedder: TextEmbedder, show: Show) -> Reader:
        """A reader of a release.

        Args:
            made: result of :meth:`make`, as it was stored.
            spec: the task.
            embedder: embedder of public sentences and questions.
            show: function that asks the engine.
        """

    @property
    @override
    def exemplars(self) -> int:
        return 0


class OnceLabelAdapter(OnceAdapter[M, P]):
    """The adapter of a mechanism with one release about labels."""

    task: ClassifyTask

    def labelled(self, unit: Sequence[Exemplar]) -> list[tuple[int, np.ndarray]]:
        """A unit's exemplars, each as its label's index and its embedding; one of no such label is left out."""
        labels, field = spellings(self.task.labels), self.task.label_field
        return [
            (label, exemplar.embedding)
            for exemplar in unit
            if (label := labels.number(exemplar.fields.get(field))) is not None and exemplar.embedding is not None
        ]

    def voices(self, public_size: int) -> int:
        """See :class:`Adapter`: the units of a label, if there are as many as exemplars, evenly spread."""
        return max(1, self.made_of(public_size) // len(self.task.labels))

    def made_of(self, public_size: int) -> int:
        """Number of the public exemplars that are not left out, if there are as many units, at least 1."""
        return max(1, round((1 - self.written.left_out) * public_size))


class TextAdapter(AnswerAdapter[M, P]):
    """The adapter of a mechanism that releases a text.

    Attributes:
        reconstructs: whether the engine makes the text of released words.
    """

    task: GenerateTask
    reconstructs = False

    @property
    def public_calls(self) -> int:
        """See :class:`AnswerAdapter`: one for each candidate, and one for the sentence."""
        return self.task.candidates + self.reconstructs

    def sentences(self, public: Public) -> Reconstruct:
        """The function that makes a sentence of released words: the engine's, or a choice among the public answers.

        The engine writes it where none of these has any of the words.
        """
        if not self.task.chooses:
            return public.reconstruct
        candidates = self.candidates(public.zero_shot)

        async def choose(words: Sequence[str], ordered: bool) -> Sentence:
            chosen = best_covering(candidates, words, ordered)
            return await public.reconstruct(words, ordered) if chosen is None else Sentence(chosen, COVERED)

        return choose

    def candidates(self, zero_shot: ZeroShot) -> list[str]:
        """The public answers, at least one.

        Raises:
            InvalidQueryError: there is none.
        """
        candidates = [text.strip() for text in zero_shot.texts[: self.task.candidates] if text.strip()]
        if not candidates:
            raise InvalidQueryError(
                "no zero-shot answer to choose from: an admin can list public_answers or public_exemplars in the plan "
                "or name the document_field, or use an engine that writes text"
            )
        return candidates


ADAPTERS: dict[tuple[type[Mechanism], type[Releases]], type[Adapter[Any, Any]]] = {}
"""Adapters by the mechanism as plans write it, and by how its answers are released."""


def register(adapter: type[Adapter[Any, Any]]) -> None:
    """Make a mechanism known: plans may name it from now on, and the service answers with it.

    Raises:
        ValueError: there is another of its type.
    """
    accounting.plans.mechanisms.register(adapter.schema)
    ADAPTERS[adapter.schema, type(adapter.example.releases)] = adapter


def adapter_type(mechanism: Mechanism) -> type[Adapter[Any, Any]]:
    """The adapter type of a mechanism, as plans write it."""
    return ADAPTERS[type(mechanism), type(mechanism.releases)]


NO_CANDIDATES = (
    "does not write texts, and the plan has none to choose from: list public_answers or public_exemplars, name the "
    "document_field whose passages are answers, or use a language model"
)
"""What is wrong with an engine that is not a language model, for a task as :func:`needs_written_texts` finds them."""


def needs_written_texts(task: ClassifyTask | GenerateTask) -> bool:
    """Whether an answer is chosen from texts that only a language model can provide: the plan and a question do not."""
    given = task.public_exemplars or getattr(task, "public_answers", ()) or getattr(task, "document_field", None)
    if not isinstance(task, GenerateTask) or given:
        return False
    adapter = adapter_type(task.mechanism)
    return issubclass(adapter, TextAdapter) and not adapter.schema.written_together


def adapter_of(task: ClassifyTask | GenerateTask, noise: TaskNoise) -> Adapter[Any, Any]:
    """A signed task's adapter."""
    return adapter_type(task.mechanism)(task, noise)


def answer_adapter_of(task: ClassifyTask | GenerateTask, noise: TaskNoise) -> AnswerAdapter[Any, Any]:
    """The adapter of a signed task whose answers are released each by itself.

    Raises:
        TypeError: the task has a one-time release.
    """
    adapter = adapter_of(task, noise)
    if not isinstance(adapter, AnswerAdapter):
        raise TypeError(f"{task.mechanism.type} is released once, not for each answer")
    return adapter


def once_adapter_of(task: ClassifyTask | GenerateTask, noise: TaskNoise) -> OnceAdapter[Any, Any]:
    """The adapter of a signed task with a one-time release.

    Raises:
        TypeError: the task's answers are released each by itself.
    """
    adapter = adapter_of(task, noise)
    if not isinstance(adapter, OnceAdapter):
        raise TypeError(f"{task.mechanism.type} is released for each answer, not once")
    return adapter


def text_of(output: Output | None) -> str | None:
    """The text of an output, if it has one that is not blank."""
    text = output.text if isinstance(output, Embedded) else output
    return text if isinstance(text, str) and text.strip() else None


def words_of(output: Output | None) -> frozenset[str] | None:
    """A slot's contribution: the keywords of its output; None for an abstention."""
    text = text_of(output)
    return keywords(text) if text is not None else None


async def sentence(words: Sequence[str], ordered: bool, reconstruct: Reconstruct) -> dict[str, str | Sequence[str]]:
    """An answer of released words, and a sentence made of them."""
    made = await reconstruct(words, ordered)
    return {"text": made.text, "keywords": list(words), "method": made.method}


def scored(task: ClassifyTask, scores: np.ndarray) -> Answer:
    """An answer of the label with the highest score.

    Where the task's mechanism was fitted to labelled rows, as its plan shows, the answer has its ``probability`` and
    the ``probabilities`` of all labels. Otherwise it has the same numbers as ``score`` and ``scores``.

    Args:
        task: the signed task.
        scores: score of each label, shape (labels,), with sum 1.
    """
    highest = int(scores.argmax())
    rounded = [round(float(score), _DIGITS) for score in scores]
    one, all_of_them = ("score", "scores") if task.mechanism.fitted is None else ("probability", "probabilities")
    return {
        "label": task.labels[highest],
        one: rounded[highest],
        all_of_them: dict(zip(task.labels, rounded, strict=True)),
    }


def score_of(answer: Mapping[str, Any]) -> float:
    """The score of an answer's label, whether it is a probability or not.

    Raises:
        KeyError: it has none.
    """
    return float(answer["probability"] if "probability" in answer else answer["score"])


def scores_of(answer: Mapping[str, Any]) -> Mapping[str, float]:
    """The same of every label."""
    scores: Mapping[str, float] = answer["probabilities"] if "probabilities" in answer else answer["scores"]
    return scores
