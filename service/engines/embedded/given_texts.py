"""Texts that the embedded engine answers with. It writes none: they are exemplars' responses, or public anyway.

A slot's output is the response of its exemplar nearest to the query. Where responses were embedded when they were
ingested, it comes with that embedding, so that none is computed from a private slot's output. Candidates are the
task's public answers, the most similar to the query first. An answer that neither an exemplar nor a public answer gives
is out of reach.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from service.engines.task import Embedded

if TYPE_CHECKING:
    from exemplar_store import Slot


def rank(query: np.ndarray, texts: Sequence[str], embeddings: np.ndarray, count: int) -> tuple[str, ...]:
    """Up to ``count`` different texts by the cosine of their embeddings with the query's, equals in their order.

    Args:
        query: embedding of the query, of norm 1, shape (d,).
        texts: n texts.
        embeddings: embeddings of the texts, of norm 1, shape (n, d).
        count: most texts wanted.
    """
    cosines = (embeddings.astype(np.float64) * query).sum(axis=1)
    return tuple(dict.fromkeys(texts[i] for i in np.argsort(-cosines, kind="stable")))[:count]


def nearest_response(slot: Slot, answer_field: str, query: np.ndarray, *, embedded: bool) -> str | Embedded | None:
    """The response of the slot's exemplar nearest to the query; the first of equals.

    Exemplars without a usable embedding or a response are passed over; None where none is left.

    Args:
        slot: the exemplars.
        answer_field: the one that holds the response.
        query: embedding of the query, of norm 1, float64 (d,).
        embedded: whether the response comes with its stored embedding; exemplars without one are passed over, too.
    """
    best: str | Embedded | None = None
    best_cosine = -np.inf
    for exemplar in slot:
        response, x, of_response = exemplar.fields.get(answer_field), exemplar.embedding, exemplar.response_embedding
        if not response or not response.strip() or x is None or x.shape != query.shape:
            continue
        if embedded and (of_response is None or of_response.shape != query.shape):
            continue
        cosine = float((x.astype(np.float64) * query).sum())
        if cosine > best_cosine:  # never for NaN
            best = response if not embedded or of_response is None else Embedded(response, of_response)
            best_cosine = cosine
    return best
