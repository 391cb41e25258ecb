"""Measures restoration and leakage: accuracy with its controls, and attacks, at equal true ε.

Accuracy alone proves nothing: where answers can be guessed from the redacted text or from how common they are, a vector
that carries no information looks as good. So each figure stands beside these controls: the commonest answer, an
attacker who sees the redacted text only, one vector tuned for all, and another person's vector.
"""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import torch

from research.restore.data import RedactedRows
from research.restore.model import Head, SteeredModel
from research.restore.orpo import Vectors
from research.restore.probes import fit_logistic
from research.restore.releases import ReleasedQueries, attack, by_noise, by_profile, principal_axes
from sanitization.restore import mechanism
from sanitization.restore.profiles import Made, meta_products
from sanitization.restore.publishing import Controls
from sanitization.restore.spans import put_back
from sanitization.vocabulary import FloatArray

_NOISES = ("d_chi", "d_chi projected", "vmf", "privunit")
_WORDS = re.compile(r"\w+")


@dataclass(frozen=True)
class Cell:
    """One mechanism at one ε; steering, text (of profiles only) and attack use the same draws."""

    mechanism: str
    epsilon: float
    steered: float
    as_text: float | None
    attacker: float
    """The better of two guesses: the likeliest answer given redacted text and release, and the model's own answer."""


@dataclass(frozen=True, eq=False)
class Evaluation:
    """Measures on one part of the data; attackers know the training part.

    Attributes:
        model: the language model.
        heads: K heads of it.
        vectors: restoration vectors.
        train: data that attackers know.
        data: data to measure on.
        options: number of possible answers.
        placeholder: placeholder in redacted texts.
    """

    model: SteeredModel
    heads: Sequence[Head]
    vectors: Vectors
    train: RedactedRows
    data: RedactedRows
    options: int
    placeholder: str

    @cached_property
    def _prior(self) -> FloatArray:
        return prior(self.train.redacted, self.train.answers, self.data.redacted, self.options)

    @cached_property
    def _own(self) -> FloatArray:
        return _meta(self.vectors, self.data)

    @cached_property
    def _known(self) -> FloatArray:
        return _meta(self.vectors, self.train)

    def controls(self, made: Made, constant: Vectors, seed: int) -> Controls:
        """All but mechanisms."""
        data = self.data
        profiles = self._profiles(made, data)
        common = np.bincount(self.train.answers).argmax()
        always = constant.steering(np.ones((len(data), 1)))
        return Controls(
            full=self._right(self.model.choose(data.texts)),
            redacted=self._right(self.model.choose(data.redacted)),
            restored=self._right(self._steer(self._own)),
            own_profile=self._right(self._steer((made.mixture @ self.vectors.flat)[profiles])),
            own_profile_as_text=self._right(self._fill(made, profiles)),
            another=self._right(self._steer(self._own[_others(data.answers, seed)])),
            constant=self._right(self.model.choose(data.redacted, always, self.heads)),
            option_prior=float((data.answers == common).mean()),
            redacted_attacker=float((attack(None, self._prior, self.train.answers) == data.answers).mean()),
        )

    def profiles_at(self, made: Made, epsilon: float) -> Cell:
        """k-ary randomised response at an ε."""
        own, known = self._profiles(made, self.data), self._profiles(made, self.train)
        release = by_profile(made, self.vectors.flat, own, known, epsilon)
        text = self._right(self._fill(made, release.profiles)) if release.profiles is not None else None
        return self._cell(release, text)

    def table(
        self, books: Sequence[Made], epsilons: Sequence[float], seed: int, progress: Callable[[str], None]
    ) -> list[Cell]:
        """Every mechanism at every true ε."""
        cells, axes, tabled = [], principal_axes(self._known), set[float]()
        for epsilon in epsilons:
            progress(f"ε = {epsilon:g}")
            # No client asks with more, so beside the paper's noise, whose true ε is 150, stands what 20 gives.
            served = min(epsilon, mechanism.LARGEST_EPSILON)
            cells += [self.profiles_at(made, served) for made in books if served not in tabled]
            tabled.add(served)
            for name in _NOISES:
                generator = np.random.default_rng([seed, int(1e6 * epsilon)])
                release = by_noise(name, self._own, self._known, axes, epsilon, generator)
                cells.append(self._cell(release, None))
        return cells

    def _cell(self, release: ReleasedQueries, as_text: float | None) -> Cell:
        guessed = attack(release, self._prior, self.train.answers)
        steered = self._right(self._steer(release.directions))
        # The operator of the model sees its answers, too.
        attacker = max(float((guessed == self.data.answers).mean()), steered, as_text or 0.0)
        return Cell(release.name, release.epsilon, steered, as_text, attacker)

    def _profiles(self, made: Made, data: RedactedRows) -> np.ndarray:
        products = meta_products(self.vectors.flat @ self.vectors.flat.T, data.weights, made.mixture)
        return np.where(data.weights.sum(axis=1) > 0, 1 + products[:, 1:].argmax(axis=1), 0)

    def _steer(self, directions: FloatArray) -> torch.Tensor:
        shaped = directions.reshape(len(directions), len(self.heads), self.model.head_size)
        vectors = torch.tensor(self.vectors.scale * shaped, dtype=torch.float32)
        return self.model.choose(self.data.redacted, vectors, self.heads)

    def _fill(self, made: Made, profiles: np.ndarray) -> torch.Tensor:
        medoids = made.book.medoids
        return self.model.choose(
            [
                put_back(text, medoids[profile], self.placeholder)
                for text, profile in zip(self.data.redacted, profiles, strict=True)
            ]
        )

    def _right(self, chosen: torch.Tensor) -> float:
        return float((chosen.numpy() == self.data.answers).mean())


def _meta(vectors: Vectors, data: RedactedRows) -> FloatArray:
    """Z, float64 (N, n)."""
    steering = vectors.steering(data.weights).flatten(1).double().numpy()
    return steering / vectors.scale


def _others(answers: np.ndarray, seed: int) -> np.ndarray:
    """The number of another query for each query, at random among those with another answer."""
    generator = np.random.default_rng(seed)
    return np.array([generator.choice(np.flatnonzero(answers != answer)) for answer in answers])


def prior(known: Sequence[str], answers: np.ndarray, texts: Sequence[str], options: int) -> FloatArray:
    """Log-probabilities of answers given the words of redacted texts, by softmax regression; (N, options).

    Args:
        known: redacted texts to learn from.
        answers: their answers, (M,).
        texts: redacted texts to guess about, N.
        options: number of possible answers.
    """
    place = {word: at for at, word in enumerate(sorted({word for text in known for word in _WORDS.findall(text)}))}

    def bag(texts: Sequence[str]) -> torch.Tensor:
        counts = torch.zeros(len(texts), len(place))
        for row, text in enumerate(texts):
            for word in _WORDS.findall(text):
                if word in place:
                    counts[row, place[word]] = 1
        return counts

    labels = torch.nn.functional.one_hot(torch.tensor(answers), options).float()
    weight, intercept = fit_logistic(bag(known)[None], labels, exclusive=True)
    logits = bag(texts) @ weight[0] + intercept[0]
    return logits.log_softmax(-1).double().numpy()
