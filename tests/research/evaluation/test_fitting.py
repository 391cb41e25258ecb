"""Fitted calibrations, on rows much like those of the posterior's model and on few."""

import math

import numpy as np
import pytest
from scipy import special

from aggregation.posterior import SMOOTHING, PosteriorParameters
from research.evaluation.fitting import Labelled, fit, fit_temperature

pytestmark = pytest.mark.lengthy

DEFAULT = PosteriorParameters(prior=1.0, decisiveness=7.0, lead=0.14, echo=1.0)
TRUE = PosteriorParameters(prior=1.6, decisiveness=14.0, lead=0.3, echo=0.6)
LABELS, SLOTS = 5, 100
SIGMA, LOUD = 4.0, 60.0


def drawn(rows: int) -> Labelled:
    """Rows by the model of ``aggregation/posterior.py``, with the parameters TRUE and zero-shot in the shares.

    All slots vote.
    """
    rng = np.random.default_rng(5)
    zero_shot = rng.dirichlet(np.ones(LABELS), rows)
    log_p = np.log((1 - SMOOTHING) * zero_shot + SMOOTHING / LABELS)
    truth = np.array([rng.choice(LABELS, p=p) for p in special.softmax(TRUE.prior * log_p, axis=1)])
    power = TRUE.decisiveness / math.log(50)
    shape = power / (TRUE.lead * LABELS)
    means = special.softmax(TRUE.echo * TRUE.prior / power * log_p, axis=1)
    votes = rng.gamma(shape + power * np.eye(LABELS)[truth], means / shape)
    return Labelled(truth, zero_shot, SLOTS * votes)


@pytest.mark.slow
def test_many_rows_give_the_parameters_that_the_noise_leaves_to_be_seen() -> None:
    little, much = (fit(drawn(800), sigma, SLOTS, DEFAULT) for sigma in (SIGMA, LOUD))
    assert little.decisiveness == pytest.approx(TRUE.decisiveness, rel=0.15)
    assert TRUE.echo - 0.25 < little.echo < TRUE.echo + 0.25
    assert much.prior == pytest.approx(TRUE.prior, rel=0.1)
    for found in (little, much):
        assert found.weights == pytest.approx((1,) * LABELS, rel=0.25)


@pytest.mark.slow
def test_labels_that_are_rarer_than_the_engine_thinks_weigh_less() -> None:
    """One row in four of label 0 is kept, and all rows of the other labels; votes or zero-shot decide."""
    rows = drawn(800)
    kept = np.flatnonzero((rows.truth != 0) | (np.random.default_rng(6).random(len(rows.truth)) < 0.25))
    for sigma in (SIGMA, LOUD):
        weights = np.array(fit(rows.only(kept), sigma, SLOTS, DEFAULT).weights)
        assert weights[0] / weights[1:] == pytest.approx(np.full(LABELS - 1, 0.25), rel=0.35)


@pytest.mark.slow
def test_few_rows_move_it_little() -> None:
    few, many = (abs(math.log(fit(drawn(rows), LOUD, SLOTS, DEFAULT).prior)) for rows in (6, 600))
    assert few < 0.7 * many


@pytest.mark.slow
def test_wrong_zero_shot_is_not_believed() -> None:
    rows = drawn(300)
    misled = Labelled(rows.truth, rows.zero_shot[::-1], rows.votes)
    assert fit(misled, LOUD, SLOTS, DEFAULT).prior < 0.3


def test_the_temperature_is_that_of_which_rows_were_drawn() -> None:
    rng = np.random.default_rng(7)
    cosines = rng.uniform(-0.2, 0.4, (2000, LABELS))
    truth = np.array([rng.choice(LABELS, p=p) for p in special.softmax(cosines / 0.15, axis=1)])
    assert fit_temperature(truth, cosines[None], 0.04) == pytest.approx(0.15, rel=0.1)
    few = fit_temperature(truth[:1], cosines[None, :1], 0.04)
    assert abs(math.log(few / 0.04)) < 1.5
