"""The least mixing is enough, and less is not."""

import math

import numpy as np
import pytest
from scipy.optimize import linprog

from sanitization.audit import audit
from sanitization.mixing import least_mixing
from tests.sanitization.made_up import Rows, random_rows


def some_base_does(law: np.ndarray, beta: float, epsilon: float) -> bool:
    """Whether any law q makes (1-β)·P + β·q private: a linear programme for the masses β·q."""
    lacking = (1 - beta) * (law.max(axis=0) - math.exp(epsilon) * law.min(axis=0))
    m = law.shape[1]
    solved = linprog(
        np.zeros(m), A_ub=-math.expm1(epsilon) * np.eye(m), b_ub=-lacking, A_eq=np.ones((1, m)), b_eq=[beta]
    )
    return solved.status == 0


@pytest.mark.parametrize("seed", range(12))
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 4.0])
def test_it_is_enough_and_no_less_is(seed: int, epsilon: float) -> None:
    law = random_rows(7, 5, seed, zeros=0.4).law
    beta, base = least_mixing(law.max(axis=0), law.min(axis=0), epsilon)
    assert base.sum() == pytest.approx(1)
    assert audit(Rows((1 - beta) * law + beta * base)).epsilon == pytest.approx(epsilon, abs=1e-9)
    assert some_base_does(law, beta * (1 + 1e-6), epsilon)
    assert not some_base_does(law, beta * (1 - 1e-4), epsilon)


def test_a_private_channel_stays_as_it_is() -> None:
    law = random_rows(4, 3, 5).law
    assert least_mixing(law.max(axis=0), law.min(axis=0), audit(Rows(law)).epsilon + 1e-9)[0] == 0


def test_a_mean_of_rows_for_unknown_words_costs_nothing() -> None:
    law = random_rows(7, 5, 3).law
    mean = np.vstack([law, law.mean(axis=0)])
    assert audit(Rows(mean)).epsilon == audit(Rows(law)).epsilon
