"""Fitted calibrations, on rows much like those of the posterior's model and on few."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import special

from aggregation.posterior import SMOOTHING, Calibration
from service.evaluation.fitting import Labelled, fit

DEFAULT = Calibration(prior=1.0, decisiveness=7.0, lead=0.14, echo=1.0)
TRUE = Calibration(prior=1.6, decisiveness=14.0, lead=0.3, echo=0.6)
LABELS, SLOTS = 5, 100


def drawn(rows: int) -> Labelled:
    """As in ``aggregation/posterior.py`` with the parameters TRUE and zero-shot in the shares; all slots vote."""
    rng = np.random.default_rng(5)
    zero_shot = rng.dirichlet(np.ones(LABELS), rows)
    log_p = np.log((1 - SMOOTHING) * zero_shot + SMOOTHING / LABELS)
    truth = np.array([rng.choice(LABELS, p=p) for p in special.softmax(TRUE.prior * log_p, axis=1)])
    power = TRUE.decisiveness / math.log(50)
    shape = power / (TRUE.lead * LABELS)
    means = special.softmax(TRUE.echo * TRUE.prior / power * log_p, axis=1)
    votes = rng.gamma(shape + power * np.eye(LABELS)[truth], means / shape)
    return Labelled(truth, zero_shot, SLOTS * votes)


def test_many_rows_give_the_parameters() -> None:
    found = fit(drawn(4000), SLOTS, DEFAULT)
    assert found.prior == pytest.approx(TRUE.prior, rel=0.1)
    assert found.decisiveness == pytest.approx(TRUE.decisiveness, rel=0.15)
    # In the model zero-shot is not in the shares, and how many slots vote is guessed; these make up for it.
    assert TRUE.lead < found.lead < 2 * TRUE.lead
    assert TRUE.echo < found.echo < TRUE.echo + 0.25


def test_few_rows_move_it_little() -> None:
    few, many = (fit(drawn(rows), SLOTS, DEFAULT) for rows in (6, 600))
    for name in ("prior", "decisiveness", "lead"):
        assert abs(math.log(getattr(few, name) / getattr(DEFAULT, name))) < 0.7 * abs(
            math.log(getattr(many, name) / getattr(DEFAULT, name))
        )


def test_the_same_rows_give_the_same_fit() -> None:
    assert fit(drawn(50), SLOTS, DEFAULT) == fit(drawn(50), SLOTS, DEFAULT)


def test_wrong_zero_shot_is_not_believed() -> None:
    rows = drawn(300)
    misled = Labelled(rows.truth, rows.zero_shot[::-1], rows.votes)
    assert fit(misled, SLOTS, DEFAULT).prior < 0.3
