"""The study of releases that measure themselves, on made-up rows."""

import math

import numpy as np
import pytest

from research.studies.measured import release


@pytest.mark.parametrize("mixed", [0, 90])
def test_a_release_states_about_what_is_found(mixed: int) -> None:
    """Rows of three labels that lie around three directions; some have another label by chance."""
    draws = np.random.default_rng(3)
    labels = draws.integers(3, size=900)
    vectors = np.eye(16)[labels] + draws.normal(scale=0.1, size=(900, 16))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    labels[:mixed] = draws.integers(3, size=mixed)
    sentences = np.repeat(np.eye(16, dtype=np.float32)[:3], 2, axis=0)
    stated, found, new = release(1.0, vectors, labels, sentences)
    assert new == 270
    assert stated.units == pytest.approx(126, abs=60)  # a fifth of 630, six standard deviations
    error = math.hypot(stated.standard_error, math.sqrt(max(found * (1 - found), 0.02) / new))
    assert abs(stated.accuracy - found) < 6 * error
    assert found > 0.8
    assert (found < 0.99) == (mixed > 0)
