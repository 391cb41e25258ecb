"""Releases of a query's spans, by each mechanism, at equal true ε.

A :class:`ReleasedQueries` holds what left *and* its likelihood: usefulness and attacks are measured on the same draws
of the same law. (The paper's code steers with one noise and attacks another.)
"""

from dataclasses import dataclass

import numpy as np
from scipy.special import logsumexp

from research.restore.noises import NOISES
from sanitization.restore import mechanism
from sanitization.restore.profiles import Made, unit_rows
from sanitization.vocabulary import FloatArray

SMALL = 8
"""Dimensions that vectors are projected to (principal axes of public meta vectors), for mechanisms that need few."""


@dataclass(frozen=True, eq=False)
class ReleasedQueries:
    """The values that left for N queries.

    Attributes:
        name: name of the mechanism.
        epsilon: true ε of the mechanism.
        directions: directions that the server steers by, float64 (N, n); of norm 1, unless the mechanism ignores it.
        log_likelihood: log-likelihood of what left for each of M known queries instead, up to what all share; (N, M).
        profiles: profiles that left, if the mechanism releases these; int64 (N,).
    """

    name: str
    epsilon: float
    directions: FloatArray
    log_likelihood: FloatArray
    profiles: np.ndarray | None = None


def by_profile(made: Made, vectors: FloatArray, own: np.ndarray, known: np.ndarray, epsilon: float) -> ReleasedQueries:
    """k-ary randomised response.

    Args:
        made: the book.
        vectors: r_c, (t, n).
        own: the queries' profiles, (N,).
        known: the profiles of known queries, (M,).
        epsilon: asked for.
    """
    channel = mechanism.response(made.book.k, epsilon)
    drawn = channel.draw(own)
    law = np.log(channel.rows(np.arange(made.book.k)))
    return ReleasedQueries(
        f"{made.book.k}-RR", channel.true_epsilon, (made.mixture @ vectors)[drawn], law[known][:, drawn].T, drawn
    )


def by_noise(
    name: str, own: FloatArray, known: FloatArray, axes: FloatArray, epsilon: float, generator: np.random.Generator
) -> ReleasedQueries:
    """Noise on the meta vector.

    Args:
        name: "d_chi", or another of :data:`NOISES` on ``axes``.
        own: Z of the queries, (N, n).
        known: Z of known queries, (M, n).
        axes: orthonormal, (SMALL, n).
        epsilon: true ε.
        generator: generator of the noise.
    """
    if name == "d_chi":
        noise = NOISES[name](epsilon, own.shape[1])
        left = noise.release(own, generator)
        return ReleasedQueries(name, noise.true_epsilon, left, noise.log_density(left, known))
    noise = NOISES[name.removesuffix(" projected")](epsilon, len(axes))
    small, others = unit_rows(own @ axes.T), unit_rows(known @ axes.T)
    left = noise.release(small, generator)
    return ReleasedQueries(
        f"{name}, {len(axes)}-d", noise.true_epsilon, unit_rows(left) @ axes, noise.log_density(left, others)
    )


def principal_axes(known: FloatArray, count: int = SMALL) -> FloatArray:
    """Orthonormal directions that known meta vectors vary along most, uncentred; (count, n)."""
    _, _, axes = np.linalg.svd(known, full_matrices=False)
    return axes[:count]


def attack(release: ReleasedQueries | None, prior: FloatArray, answers: np.ndarray) -> np.ndarray:
    """The most likely answer of each query, for an attacker who sees its redacted text and what left.

    Args:
        release: release that left; None for the redacted text alone.
        prior: log-probability of each answer, given the redacted text; (N, options).
        answers: answers of the known queries, (M,).
    """
    if release is None:
        return np.asarray(prior.argmax(axis=1))
    score = prior.copy()
    for option in range(prior.shape[1]):
        of_it = release.log_likelihood[:, answers == option]
        score[:, option] += logsumexp(of_it, axis=1) - np.log(of_it.shape[1]) if of_it.shape[1] else -np.inf
    return np.asarray(score.argmax(axis=1))


def exact_attack(joint: FloatArray, scores: FloatArray) -> tuple[np.ndarray, float]:
    """The best guess for each thing that may be seen, and its expected score.

    No attack that sees the same, or anything made of it, has a greater one, whatever the score: given what is seen,
    its guess is one of these, or a random one of them, and none has a greater expected score than the best. The
    paper's five attacks see the meta vector (embedding inversion, attribute inference), text or a model's states made
    of it and the redacted text (concatenated text, simulated steering), or the steered model's states and answers.
    All are functions of the redacted text and the profile's number, of public things, and of their own randomness.

    Args:
        joint: probability of each secret together with each thing seen, (s, v).
        scores: score of each guess for each secret, such as an F1 or ROUGE-L, (g, s).

    Returns:
        The numbers of the guesses, (v,), and the expected score.
    """
    expected = scores @ joint
    return np.asarray(expected.argmax(axis=0)), float(expected.max(axis=0).sum())
