"""The input of an engine, all of it public, and its output."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np

from aggregation.token_ensemble import TokenEnsemble
from spelling.lookalikes import LABEL


@dataclass(frozen=True)
class Writing:
    """The rules by which an answer is written; all of it is public.

    Attributes:
        ensemble: the mechanism that draws a token.
        tokens: number of tokens that the slots influence, and that are paid for.
        longest: most tokens of an answer.
        top_k: number of the likeliest tokens that one is drawn from.
        gate: a token that is at least as probable as this without exemplars is drawn without asking the slots.
        banned: texts that no answer contains, folded as labels are (:data:`spelling.lookalikes.LABEL`).
        regex: regular expression of whole answers; empty: any.
        json_schema: schema of whole answers, as JSON; empty: any.
    """

    ensemble: TokenEnsemble
    tokens: int
    longest: int
    top_k: int
    gate: float
    banned: tuple[str, ...] = ()
    regex: str = ""
    json_schema: str = ""

    def forbids(self, text: str) -> bool:
        """Whether a text contains a banned one."""
        folded = LABEL.fold(text)
        return any(banned in folded for banned in self.banned)


@dataclass(frozen=True, eq=False)
class Embedded:
    """A text whose embedding the engine has, so that none is computed from a slot's output.

    Attributes:
        text: output of the slot.
        embedding: embedding of the text, float32 (d,), of norm 1.
    """

    text: str
    embedding: np.ndarray


Output = np.ndarray | str | Embedded
"""A slot's contribution: label probabilities, float64 (L,), or a text, with its embedding or without."""


@dataclass(frozen=True)
class Prompt:
    """Templates with ``{field}`` placeholders, to be filled by :mod:`service.engines.prompts`.

    Attributes:
        instruction: put before the exemplars as it stands.
        exemplar: rendered once per exemplar, answer included.
        query: rendered for the query, ending where the answer begins.
        keywords: template that asks for a sentence made of released words; empty makes one from ``query``.
        labels: labels of the task, as exemplars show them however they are spelt (:mod:`accounting.plans.labels`).
        label_field: the exemplars' field that holds them.
        public: public exemplars, as they are rendered; every prompt shows them, before a slot's own.
    """

    instruction: str
    exemplar: str
    query: str
    keywords: str = ""
    labels: tuple[str, ...] = ()
    label_field: str = ""
    public: tuple[str, ...] = ()


@dataclass(frozen=True)
class TaskSpec:
    """A signed task as an engine needs to know it; all of it is public.

    Attributes:
        name: address of the task, for messages.
        ensemble: number of slots that the plan announces for a query, on the average.
        most_slots: number of slots that a query may have at most; 0: as many as it has.
        slot_tokens: the most tokens that a slot's exemplars have in a language model's prompt; 0: whatever it takes.
        shots: exemplars that a slot expects to show.
        calibration: public queries, none or at least two. A language model that scores labels divides a prompt's scores
            by what it favours whatever it is asked, which these show; none: it does not.
        own_reference: weight of a slot's own scores on these queries in what its scores are divided by, from 0 to 1.
            The rest is that of the scores beside public exemplars, which are the same for all slots.
        measuring: whether slots are made up, to measure the most work: a language model cuts what does not fit, rather
            than leaving it out, and writes texts to the greatest length.
        knowledge_base: knowledge base of the slots' exemplars; caches never mix two of them.
        latency_grain_s: seconds of a grain; an answer takes a whole number of grains, whatever its sample; 0: any time.
        labels: the public label set, empty for free text; probability vectors follow its order.
        prompt: the templates.
        answer_field: the exemplar field that holds its label or its response.
        input_field: the field that an exemplar and a query are compared by.
        label_descriptions: optional sentence per label, saying what belongs under it.
        quotes: whether a slot's output is its nearest exemplar's response or label, without asking a model.
        kind: "classify" for labels, "generate" for free text.
        candidates: number of zero-shot answers wanted; for free text.
        public_exemplars: fields of the public exemplars, for engines that compare texts; a prompt has them rendered.
        public_answers: answers that are public anyway; for free text.
        document_field: field of the query that answers may be taken from; for free text.
        responses_embedded: whether exemplars come with the embedding of ``answer_field``, too; for free text.
        writing: rules by which slots write one answer together, for free text; None: each gives one of its own.
        kept: result of :meth:`KeepsBlocks.keep`, if the slots are blocks that it keeps; else empty.
        turn: result of :meth:`WritesTogether.turn`, if the slots write together and their places are taken.
        asker: the key or person whose text the query is, for what is remembered of people's texts. Empty for a text
                without a person: made up, or an exemplar's. Nothing of these is remembered.
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
    public_exemplars: tuple[Mapping[str, str], ...] = ()
    public_answers: tuple[str, ...] = ()
    document_field: str | None = None
    responses_embedded: bool = False
    ensemble: int = 1
    most_slots: int = 0
    slot_tokens: int = 0
    shots: int = 1
    calibration: tuple[Mapping[str, str], ...] = ()
    own_reference: float = 1.0
    measuring: bool = False
    knowledge_base: str = ""
    latency_grain_s: float = 0.0
    writing: Writing | None = None
    kept: str = ""
    turn: str = ""
    asker: str = ""

    @property
    def own_queries(self) -> tuple[Mapping[str, str], ...]:
        """The public queries that each slot is asked beside its own exemplars."""
        return self.calibration if self.own_reference else ()


class SanitizedQuery(dict[str, str]):
    """A query's fields as they may leave: an engine that is to see sanitised questions takes no other ones."""


@dataclass(frozen=True)
class ZeroShot:
    """The public answer, without any exemplar.

    Attributes:
        probabilities: probabilities of the labels, float64 (L,), sums to 1; None for free text.
        texts: up to ``candidates`` different answers, for free text, the best first: that one is the fallback. Nothing
            for labels.
        embedded: whether every slot that has an output will return it as :class:`Embedded`.
        tokens: length of the query's prompt, by the language model's own count; 0 if it does not count.
        repeats: share of public questions beside public exemplars whose likeliest label is the last one shown, from 0
            to 1; None where none were asked.
        cut: whether the first text ended at the engine's limit, and not by itself.
        question: embedding of the question as it was asked, float32 (d,); None where the engine embeds no question.
        context: state that the engine wants back in :meth:`Engine.contributions`; public, opaque to all other code.
    """

    probabilities: np.ndarray | None = None
    texts: tuple[str, ...] = ()
    embedded: bool = False
    tokens: int = 0
    repeats: float | None = None
    cut: bool = False
    question: np.ndarray | None = None
    context: Any = None


@dataclass(frozen=True)
class Sentence:
    """A text made of released words.

    Attributes:
        text: the text.
        method: method by which it came about, in words.
    """

    text: str
    method: str
