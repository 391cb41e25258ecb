"""The data a bundle is made from. **All of it ends up with every client**: it must be public, or consented to."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from exemplar_store import BadRowError
from sanitization.digests import file_digest
from sanitization.restore.bundle import LONGEST_TEXT, Prompt
from sanitization.restore.span_types import Meaning, SpanTypes
from sanitization.restore.spans import (
    PLACEHOLDER,
    Redacted,
    SpanLeftInTextError,
    SpanNotFoundError,
    normal_form,
    redact,
)
from sanitization.restore.weights import Weighing, weights_of
from sanitization.vocabulary import FloatArray
from service.engines.vllm.model_folder import model_folder
from service.sources.files import open_file

PUBLISHED_EPSILON = 150.0
"""The true ε of the noise as the paper runs it: 2·75."""
_SMOLLM2 = "smollm2"
LARGEST_TABLED = 500.0
"""Far above what anyone would run, and e^-ε is still a number."""


class TrainConfig(BaseModel):
    """Configuration of a training, from a YAML file. Paths are relative to it."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    name: str
    model: Path = Field(description="A folder as transformers saves one, or smollm2.")
    data: Path = Field(
        description="A file as of `kb ingest`: text, spans, answer, and the group (a person) a row belongs to."
    )
    declared: Literal["public", "consented"] = Field(description="Why the data may be shown to every client.")
    declared_by: str = Field(min_length=1)
    prompt: Prompt = Field(description="A template with {text}, ending where the answer begins.")
    text_prompt: Prompt | None = Field(default=None, description="The template for free text; without it, prompt.")
    options: list[str] = Field(min_length=2, description="The possible answers.")
    types: dict[str, list[str]] = Field(default_factory=dict, description="Phrases by type; else each is its own.")
    fewest: int = Field(default=5, ge=2, description="Rows that a phrase occurs in, to be a type of its own.")
    placeholder: str = PLACEHOLDER
    longest_text: int = Field(default=LONGEST_TEXT, ge=1, le=LONGEST_TEXT)
    weights: Weighing = "equal"
    meaning: Meaning | None = Field(
        default=Meaning(), description="Comparison by which unknown phrases get a type; null: they have none."
    )
    heads: int = Field(default=12, ge=1, description="K.")
    profiles: list[Annotated[int, Field(ge=2)]] = Field(
        default=[8, 16, 64], min_length=1, description="Sizes of books to compare."
    )
    epsilon: float = Field(default=6.0, gt=0, le=20, description="ε that the size of the book is chosen for.")
    epsilons: list[Annotated[float, Field(gt=0, le=LARGEST_TABLED)]] = Field(
        default=[1.0, 2.0, 4.0, 6.0, 8.0, 20.0, PUBLISHED_EPSILON],
        description="Values of true ε in the table; above 20 profiles are tabled at 20, and noise as asked.",
    )
    steps: int = Field(default=300, ge=1)
    batch: int = Field(default=48, ge=1)
    learning_rate: float = Field(default=0.01, gt=0)
    odds: float = Field(default=1.0, ge=0, description="λ of ORPO's odds term.")
    decay: float = Field(default=1e-3, ge=0)
    test_share: float = Field(default=0.15, gt=0, lt=0.5, description="Share of people to report on, and to choose.")
    seed: int = 0

    @model_validator(mode="after")
    def _sense(self) -> TrainConfig:
        if len(set(self.options)) < len(self.options):
            raise ValueError("an option occurs twice")
        return self

    @classmethod
    def read(cls, file: Path) -> TrainConfig:
        """The configuration in a file.

        Raises:
            ValueError: it is not valid.
            OSError: it cannot be read.
        """
        try:
            config = cls.model_validate(yaml.safe_load(file.read_bytes()))
        except yaml.YAMLError as error:
            raise ValueError(f"{file} is not valid YAML: {error}") from None
        paths = {name: (file.parent / getattr(config, name)).resolve() for name in ("model", "data")}
        if str(config.model) == _SMOLLM2 and not paths["model"].exists():
            # As `restore: {model: smollm2}` serves it, whose bundles must be made for the same bytes.
            paths["model"] = Path(model_folder(_SMOLLM2, exact=True))
        return config.model_copy(update=paths)

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all settings and of the data: what a job may be continued with."""
        said = self.model_dump_json(exclude={"model", "data"})
        return hashlib.sha256(said.encode() + file_digest(self.data).encode()).hexdigest()


class DataRow(BaseModel):
    """A row of the data; further columns do not matter."""

    model_config = ConfigDict(frozen=True)

    text: str
    spans: list[str] | list[tuple[int, int]]
    answer: str
    group: str


@dataclass(frozen=True, eq=False)
class RedactedRows:
    """Rows with their redacted texts.

    Attributes:
        texts: texts with spans.
        redacted: texts without spans.
        spans: spans of each row.
        weights: weights of the types in each row, float64 (N, t).
        answers: index of the right option, int64 (N,).
        groups: group that each row belongs to.
    """

    texts: tuple[str, ...]
    redacted: tuple[str, ...]
    spans: tuple[tuple[str, ...], ...]
    weights: FloatArray
    answers: np.ndarray
    groups: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.texts)

    def rows(self, chosen: np.ndarray) -> RedactedRows:
        """Some of them."""

        def some(part: Any) -> Any:
            return part[chosen] if isinstance(part, np.ndarray) else tuple(part[at] for at in chosen)

        return RedactedRows(**{name: some(part) for name, part in vars(self).items()})

    @property
    def with_spans(self) -> RedactedRows:
        """The rows that have any of a known type."""
        return self.rows(np.flatnonzero(self.weights.sum(axis=1) > 0))


@dataclass(frozen=True, eq=False)
class Split:
    """Types, and rows of different groups: to train with, to choose with, to report about."""

    types: dict[str, list[str]]
    train: RedactedRows
    choose: RedactedRows
    test: RedactedRows


def read(config: TrainConfig) -> Split:
    """Read, redact and split the data.

    Raises:
        ValueError: a row cannot be used; names it.
    """
    rows: list[DataRow] = []
    taken: list[Redacted] = []
    with open_file(str(config.data)) as source:
        for number, record in source.records(("text", "answer", "group"), whole=True):
            try:
                row = DataRow.model_validate(record)
                taken.append(redact(row.text, row.spans, config.placeholder))
            except ValueError as error:
                raise ValueError(f"{config.data}: {BadRowError(number, *_problem(error))}") from None
            if row.answer not in config.options:
                raise ValueError(f"{config.data}: {BadRowError(number, 'answer', 'is not one of the options')}")
            rows.append(row)
    types = config.types or _types([redacted.spans for redacted in taken], config.fewest)
    if not types:
        raise ValueError(f"{config.data}: no span occurs in {config.fewest} rows")
    data = RedactedRows(
        tuple(redacted.whole for redacted in taken),
        tuple(redacted.text for redacted in taken),
        tuple(redacted.spans for redacted in taken),
        _weights(types, taken, config),
        np.array([config.options.index(row.answer) for row in rows]),
        tuple(row.group for row in rows),
    )
    return _split(types, data, config.test_share, config.seed)


def _problem(error: ValueError) -> tuple[str, str]:
    """The field at fault, and what is wrong with it, without a value."""
    match error:
        case ValidationError():
            first = error.errors()[0]
            return ".".join(map(str, first["loc"])), first["msg"]
        case SpanNotFoundError():
            return "spans", "one does not occur in the text as a whole word"
        case SpanLeftInTextError():
            where = "perhaps within a longer word, or with characters that are not shown"
            return "spans", f"one occurs in the text once more, {where}: mark that, too"
        case _:
            return "spans", str(error)


def _types(spans: Sequence[Sequence[str]], fewest: int) -> dict[str, list[str]]:
    """Each phrase that occurs often enough is a type of its own."""
    counts = Counter(phrase for row in spans for phrase in {normal_form(span) for span in row})
    return {phrase: [phrase] for phrase, count in sorted(counts.items()) if count >= fewest}


def _weights(types: dict[str, list[str]], taken: Sequence[Redacted], config: TrainConfig) -> FloatArray:
    phrases = {normal_form(phrase): name for name, phrases in types.items() for phrase in phrases}
    spans = list(dict.fromkeys(span for redacted in taken for span in redacted.spans))
    type_of = dict(zip(spans, SpanTypes(phrases, config.meaning).of(spans), strict=True))
    place = {name: at for at, name in enumerate(types)}
    matrix = np.zeros((len(taken), len(types)))
    for row, redacted in enumerate(taken):
        weights = weights_of(redacted, [type_of[span] for span in redacted.spans], config.weights)
        for name, weight in weights.items():
            matrix[row, place[name]] = weight
    return matrix


def _split(types: dict[str, list[str]], data: RedactedRows, share: float, seed: int) -> Split:
    """Split the rows by group: two rows of one person are never on both sides."""
    names = sorted(set(data.groups))
    order = np.random.default_rng(seed).permutation(len(names))
    part = {names[at]: place / len(names) for place, at in enumerate(order)}
    places = np.array([part[group] for group in data.groups])
    parts = places < share, (places >= share) & (places < 2 * share), places >= 2 * share
    test, choose, train = (data.rows(np.flatnonzero(chosen)) for chosen in parts)
    if min(len(test), len(choose), len(train)) == 0:
        raise ValueError(f"{len(names)} groups are too few to split")
    return Split(types, train, choose, test)
