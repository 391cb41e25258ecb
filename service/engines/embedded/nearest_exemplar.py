"""Labels and texts by sentence similarity: the embedded engine, which needs no language model and no GPU.

**This is not an LLM.** It compares texts by the cosine of their embeddings, so it suits topics and
falls short of a language model wherever reading matters: negation, sentiment, arithmetic, instructions. A prompt's
instruction does not influence it. And it writes nothing: a text is taken from the query's own document
(:mod:`service.engines.embedded.extraction`), or from exemplars and public answers
(:mod:`service.engines.embedded.given_texts`).

For labels, with q the query's embedding, e_l a label's (:func:`label_sentences`), and a slot of exemplars (x_j, y_j):

    zero-shot   z_l = <q, e_l>                                                              p = softmax(z / T0)
    slot        s_l = z_l + b * sum_j max(<q, x_j>, 0)**3 * (1[y_j = l] - softmax(<x_j, e> / T)_l)
                                                                                            p = softmax(s / T)

which is the label sentences' classifier after one gradient step of kernel logistic regression on the slot: an
exemplar moves the prediction by how near it is to the query and by how much its label surprises the label sentences.
Since the exemplars' part is a sum, 100 slots agree on more than the best of them knows.

A slot that is alone (an ensemble of 1, as of synthetic exemplars) gives no vote but the answer with its probability.
There the step is small and the exemplars share it, by softmax(<q, x_j> / A):

    alone       s_l = z_l + c * sum_j softmax(<q, x> / A)_j * (1[y_j = l] - softmax(<x_j, e> / T)_l)
                                                                                            p = softmax(s / T0)

A task's public exemplars are such a slot for the zero-shot answer, and their scores take the place of z in every other.
Of texts, the zero-shot answer is what a slot of them would give, and their responses are public answers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from typing_extensions import override

from accounting.plans.labels import Spellings, spellings
from accounting.plans.tasks import ClassifyTask
from exemplar_store import Exemplar
from service.engines.covering import BARE, COVERED, best_covering
from service.engines.embedded.extraction import candidates, extract, probe, split
from service.engines.embedded.given_texts import nearest_response, rank
from service.engines.embedding.embedder import TextEmbedder
from service.engines.errors import EngineUnavailableError, UnanswerableQueryError
from service.engines.private_threads import privately
from service.engines.protocol import Engine, EngineInfo
from service.engines.task import Output, Sentence, TaskSpec, ZeroShot

if TYPE_CHECKING:
    from exemplar_store import Slot

# T, b and the cube were chosen on parts held out of the training sets of AG News and TREC: accuracy of hard and soft
# votes of 100 slots of 4 exemplars, with noise of σ = 0, 4 and 10 on the votes. A square with b = 16 is as accurate
# there, but lets unrelated exemplars outvote the label sentences where all exemplars are of one domain.
TEMPERATURE = 0.075
STEP = 100.0

# T0, A and c were chosen for small calibration errors on parts held out of the training sets of AG News and TREC, T0
# also on SST-2. A step of b, where a slot is alone, is wrong much more often than its probability suggests.
PUBLIC_TEMPERATURE = 0.055
ALONE_NEARNESS = 0.1
ALONE_STEP = 0.3


@dataclass(frozen=True)
class _Probe:
    """The public part of a query, computed once and used for every slot.

    Attributes:
        directions: float64 (d, 1 + L), the embedding of the query, then those of the label sentences.
        scores: float64 (L,), z above.
    """

    directions: np.ndarray
    scores: np.ndarray


class NearestExemplarEngine(Engine):
    """The engine ``nearest_exemplar``; see the module for what it computes and what it cannot do.

    Isolation: every slot is computed by itself, by operations whose shapes are those of that slot alone, from
    embeddings that were taken one text at a time; nothing random, nothing cached but a task's public texts.
    """

    INFO = EngineInfo(
        name="nearest_exemplar",
        isolation="each slot is computed by itself on the CPU; outputs are bit-identical whatever the others hold",
        is_llm=False,
        notice="No language model: labels come from the similarity of sentence embeddings; texts are passages of the "
        "query's document, responses of exemplars or public answers, and nothing is rephrased.",
        reads_embeddings=True,
    )

    def __init__(self, embedder: TextEmbedder) -> None:
        self._embedder = embedder
        self._public_embeddings: dict[tuple[str, ...], np.ndarray] = {}

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        """See :meth:`service.engines.protocol.Engine.zero_shot`.

        Costs one embedding, and one for every unit of the query's document if the task has one.
        """
        for field in (task.input_field, task.document_field):
            if field is not None and field not in query:
                raise UnanswerableQueryError(f"the query of task {task.name!r} needs the field {field!r}")
        try:
            return await asyncio.to_thread(self._answer_publicly, task, query)
        except RuntimeError as error:
            raise EngineUnavailableError(f"nearest_exemplar cannot embed the query: {error}") from error

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> list[Output | None]:
        """See :meth:`service.engines.protocol.Engine.contributions`.

        An exemplar without an embedding, without a response, or whose label is not one of the task's, is passed over; a
        slot left with none abstains.
        """
        known_labels = spellings(task.labels)
        known = zero_shot.context

        def answer(slot: Slot) -> Output | None:
            if task.kind == "classify":
                return _predict(slot, known_labels, task.answer_field, known, alone=task.ensemble == 1)
            if task.document_field is None:
                return nearest_response(slot, task.answer_field, known, embedded=zero_shot.embedded)
            return extract(slot, task.document_field, task.answer_field, known)

        return await privately(lambda: [_answer_or_abstain(answer, slot) for slot in slots])

    async def reconstruct(
        self, task: TaskSpec, query: Mapping[str, str], keywords: Sequence[str], ordered: bool, zero_shot: ZeroShot
    ) -> Sentence:
        """See :meth:`service.engines.protocol.Engine.reconstruct`: the candidate that covers the keywords best."""
        best = best_covering(zero_shot.texts, keywords, ordered)
        if best is None:
            return Sentence(" ".join(keywords), f"{BARE} (no language model wrote this)")
        return Sentence(best, f"{COVERED} (no language model wrote this)")

    @override
    async def describe(self) -> EngineInfo:
        return self.INFO

    def close(self) -> None:
        """See :meth:`service.engines.protocol.Engine.close`; there is nothing to free."""

    async def health(self) -> None:
        """See :meth:`service.engines.protocol.Engine.health`; there is nothing here that could die by itself."""

    def _answer_publicly(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        (question,) = self._embedder.embed([query[task.input_field]])
        return replace(self._answer_to(task, query, question.astype(np.float64)), question=question)

    def _answer_to(self, task: TaskSpec, query: Mapping[str, str], q: np.ndarray) -> ZeroShot:
        if task.kind == "classify":
            labels = label_directions(task, self._embed_public)
            context = _Probe(np.column_stack([q, *labels]), (labels * q).sum(axis=1))
            scores = _scores(self._public(task), spellings(task.labels), task.answer_field, context, alone=True)
            context = context if scores is None else replace(context, scores=scores)
            return ZeroShot(_softmax(context.scores, PUBLIC_TEMPERATURE), context=context)
        if task.document_field is None:
            nearest = nearest_response(self._public(task), task.answer_field, q, embedded=False)
            answers = (*task.public_answers, *(fields[task.answer_field] for fields in task.public_exemplars))
            ranked = rank(q, answers, self._embed_public(answers), task.candidates)
            texts = tuple(dict.fromkeys([*([nearest] if isinstance(nearest, str) else []), *ranked]))
            return ZeroShot(texts=texts[: task.candidates], embedded=task.responses_embedded, context=q)
        return self._read_document(task, q, task.document_field, query[task.document_field])

    def _read_document(self, task: TaskSpec, q: np.ndarray, field: str, document: str) -> ZeroShot:
        units = split(document)
        embeddings = self._embedder.embed(units)
        context = probe(q, units, embeddings)
        passages = candidates(q, units, embeddings, max(1, task.candidates - len(task.public_answers)))
        learnt = extract(self._public(task), field, task.answer_field, context)
        first = [] if learnt is None else [learnt.text]
        texts = tuple(dict.fromkeys([*first, *passages, *task.public_answers]))[: task.candidates]
        return ZeroShot(texts=texts, embedded=True, context=context)

    def _public(self, task: TaskSpec) -> Slot:
        """The task's public exemplars that can be compared, with their embeddings."""
        usable = [fields for fields in task.public_exemplars if task.input_field in fields]
        if not usable:
            return ()
        embeddings = self._embed_public(tuple(fields[task.input_field] for fields in usable))
        return tuple(map(Exemplar, usable, embeddings))

    def _embed_public(self, texts: tuple[str, ...]) -> np.ndarray:
        """A task's public texts, float64 (n, d), rows of norm 1; kept for the next query."""
        if texts not in self._public_embeddings:
            self._public_embeddings[texts] = self._embedder.embed(texts).astype(np.float64)
        return self._public_embeddings[texts]


def label_directions(task: TaskSpec, embed: Callable[[tuple[str, ...]], np.ndarray]) -> np.ndarray:
    """The direction of each label, from public sentences: unit vectors, float64 (L, d)."""
    return directions_of(embed(sentences_of_labels(task)))


def label_sentences(task: TaskSpec | ClassifyTask, label: str) -> tuple[str, str]:
    """The two texts a label is compared by: itself, and its description or a sentence that puts it in context."""
    return label, task.label_descriptions.get(label, f"This text is about {label}.")


def sentences_of_labels(task: TaskSpec | ClassifyTask) -> tuple[str, ...]:
    """The sentences of all labels, two for each, in the order of the labels."""
    return tuple(sentence for label in task.labels for sentence in label_sentences(task, label))


def directions_of(sentences: np.ndarray) -> np.ndarray:
    """The direction of each label from embeddings of :func:`sentences_of_labels`: unit vectors, float64 (L, d)."""
    sums = sentences.astype(np.float64).reshape(len(sentences) // 2, 2, -1).sum(axis=1)
    directions: np.ndarray = sums / np.linalg.norm(sums, axis=1, keepdims=True)
    return directions


def _answer_or_abstain(answer: Callable[[Slot], Output | None], slot: Slot) -> Output | None:
    try:
        return answer(slot)
    except Exception:  # whatever it was, it must not touch the other slots
        return None


def _predict(slot: Slot, labels: Spellings, label_field: str, probe: _Probe, *, alone: bool) -> np.ndarray | None:
    """One slot's label probabilities, float64 (L,), or None; reads nothing but its arguments."""
    scores = _scores(slot, labels, label_field, probe, alone=alone)
    if scores is None:
        return None
    probabilities = _softmax(scores, PUBLIC_TEMPERATURE if alone else TEMPERATURE)
    return probabilities if np.isfinite(probabilities).all() else None


def _scores(slot: Slot, labels: Spellings, label_field: str, probe: _Probe, *, alone: bool) -> np.ndarray | None:
    """s above, float64 (L,); None of a slot without a usable exemplar."""
    usable = [
        (exemplar.embedding, label)
        for exemplar in slot
        if (label := labels.number(exemplar.fields.get(label_field))) is not None
        and exemplar.embedding is not None
        and exemplar.embedding.shape == probe.directions.shape[:1]
    ]
    if not usable:
        return None
    products = np.array([x for x, _ in usable], np.float64) @ probe.directions
    surprise = -_softmax(products[:, 1:])
    for row, (_, y) in zip(surprise, usable, strict=True):  # faster than an index of both, for a few exemplars
        row[y] += 1
    near = products[:, 0]
    steps = ALONE_STEP * _softmax(near, ALONE_NEARNESS) if alone else STEP * np.maximum(near, 0) ** 3
    moved: np.ndarray = probe.scores + (steps[:, None] * surprise).sum(axis=0)
    return moved


def _softmax(scores: np.ndarray, temperature: float = TEMPERATURE) -> np.ndarray:
    weights: np.ndarray = np.exp((scores - scores.max(axis=-1, keepdims=True)) / temperature)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
