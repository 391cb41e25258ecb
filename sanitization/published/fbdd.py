"""FBDD, or d_χ privacy on words (Feyisetan, Balle, Drake, Diethe: "Privacy- and Utility-Preserving Textual Analysis via
Calibrated Multivariate Perturbations", WSDM 2020, arXiv 1910.08902). DYNTEXT's baseline, and two of PrivacyRestore's.

Noise N with density proportional to e^(-ε‖N‖) is added to a word's vector, and the nearest word is sent. The noisy
vector alone gives ε·d(x,x′) metric privacy, and the nearest word is computed from it. So over a vocabulary the true ε
is at most ε times the diameter, and a text of n words costs n times that. This holds as claimed.

In d dimensions ‖N‖ is about d/ε, many times the diameter, so the word that is sent hardly depends on the word.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
from scipy import sparse
from typing_extensions import override

from sanitization.channel import OnWords
from sanitization.vocabulary import FloatArray, IntArray, Vocabulary, blocks

DRAWS = 20_000


@dataclass(frozen=True)
class Fbdd(OnWords):
    """The nearest word to a vector with noise. Its law has no closed form and is estimated, for comparison only.

    Noise is drawn once, on the vectors of all words in turn, and each word weighs these same points by its own density
    over that of all words (importance sampling). So the estimates of two words differ by their laws, not by chance.

    Args:
        epsilon: nominal ε, per unit of distance; above 0.
        draws: number of points.
        seed: seed of the points.
    """

    epsilon: float
    draws: int = DRAWS
    seed: int = 0

    @property
    def bound(self) -> float:
        """ε·diameter. No true ε of this channel is larger."""
        return self.epsilon * self.vocabulary.diameter

    @cached_property
    def _points(self) -> npt.NDArray[np.float32]:
        """Noisy vectors, (draws, d)."""
        rng, words = np.random.default_rng(self.seed), self.vocabulary.vectors
        noise = metric_noise(words.shape[1], self.epsilon, self.draws, rng)
        return (words[np.arange(self.draws) % len(words)] + noise).astype(np.float32)

    @cached_property
    def _seen(self) -> tuple[sparse.csr_array, FloatArray]:
        """Which point becomes which word, (n, draws), and the logarithm of all words' mean density at each point."""
        becomes, density = np.zeros(self.draws, dtype=np.int64), np.zeros(self.draws)
        for some in blocks(self.draws):
            distance = _distances(self._points[some], self.vocabulary.vectors)
            becomes[some] = distance.argmin(axis=1)
            least = distance.min(axis=1)
            more = np.exp(-self.epsilon * (distance - least[:, None])).mean(axis=1)
            density[some] = np.log(more) - self.epsilon * least
        shape = (len(self.vocabulary), self.draws)
        return sparse.csr_array((np.ones(self.draws), (becomes, np.arange(self.draws))), shape=shape), density

    @override
    def rows(self, x: IntArray) -> FloatArray:
        becomes, density = self._seen
        distance = _distances(self.vocabulary.vectors[x], self._points)
        weights = np.exp(-self.epsilon * distance - density)
        law: FloatArray = np.asarray((becomes @ weights.T).T)
        return law / law.sum(axis=1, keepdims=True)


@dataclass(frozen=True)
class FbddOnSpans(Fbdd):
    """FBDD on the words of marked spans only; the others are sent as they are (PrivacyRestore, appendix L.2).

    There people mark what is private. Here the rarest words are, as in SANTEXT+. Which words are marked shows: among
    the marked ones ε is at most :attr:`bound`, over all words it is infinite.

    Args:
        private_share: share of the words, the rarest, that are marked.
    """

    private_share: float = 0.5

    @cached_property
    def private(self) -> IntArray:
        """The marked words, in order."""
        count = max(1, round(self.private_share * len(self.vocabulary)))
        return np.sort(np.argsort(-self.vocabulary.shares, kind="stable")[-count:])

    @override
    def rows(self, x: IntArray) -> FloatArray:
        law = np.zeros((len(x), len(self.vocabulary)))
        marked = np.isin(x, self.private)
        law[marked] = super().rows(x[marked])
        law[~marked, x[~marked]] = 1
        return law


def metric_noise(dimensions: int, epsilon: float, count: int, rng: np.random.Generator) -> FloatArray:
    """Noise with density proportional to e^(-ε‖N‖): a uniform direction, a length by Gamma(d, 1/ε). (count, d)."""
    directions = rng.normal(size=(count, dimensions))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    return directions * rng.gamma(dimensions, 1 / epsilon, size=(count, 1))


def nominal_epsilon(budget: float, words: int, vocabulary: Vocabulary) -> float:
    """The nominal ε at which a text of that number of words costs the budget (PrivacyRestore, appendix M)."""
    return budget / (words * vocabulary.diameter)


def _distances(some: npt.ArrayLike, others: npt.ArrayLike) -> npt.NDArray[np.float32]:
    """Rounded to 24 bits, which is far below the error of an estimate, and twice as fast."""
    a, b = np.asarray(some, dtype=np.float32), np.asarray(others, dtype=np.float32)
    squares = np.einsum("ij,ij->i", a, a)[:, None] + np.einsum("ij,ij->i", b, b)
    squares -= 2 * (a @ b.T)
    return np.sqrt(np.maximum(squares, 0, out=squares), out=squares)
