"""Answers taken from the query's own document: which of its lines, learnt from the slot in one step.

A document is cut into units: its lines, or its sentences where it has fewer than three lines. With q the query's
embedding, e_u a unit's, and a slot of exemplars (x_j, d_j, r_j), embedding, document and response:

    candidates  runs of one to four neighbouring units, by the cosine of their summed embeddings with q
    slot        W = sum_j n_j * sum_v (y_v - mean y) * phi(v),   n_j = max(<q, x_j>, 0)**POWER
                one after the other the unit u with most  cos(e_u + sum of those taken, q) + STEP * <W, phi(u)>

where v runs over the units of d_j, y_v is the share of v's keywords that r_j has too, and phi are sparse features of
norm 1 (:func:`_features`): the unit's words and those above it, its shape, its place. So a slot shows what kind of
line was the answer of such a question. Units are taken until they have about as many words as the slot's responses,
and put out in the order of the document.

This is not reading: an answer that no line contains, or that must be put in other words, is out of reach.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aggregation.keywords import keywords
from service.engines.task import Embedded

if TYPE_CHECKING:
    from exemplar_store import Slot

MOST_UNITS = 200
"""Most units of a document; what follows is not read."""
LONGEST_RUN = 4

# Chosen with the features by ROUGE-1 of single slots of 4 exemplars, on 80 dialogues of SAMSum's training set and 100
# questions on 25 of SROIE's receipts. Smaller steps find more dates and fewer names of shops.
STEP = 2.0
POWER = 6
_PLACES = 4
_COUNTED = 4
_SHAPE = 40

_SENTENCE_END = re.compile(r"(?<=[.!?])\s+")
_LETTERS = re.compile(r"[^\W\d_]+")
_DIGITS = re.compile(r"\d+")


@dataclass(frozen=True)
class ExtractionProbe:
    """The public part of a query, computed once and used for every slot.

    Attributes:
        query: float64 (d,), its embedding.
        units: the n units of its document.
        embeddings: float32 (n, d), embeddings of the units.
        similarity: float64 (n,), <q, e_u>.
        gram: float64 (n, n), the units' embeddings with each other.
        columns: number of each feature that the units have, below F.
        entries: int64 (2, m), unit and feature of every entry of phi.
        values: float64 (m,), the entries.
    """

    query: np.ndarray
    units: tuple[str, ...]
    embeddings: np.ndarray
    similarity: np.ndarray
    gram: np.ndarray
    columns: Mapping[str, int]
    entries: np.ndarray
    values: np.ndarray


def split(document: str) -> tuple[str, ...]:
    """The units of a document, at most :data:`MOST_UNITS`: lines, or sentences where there are fewer than three."""
    lines = [line for line in map(str.strip, document.splitlines()) if line]
    if len(lines) < 3:
        lines = [part for line in lines for part in _SENTENCE_END.split(line)]
    return tuple(lines[:MOST_UNITS])


def probe(query: np.ndarray, units: Sequence[str], embeddings: np.ndarray) -> ExtractionProbe:
    """Prepare a query.

    Args:
        query: embedding of the query, of norm 1, shape (d,).
        units: units of its document.
        embeddings: embeddings of the units, of norm 1, shape (n, d).
    """
    features = [sorted(names) for names in _features(units)]
    columns = {name: i for i, name in enumerate(sorted({name for names in features for name in names}))}
    entries = [(u, columns[name]) for u, names in enumerate(features) for name in names]
    values = [len(names) ** -0.5 for names in features for _ in names]
    precise = embeddings.astype(np.float64)
    return ExtractionProbe(
        query.astype(np.float64),
        tuple(units),
        embeddings.astype(np.float32),
        (precise * query).sum(axis=1),
        precise @ precise.T,
        columns,
        np.array(entries, np.int64).reshape(-1, 2).T,
        np.array(values, np.float64),
    )


def candidates(query: np.ndarray, units: Sequence[str], embeddings: np.ndarray, count: int) -> tuple[str, ...]:
    """Up to ``count`` different runs of neighbouring units, joined by spaces, the most similar to the query first."""
    sums = np.concatenate([np.zeros((1, embeddings.shape[1])), np.cumsum(embeddings, axis=0, dtype=np.float64)])
    runs = []
    for length in range(1, min(LONGEST_RUN, len(units)) + 1):
        totals = sums[length:] - sums[:-length]
        cosines = (totals * query).sum(axis=1) / np.maximum(np.linalg.norm(totals, axis=1), 1e-9)
        runs += [(-cosine, start, length) for start, cosine in enumerate(cosines)]
    texts = dict.fromkeys(" ".join(units[start : start + length]) for _, start, length in sorted(runs))
    return tuple(texts)[:count]


def extract(slot: Slot, document_field: str, answer_field: str, probe: ExtractionProbe) -> Embedded | None:
    """One slot's answer, or None for a slot with nothing to learn from; reads nothing but its arguments.

    Its embedding is the direction of the sum of its units' embeddings, which are public, so nothing is embedded here.

    Exemplars without a usable embedding, document or response are passed over, and so are those that the query is at
    no acute angle with.
    """
    weights = np.zeros(len(probe.columns))
    nearness_sum = length_sum = 0.0
    for exemplar in slot:
        document, response = exemplar.fields.get(document_field), exemplar.fields.get(answer_field)
        x = exemplar.embedding
        if not document or not response or x is None or x.shape != probe.query.shape:
            continue
        nearness = max(float((x.astype(np.float64) * probe.query).sum()), 0.0) ** POWER
        units, length = split(document), len(response.split())
        if not units or not length:
            continue
        _learn(weights, nearness, units, response, probe.columns)
        nearness_sum += nearness
        length_sum += nearness * length
    if not nearness_sum or not probe.units:
        return None
    learnt = np.bincount(probe.entries[0], weights=probe.values * weights[probe.entries[1]], minlength=len(probe.units))
    return _choose(probe, STEP * learnt, length_sum / nearness_sum) if np.isfinite(learnt).all() else None


def _learn(
    weights: np.ndarray, nearness: float, units: Sequence[str], response: str, columns: Mapping[str, int]
) -> None:
    """Add one exemplar's part of W to ``weights``, float64 (F,), as far as the query has its features."""
    wanted = keywords(response)
    shares = []
    for unit in units:
        words = keywords(unit)
        shares.append(len(words & wanted) / len(words) if words else 0.0)
    mean = sum(shares) / len(shares)
    for share, names in zip(shares, _features(units), strict=True):
        amount = nearness * (share - mean) * len(names) ** -0.5
        for name in names & columns.keys():  # in any order: each adds to a number of its own
            weights[columns[name]] += amount


def _choose(probe: ExtractionProbe, learnt: np.ndarray, length: float) -> Embedded:
    """Take units by the formula of the module while that brings their number of words nearer to ``length``."""
    taken: list[int] = []
    words, similarity, square = 0, 0.0, 0.0  # of the sum of the taken units' embeddings
    with_sum = np.zeros(len(probe.units))
    while len(taken) < len(probe.units):
        norms = np.sqrt(np.maximum(square + 2 * with_sum + np.diagonal(probe.gram), 1e-9))
        scores = (similarity + probe.similarity) / norms + learnt
        scores[taken] = -np.inf
        best = int(np.argmax(scores))
        more = len(probe.units[best].split())
        if taken and abs(words + more - length) >= abs(words - length):
            break
        taken.append(best)
        words += more
        similarity += probe.similarity[best]
        square += 2 * with_sum[best] + probe.gram[best, best]
        with_sum += probe.gram[best]
    total = probe.embeddings[taken].astype(np.float64).sum(axis=0)
    direction = (total / max(float(np.linalg.norm(total)), 1e-9)).astype(np.float32)
    return Embedded(" ".join(probe.units[u] for u in sorted(taken)), direction)


def _features(units: Sequence[str]) -> list[set[str]]:
    """Features of each unit: its words and those of the two above, its shape, its place, its length, its copies."""
    described = []
    copies = Counter(units)
    words = [keywords(unit) for unit in units]
    last = max(len(units) - 1, 1)
    for u, unit in enumerate(units):
        shape = _DIGITS.sub("9", _LETTERS.sub("a", unit))[:_SHAPE]
        place = u / last * _PLACES
        names = {
            f"shape {shape}",
            f"place {int(place)}",
            f"place {int(place + 0.5)} and a half",  # places overlap: near a border two units still share one
            f"length {min(len(unit.split()), 12).bit_length()}",
            f"copies {min(copies[unit], 3)}",
        }
        names.update(f"part {shape[i : i + 2]}" for i in range(len(shape) - 1))
        names.update(f"word {word}" for word in words[u])
        names.update(f"above {word}" for word in (words[u - 1] if u else ("nothing",)))
        if u > 1:
            names.update(f"two above {word}" for word in words[u - 2])
        if u < _COUNTED:
            names.add(f"from top {u}")
        if len(units) - u <= _COUNTED:
            names.add(f"from bottom {len(units) - u}")
        described.append(names)
    return described
