"""Noise on vectors: its true ε, and what the paper's released code did instead."""

import numpy as np
import pytest
from scipy.stats import kstest

from research.restore.noises import NOISES, DChi, PrivUnit, VonMisesFisher

pytestmark = pytest.mark.model

RUNS = 4000


def unit(size: int, at: int = 0) -> np.ndarray:
    return np.eye(size)[at : at + 1]


@pytest.mark.parametrize("name", NOISES)
@pytest.mark.parametrize("epsilon", [1.0, 6.0])
def test_true_epsilon(name: str, epsilon: float) -> None:
    """Log-ratios of densities at points released for opposite vectors: never above ε, and ε is reached."""
    noise = NOISES[name](epsilon, 4)
    generator = np.random.default_rng(5)
    ends = np.concatenate([unit(4), -unit(4)])
    points = np.concatenate([noise.release(np.repeat(ends, 500, axis=0), generator), 50 * ends, ends])
    if name != "d_chi":
        points = points / np.linalg.norm(points, axis=1, keepdims=True)
    density = noise.log_density(points, ends)
    loss = np.abs(density[:, 0] - density[:, 1])
    assert loss.max() <= epsilon + 1e-9
    assert loss.max() >= 0.99 * epsilon


def likelihood_ratio_z(noise: VonMisesFisher | PrivUnit, claimed: float) -> float:
    """How far e^(loss) averages from 1 over releases for a vector, in standard errors: by its own density it is 1.

    Loss is the log-density at the opposite vector minus that at the vector, as the claimed ε has it.
    """
    ends = np.concatenate([unit(noise.size), -unit(noise.size)])
    points = noise.release(np.repeat(unit(noise.size), 40_000, axis=0), np.random.default_rng(6))
    density = type(noise)(claimed, noise.size).log_density(points, ends)
    ratio = np.exp(density[:, 1] - density[:, 0])
    return float((ratio.mean() - 1) / (ratio.std() / np.sqrt(len(ratio))))


def test_von_mises_fisher_is_drawn_by_its_density() -> None:
    assert abs(likelihood_ratio_z(VonMisesFisher(1.0, 6), 1.0)) < 5
    assert abs(likelihood_ratio_z(VonMisesFisher(1.0, 6), 1.5)) > 10  # less noise was claimed than drawn


@pytest.mark.parametrize("epsilon", [0.5, 4.0])
def test_privunit_hits_its_cap(epsilon: float) -> None:
    noise = PrivUnit(epsilon, 8)
    released = noise.release(np.repeat(unit(8, 2), RUNS, axis=0), np.random.default_rng(7))
    np.testing.assert_allclose(np.linalg.norm(released, axis=1), 1, atol=1e-9)
    inside = (released[:, 2] >= noise.threshold).mean()
    assert abs(inside - noise.hit) < 5 * np.sqrt(noise.hit * (1 - noise.hit) / RUNS) + 1e-12
    # Means of ⟨Z, R⟩ at other thresholds are smaller: the chosen one is the best.
    means = []
    for threshold in (noise.threshold, max(0.0, noise.threshold - 0.2), min(0.99, noise.threshold + 0.2)):
        uniform = np.random.default_rng(8).standard_normal((400_000, 8))
        along = uniform[:, 0] / np.linalg.norm(uniform, axis=1)
        share = (along >= threshold).mean()
        hit = share / (share + np.exp(-epsilon) * (1 - share)) if share else 0.0
        means.append(hit * along[along >= threshold].mean() + (1 - hit) * along[along < threshold].mean())
    assert means[0] >= max(means[1:]) - 0.01
    assert released[:, 2].mean() == pytest.approx(means[0], abs=0.06)


class TestErrorOne:
    """E1: the released code gives the whole vector one scalar of noise."""

    size, epsilon = 400, 20.0

    def test_noise_has_the_length_of_its_size(self) -> None:
        noise = DChi(self.epsilon, self.size)
        zero = np.repeat(unit(self.size), RUNS, axis=0)
        length = np.linalg.norm(noise.release(zero, np.random.default_rng(9)) - zero, axis=1)
        eta = self.epsilon / 2
        assert abs(length.mean() - self.size / eta) < 3 * np.sqrt(self.size) / eta / np.sqrt(RUNS)
        assert kstest(length, "gamma", args=(self.size, 0, 1 / eta)).pvalue > 1e-6

    def test_the_scalar_twin_is_caught_and_undone(self) -> None:
        generator = np.random.default_rng(10)
        vectors = generator.standard_normal((50, self.size))
        vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
        twin = vectors + generator.gamma(1, 2 / self.epsilon, (50, 1))  # n = shape[0] = 1
        length = np.linalg.norm(twin - vectors, axis=1)
        assert abs(length.mean() - 2 * self.size / self.epsilon) > 3 * np.sqrt(self.size) * 2 / self.epsilon
        # An attacker who knows the code subtracts the mean difference to each candidate, and sees which leaves nothing.
        residual = twin[:, None, :] - vectors[None]
        residual -= residual.mean(axis=2, keepdims=True)
        np.testing.assert_array_equal((residual**2).sum(axis=2).argmin(axis=1), np.arange(50))
        honest = DChi(self.epsilon, self.size).release(vectors, generator)
        found = (((honest[:, None] - vectors[None]) ** 2).sum(axis=2)).argmin(axis=1)
        assert (found == np.arange(50)).mean() < 0.9

    def test_a_vector_of_another_size_is_refused(self) -> None:
        with pytest.raises(ValueError, match="size 400"):
            DChi(self.epsilon, self.size).release(np.ones((1, 1)), np.random.default_rng())
