"""The probability of each label as the answer to a prompt, from a language model's next-token log-probabilities.

A label is a sequence of tokens. Together the labels form a trie, and a label's probability is the product, over the
nodes on its way where the trie branches, of the model's probabilities there, normalised over the branches: what
sampling would give if it were constrained to the labels. Labels that differ in their first token cost one question.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

_END = -1
_LEAST = 1e-9  # of probabilities that are divided by or multiplied
_ZERO_SHOT = 0.25
"""The weight of zero-shot's opinion beside a slot's own: with it, votes were worse on no data set by more than chance,
and better where a few exemplars mislead a small model (docs/evaluation.md)."""


def reference(scores: Sequence[np.ndarray], weights: Sequence[float] | None = None) -> np.ndarray:
    """The geometric mean of label probabilities, float64 (L,) each: of several queries the arithmetic one is coarser,
    since it follows those that a model is surest of.

    Args:
        scores: at least one.
        weights: weight of each; equal ones unless given.
    """
    mean: np.ndarray = np.exp(np.average(np.log(np.maximum(scores, _LEAST)), axis=0, weights=weights))
    return mean


def calibrated(
    probabilities: np.ndarray, favoured: np.ndarray | None = None, zero_shot: np.ndarray | None = None
) -> np.ndarray:
    """Label probabilities over those that a model gives to other queries, so that none is favoured whatever is asked.

    Source: contextual calibration (Zhao et al. 2021, arXiv 2102.09690) with texts without content; with questions,
    batch calibration (Zhou et al. 2023, arXiv 2309.17249), here by :func:`reference`. Zero-shot's opinion is pooled
    with a slot's by a weighted product (Genest and Zidek 1986, Statistical Science 1(1), logarithmic pools).

    Args:
        probabilities: probabilities of the labels, float64 (L,).
        favoured: the :func:`reference` of other queries; None: nothing is changed.
        zero_shot: calibrated label probabilities without exemplars, for a slot's.

    Returns:
        float64 (L,), sums to 1.
    """
    if favoured is None:
        return probabilities
    ratios = probabilities / np.maximum(favoured, _LEAST)
    if zero_shot is not None:
        ratios = ratios * np.maximum(zero_shot, _LEAST) ** _ZERO_SHOT
    scores: np.ndarray = ratios / ratios.sum()
    return scores


@dataclass(frozen=True)
class LabelQuestion:
    """Ask a model for log-probabilities of some next tokens.

    Attributes:
        prefix: tokens that follow the prompt.
        tokens: tokens whose log-probabilities are wanted.
    """

    prefix: tuple[int, ...]
    tokens: tuple[int, ...]


class LabelTrie:
    """The questions to ask of a model for each prompt; it makes label probabilities of the replies.

    Args:
        labels: per label its tokens, at least one.
        ends: tokens that end an answer, for labels that others begin with.

    Attributes:
        questions: one per branching node; the same for every prompt.

    Raises:
        ValueError: two labels are the same tokens, a label has none, or labels begin with others and nothing ends one.
    """

    def __init__(self, labels: Sequence[Sequence[int]], ends: Sequence[int]):
        self._labels = [(*label, _END) for label in labels]
        self._ends = tuple(ends)
        if any(len(label) == 1 for label in self._labels):
            raise ValueError("a label has no tokens")
        if len(set(self._labels)) < len(self._labels):
            raise ValueError("two labels are the same tokens")
        branches: dict[tuple[int, ...], dict[int, None]] = {}
        for label in self._labels:
            for depth, token in enumerate(label):
                branches.setdefault(label[:depth], {})[token] = None
        self._branches = {prefix: tuple(tokens) for prefix, tokens in branches.items() if len(tokens) > 1}
        if not self._ends and any(_END in tokens for tokens in self._branches.values()):
            raise ValueError("a label begins with another, and no token ends an answer")
        self.questions = tuple(LabelQuestion(prefix, self._wanted(tokens)) for prefix, tokens in self._branches.items())

    def probabilities(self, replies: Sequence[Mapping[int, float]]) -> np.ndarray:
        """Label probabilities, float64 (L,), that sum to 1.

        Args:
            replies: per question, in order, the log-probability of each of its tokens.

        Raises:
            ValueError: a node whose branches all have probability zero, or a log-probability that is not a number.
        """
        conditional: dict[tuple[tuple[int, ...], int], float] = {}
        for (prefix, tokens), reply in zip(self._branches.items(), replies, strict=True):
            scores = np.array([self._score(token, reply) for token in tokens])
            if not scores.max() > -np.inf:
                raise ValueError("the model gives none of the labels any probability")
            weights = np.exp(scores - scores.max())
            for token, weight in zip(tokens, weights / weights.sum(), strict=True):
                conditional[prefix, token] = float(weight)
        ways = [
            [conditional.get((label[:depth], token), 1.0) for depth, token in enumerate(label)]
            for label in self._labels
        ]
        return np.array([float(np.prod(way)) for way in ways])

    def _wanted(self, tokens: tuple[int, ...]) -> tuple[int, ...]:
        wanted = [token for token in tokens if token != _END]
        return tuple(dict.fromkeys([*wanted, *self._ends] if _END in tokens else wanted))

    def _score(self, token: int, reply: Mapping[int, float]) -> float:
        if token == _END:
            return float(np.logaddexp.reduce([reply[end] for end in self._ends]))
        return float(reply[token])
