"""E2: usefulness and attacks are measured on one release, by one law."""

import numpy as np
import pytest

from research.restore.releases import attack, by_noise, by_profile, principal_axes
from sanitization.restore import mechanism
from tests.sanitization.restore.made_up import made, vectors

pytestmark = pytest.mark.model

GENERATOR = np.random.default_rng(0)
UNIT = GENERATOR.standard_normal((60, 24))
UNIT /= np.linalg.norm(UNIT, axis=1, keepdims=True)


@pytest.mark.parametrize("epsilon", [0.5, 20.0])
def test_what_steers_is_what_is_attacked(epsilon: float) -> None:
    one, own, known = made(), np.arange(40) % 4, np.array([0, 3, 1])
    release = by_profile(one, vectors(), own, known, epsilon)
    assert release.profiles is not None
    np.testing.assert_array_equal(release.directions, (one.mixture @ vectors())[release.profiles])
    law = mechanism.response(4, epsilon).rows(np.arange(4))
    for row, drawn in enumerate(release.profiles):
        np.testing.assert_allclose(np.exp(release.log_likelihood[row]), law[known, drawn])
    assert epsilon - 1e-6 < release.epsilon <= epsilon
    assert (release.profiles == own).all() == (epsilon == 20)  # misses once in 10⁷ runs


@pytest.mark.parametrize("name", ["d_chi", "d_chi projected", "vmf", "privunit"])
def test_noise_without_privacy_is_read_by_the_attacker(name: str) -> None:
    """At a huge ε the same vectors that steer reveal whose they are; at a small one they reveal nothing."""
    answers = np.arange(20)
    prior = np.zeros((20, 20))
    axes = principal_axes(UNIT[:20])
    seen = {}
    for epsilon in (0.01, 1e5):
        release = by_noise(name, UNIT[:20], UNIT[:20], axes, epsilon, np.random.default_rng(1))
        assert release.epsilon == epsilon
        assert release.directions.shape == (20, 24)
        seen[epsilon] = float((attack(release, prior, answers) == answers).mean())
    assert seen[0.01] <= 0.3
    if name != "privunit":  # it only shows in whose cap a vector is, and caps overlap
        assert seen[1e5] >= 0.95


def test_an_attacker_weighs_what_left_against_what_is_frequent() -> None:
    release = by_profile(made(), vectors(), np.array([1]), np.array([1, 2, 3]), 20.0)
    answers = np.array([0, 1, 2])
    even = np.log(np.full((1, 3), 1 / 3))
    assert attack(release, even, answers)[0] == 0
    certain = np.log(np.array([[1e-30, 1 - 2e-30, 1e-30]]))
    assert attack(release, certain, answers)[0] == attack(None, certain, answers)[0] == 1
    assert attack(release, even, np.array([1, 1, 2]))[0] == 1  # no candidate has answer 0
