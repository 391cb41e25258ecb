"""Plans to start from, made for a knowledge base from its public description."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

from accounting.ledger.cohorts import CohortStatus
from accounting.plans import plain_yaml
from accounting.plans.plan import LARGEST_DELTA, LARGEST_EPSILON
from exemplar_store import KnowledgeBase
from service.answering.mechanisms.adapter import ADAPTERS, Adapter, AnswerAdapter
from service.answering.mechanisms.common_sentences import CommonSentencesAdapter
from service.answering.mechanisms.keyword_ptr import KeywordPtrAdapter
from service.answering.mechanisms.rnm_gaussian import RnmGaussianAdapter
from service.answering.mechanisms.softmax_regression import SoftmaxRegressionAdapter
from service.answering.plans.signing import PLACEHOLDER_ANSWERS, PLACEHOLDERS
from service.operations.command import command
from service.operations.fields import NAME, FieldError, read_as
from service.operations.roles import Actor, Right
from service.records.engine_record import EngineView, last_engine
from service.records.records import Records

KINDS = {
    "labels": "one of some labels",
    "recall": "a text that recalls sentences of many exemplars; takes seconds, even without a GPU",
    "text": "a text that a language model works out from exemplars; needs a GPU",
}
_CHOICES = ("kind", "task", "answer_field", "labels", "public_answers", "instruction", "epsilon", "answers")
_BETWEEN_LABELS = re.compile(r"[\n,;،؛、，；]")
_BETWEEN_WORDS = re.compile(r"[\W_]+|(?<=[a-z])(?=[A-Z])")
_LABEL_NAMES = (
    *("label", "labels", "target", "class", "category", "code", "team", "queue", "intent", "topic", "tag", "type"),
    *("sentiment", "department", "diagnosis", "priority", "status", "group", "desk", "outcome", "rating"),
)
_TEXT_NAMES = (
    *("response", "reply", "answer", "resolution", "solution", "completion", "output", "target", "summary", "note"),
    *("comment", "label"),
)
"""Words in names of fields that hold answers, the most usual first."""
_SHOTS, _ENSEMBLE, _QUOTES = 4, 100, 300
"""Exemplars in a slot, and slots: as many as engines can ask, and more that quote, as these are not asked."""
_MOST_DRAWN = 32
_USUAL: dict[str, type[Adapter[Any, Any]]] = {
    "labels": RnmGaussianAdapter,
    "recall": CommonSentencesAdapter,
    "text": KeywordPtrAdapter,
}
_ANSWERS = {"labels": 500, "recall": 20, "text": 20}
"""Words and sentences need far less noise than labels."""


@dataclass(frozen=True)
class Offered:
    """A mechanism that a task can have.

    Attributes:
        about: advice on its use, a sentence.
        written: line of a plan, with an example's parameters.
    """

    about: str
    written: str

    @classmethod
    def by(cls, adapter: type[Adapter[Any, Any]]) -> "Offered":
        """The mechanism of an adapter."""
        example = adapter.example.model_dump(mode="json", exclude_defaults=True)
        return cls(adapter.about, plain_yaml.dump({"mechanism": example}, in_line=True, width=200).rstrip())


@dataclass(frozen=True)
class StartingPlan:
    """A plan that an admin can sign as it is, except for what must not be read from exemplars: labels, public answers.

    Half of what is free of the budget, so that a later plan has some. A slot draws as many exemplars as leave a unit
    seldom in an answer, and where embeddings are stored shows those that are nearest to the question.

    Labels come from one release, of the exemplars that are stored when it is signed, unless exemplars have no
    embeddings or a number of answers is wanted: then slots vote. Fixed blocks serve a language model where exemplars
    have no embeddings.

    Attributes:
        knowledge_base: name of the knowledge base.
        choices: the admin's choices, from :func:`chosen`.
        epsilon: ε of the plan.
        delta: δ of the plan.
        answer: name of the field that holds the answer.
        asked: names of the fields that a question brings.
        labels: all labels, or placeholders.
        public_answers: texts to choose from, or placeholders; none where a language model writes.
        answers: number of answers.
        nearest: whether slots show the exemplars nearest to the question.
        quote: whether a slot quotes its nearest exemplar.
        drawn: number of exemplars that a slot draws, on average.
        shots: number of exemplars that a slot shows.
        blocks: whether slots are fixed blocks.
        once: whether one release gives all answers.
        ensemble: number of slots.
        usual: the mechanism.
        others: mechanisms that could replace it.
    """

    knowledge_base: str
    choices: Mapping[str, str]
    epsilon: str
    delta: str
    answer: str
    asked: Sequence[str]
    labels: Sequence[str]
    public_answers: Sequence[str]
    answers: str
    nearest: bool
    quote: bool
    drawn: int
    shots: int
    blocks: bool
    once: bool
    ensemble: int
    usual: Offered
    others: Sequence[Offered]


def chosen(given: Mapping[str, str]) -> dict[str, str]:
    """The choices of a form, by name; an unknown kind becomes ``labels``, and empty choices get defaults later."""
    choices = {name: given.get(name, "").strip() for name in _CHOICES}
    return choices if choices["kind"] in KINDS else choices | {"kind": "labels"}


def has_choices(given: Mapping[str, str]) -> bool:
    """Whether a form brings any choice."""
    return any(name in given for name in _CHOICES)


@command(Right.DECIDE)
def begin(_actor: Actor, records: Records, name: str, given: Mapping[str, str]) -> StartingPlan:
    """A plan to start from.

    Args:
        records: opened records.
        name: name of the knowledge base.
        given: the admin's choices, a form. Where it has a list of labels or public answers, they must be in it; where
            it has none, placeholders stand for them.

    Raises:
        FieldError: a choice is missing, or cannot be read.
        exemplar_store.UnknownKnowledgeBaseError: no knowledge base has this name.
    """
    described, status = records.store.get(name), records.ledger.budgets.status(name)
    choices, engine = chosen(given), last_engine(records.database)
    if choices["task"] and not re.fullmatch(NAME, choices["task"]):
        raise FieldError("task", "use small letters, digits, - and _")
    for number, kind in (("epsilon", float), ("answers", int)):
        try:
            is_wrong = choices[number] and read_as(kind, choices[number]) <= 0
        except ValueError as error:
            raise FieldError(number, str(error)) from None
        if is_wrong:
            raise FieldError(number, "it must be more than 0")
    if choices["kind"] == "labels":
        if "labels" in given and len(_parted(choices["labels"])) < 2:
            raise FieldError("labels", "write all labels, at least two: no exemplar is read for them")
    elif needs_public_answers(engine) and "public_answers" in given and not _lines(choices["public_answers"]):
        raise FieldError("public_answers", "write the texts to choose from, one a line: this engine does not write")
    return starting_plan(described, status.tightest, choices, engine)


def needs_public_answers(engine: EngineView | None) -> bool:
    """Whether tasks that answer with a text must list texts to choose from, since the engine does not write."""
    return engine is None or not engine.is_llm


def answer_fields(described: KnowledgeBase, *, is_label: bool) -> list[str]:
    """The fields that may hold the answer, the likeliest first, by their names alone: exemplars are private.

    Args:
        described: the knowledge base.
        is_label: whether the answer is a label.
    """
    usual = _LABEL_NAMES if is_label else _TEXT_NAMES

    def place(field: str) -> tuple[bool, int]:
        words = [word.lower() for word in _BETWEEN_WORDS.split(field)]
        return (field == described.response_field) is is_label, min(
            (usual.index(word) for word in words if word in usual), default=len(usual)
        )

    return sorted((field for field in reversed(described.fields) if field != described.embedded_field), key=place)


def starting_plan(
    described: KnowledgeBase, status: CohortStatus, choices: Mapping[str, str], engine: EngineView | None = None
) -> StartingPlan:
    """A plan to start from.

    Args:
        described: the knowledge base.
        status: budget of a cohort, half of whose free part the plan takes.
        choices: the admin's choices, from :func:`chosen`.
        engine: engine that answers; None: not known, taken as an engine without a language model.
    """
    embedded, nearest = described.embedded_field, described.embedding_dimension != 0
    is_label = choices["kind"] == "labels"
    once = is_label and nearest and not choices["answers"]
    usual = SoftmaxRegressionAdapter if once else _USUAL[choices["kind"]]
    others = answer_fields(described, is_label=is_label)
    answer = choices["answer_field"] or (others[0] if others else "label")
    # Only what exemplars are compared by is surely in a question: further fields may be answers, too.
    asked = [embedded] if embedded != answer else others
    size = described.public_size
    labels = _parted(choices["labels"]) or list(PLACEHOLDERS)
    reads, quote = engine is not None and engine.is_llm, nearest and choices["kind"] == "recall"
    ensemble = min(_QUOTES if quote else _ENSEMBLE, max(10, size // (10 * _SHOTS)), size)
    drawn = max(1, min(_SHOTS, size // ensemble), min(_MOST_DRAWN, size // (10 * ensemble)) if nearest else 0)
    return StartingPlan(
        knowledge_base=described.name,
        choices=choices,
        epsilon=choices["epsilon"] or _half(status.free_epsilon, LARGEST_EPSILON),
        delta=_half(status.free_delta, LARGEST_DELTA),
        answer=answer,
        asked=asked,
        labels=labels,
        public_answers=() if reads else _lines(choices["public_answers"]) or PLACEHOLDER_ANSWERS,
        answers=choices["answers"] or str(_ANSWERS[choices["kind"]]),
        nearest=nearest,
        quote=quote,
        drawn=drawn,
        shots=1 if quote else min(_SHOTS, max(1, drawn // 2)) if nearest else drawn,
        blocks=is_label and reads and not nearest,
        once=once,
        ensemble=ensemble,
        usual=Offered.by(usual),
        others=[
            Offered.by(adapter)
            for adapter in ADAPTERS.values()
            if adapter.schema.kind == usual.schema.kind
            and issubclass(adapter, AnswerAdapter)
            and not once
            and adapter is not usual
            and not (quote and adapter.schema.written_together)
        ],
    )


def _parted(labels: str) -> list[str]:
    """Labels as people write them: in a row, with commas or semicolons between, or one a line."""
    return [label.strip() for label in _BETWEEN_LABELS.split(labels) if label.strip()]


def _lines(texts: str) -> list[str]:
    """Texts, one a line."""
    return [text.strip() for text in texts.splitlines() if text.strip()]


def _half(free: Decimal, most: float) -> str:
    """Half, or the most that a plan may take, rounded down to two digits."""
    part = min(max(free, Decimal(0)) / 2, Decimal(str(most)))
    half = Context(prec=2, rounding=ROUND_DOWN).create_decimal(part).normalize()
    return f"{half:f}" if half >= Decimal("0.001") else f"{half:e}"
