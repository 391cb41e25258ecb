import numpy as np
import pytest

from aggregation.noise import ONE, from_fixed_point
from aggregation.votes import L2_SENSITIVITY, sum_votes


def test_hard_votes_count_the_most_probable_label() -> None:
    votes = sum_votes([np.array([0.2, 0.5, 0.3]), np.array([0.1, 0.8, 0.1]), np.array([1.0, 0, 0])], 3, "hard")
    assert votes.tolist() == [ONE, 2 * ONE, 0]


def test_soft_votes_add_probabilities() -> None:
    votes = sum_votes([np.array([0.25, 0.5, 0.25]), np.array([0.5, 0.5, 0.0])], 3, "soft")
    assert from_fixed_point(votes).tolist() == [0.75, 1.0, 0.25]


def test_the_sensitivity_is_that_of_two_labels() -> None:
    assert pytest.approx(2, rel=1e-15) == L2_SENSITIVITY**2
