"""Labels by sentence similarity: the embedded engine, which needs no language model and no GPU.

**This is no LLM.** It compares texts by the cosine of their all-MiniLM-L6-v2 embeddings, so it suits topics and
falls short of a language model wherever reading matters: negation, sentiment, arithmetic, instructions. A prompt's
instruction does not influence it.

With q the query's embedding, e_l a label's (:func:`label_sentences`), and a slot of exemplars (x_j, y_j):

    zero-shot   z_l = <q, e_l>                                                              p = softmax(z / T)
    slot        s_l = z_l + b * sum_j max(<q, x_j>, 0)**3 * (1[y_j = l] - softmax(<x_j, e> / T)_l)
                                                                                            p = softmax(s / T)

which is the label sentences' classifier after one gradient step of kernel logistic regression on the slot: an
exemplar moves the prediction by how near it is to the query and by how much its label surprises the label sentences.
Since the exemplars' part is a sum, 100 slots agree on more than the best of them knows.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from service.embedding import TextEmbedder
from service.engines import EngineInfo, EngineUnavailableError, TaskSpec, ZeroShot

if TYPE_CHECKING:
    from exemplar_store import Slot

# T, b and the cube were chosen on parts held out of the training sets of AG News and TREC: accuracy of hard and soft
# votes of 100 slots of 4 exemplars, with noise of σ = 0, 4 and 10 on the votes. A square with b = 16 is as accurate
# there, but lets unrelated exemplars outvote the label sentences where all exemplars are of one domain.
TEMPERATURE = 0.075
STEP = 100.0


@dataclass(frozen=True)
class _Probe:
    """The public part of a query, computed once and used for every slot.

    Attributes:
        directions: float64 (d, 1 + L), the embedding of the query, then those of the label sentences.
        scores: float64 (L,), z above.
    """

    directions: np.ndarray
    scores: np.ndarray


class NearestExemplarEngine:
    """The engine ``nearest_exemplar``; see the module for what it computes and what it cannot do.

    Isolation: every slot is computed by itself, by operations whose shapes are those of that slot alone, from
    embeddings that were taken one text at a time; nothing random, nothing cached but public label sentences.
    """

    INFO = EngineInfo(
        name="nearest_exemplar",
        isolation="each slot is computed by itself on the CPU; outputs are bit-identical whatever the others hold",
        is_llm=False,
        notice="No language model: labels come from the similarity of sentence embeddings.",
    )

    def __init__(self, embedder: TextEmbedder) -> None:
        self._embedder = embedder
        self._label_embeddings: dict[tuple[str, ...], np.ndarray] = {}

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        """See :meth:`service.engines.Engine.zero_shot`; costs one embedding."""
        if task.input_field not in query:
            raise ValueError(f"the query of task {task.name!r} needs the field {task.input_field!r}")
        try:
            labels = await asyncio.to_thread(self._embed_labels, task)
            vector = (await asyncio.to_thread(self._embedder.embed, [query[task.input_field]]))[0]
        except RuntimeError as error:
            raise EngineUnavailableError(f"nearest_exemplar cannot embed the query: {error}") from error
        q = vector.astype(np.float64)
        scores = (labels * q).sum(axis=1)
        return ZeroShot(_softmax(scores), context=_Probe(np.column_stack([q, *labels]), scores))

    async def contributions(
        self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot
    ) -> list[np.ndarray | None]:
        """See :meth:`service.engines.Engine.contributions`.

        An exemplar without an embedding, or whose label is not one of the task's, is passed over; a slot left
        with none abstains.
        """
        index = {label: i for i, label in enumerate(task.labels)}
        return [_predict_or_abstain(slot, index, task.answer_field, zero_shot.context) for slot in slots]

    def describe(self) -> EngineInfo:
        """See :meth:`service.engines.Engine.describe`."""
        return self.INFO

    async def health(self) -> None:
        """See :meth:`service.engines.Engine.health`."""
        try:
            await asyncio.to_thread(self._embedder.embed, ["ready"])
        except RuntimeError as error:
            raise EngineUnavailableError(f"nearest_exemplar cannot embed: {error}") from error

    def _embed_labels(self, task: TaskSpec) -> np.ndarray:
        """One unit vector per label, the direction of its sentences' sum; float64 (L, d), kept for the next query."""
        sentences = tuple(sentence for label in task.labels for sentence in label_sentences(task, label))
        if sentences not in self._label_embeddings:
            sums = self._embedder.embed(sentences).astype(np.float64).reshape(len(task.labels), 2, -1).sum(axis=1)
            self._label_embeddings[sentences] = sums / np.linalg.norm(sums, axis=1, keepdims=True)
        return self._label_embeddings[sentences]


def label_sentences(task: TaskSpec, label: str) -> tuple[str, str]:
    """The two texts a label is compared by: itself, and its description or a sentence that puts it in context."""
    return label, task.label_descriptions.get(label, f"This text is about {label}.")


def _predict_or_abstain(slot: Slot, index: Mapping[str, int], label_field: str, probe: _Probe) -> np.ndarray | None:
    try:
        return _predict(slot, index, label_field, probe)
    except Exception:  # whatever it was, it must not touch the other slots
        return None


def _predict(slot: Slot, index: Mapping[str, int], label_field: str, probe: _Probe) -> np.ndarray | None:
    """One slot's label probabilities, float64 (L,), or None; reads nothing but its arguments."""
    usable = [
        (exemplar.embedding, index[exemplar.fields[label_field]])
        for exemplar in slot
        if exemplar.fields.get(label_field) in index
        and exemplar.embedding is not None
        and exemplar.embedding.shape == probe.directions.shape[:1]
    ]
    if not usable:
        return None
    products = np.stack([x for x, _ in usable]).astype(np.float64) @ probe.directions
    surprise = -_softmax(products[:, 1:])
    surprise[np.arange(len(usable)), [y for _, y in usable]] += 1
    nearness = np.maximum(products[:, 0], 0) ** 3
    probabilities = _softmax(probe.scores + STEP * (nearness[:, None] * surprise).sum(axis=0))
    return probabilities if np.isfinite(probabilities).all() else None


def _softmax(scores: np.ndarray) -> np.ndarray:
    weights: np.ndarray = np.exp((scores - scores.max(axis=-1, keepdims=True)) / TEMPERATURE)
    weights /= weights.sum(axis=-1, keepdims=True)
    return weights
