"""Attacks on the whole pipeline of a classification answer: sampling, engine, votes, noise.

Two neighbouring knowledge bases differ in one unit, the canary, whose text is the attacker's query word for word, with
a label that no other unit has. Where it is drawn, it flips its slot. The audit must find nothing in the pipeline
as it is, and must catch each broken variant of it.

The slots' answers are drawn once for each setting and shared; every test draws its own noise. The public prior favours
the canary's label just enough for the canary to swap, roughly, the probabilities of the two labels.
"""

from __future__ import annotations

import os
from collections import Counter

import numpy as np
import pytest

import aggregation.rnm_gaussian
from accounting.privacy.profiles import Gaussian
from aggregation.rnm_gaussian import RnmGaussian
from exemplar_store import ExemplarStore
from exemplar_store.tables import metadata
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.embedding.embedder import Embedder
from service.records.database import open_database
from tests.privacy.audit import Counts, caught, claim, judge
from tests.privacy.parcels import LABELS, Slots, ingest, voting

pytestmark = pytest.mark.slow

Trials = list[Slots]

OTHERS, SLOTS, Z, LEAD = 6, 2, 0.4, 1.0
"""Units beside the canary, slots, the noise multiplier, and the public prior's votes for the canary's label."""


def store_with(canary: bool, embedder: Embedder) -> ExemplarStore:
    database = open_database("sqlite://")
    metadata.create_all(database)
    store = ExemplarStore(database, os.urandom(32))
    with database.begin() as connection:
        store.create(connection, "audit", public_size=100, fields=["text", "label"], embedded_field="text")
    ingest(store, [f"u{i}" for i in range(OTHERS)], "canary" if canary else None, embedder)
    return store


def draw(q: float, number: int, engine: NearestExemplarEngine, embedder: Embedder) -> tuple[Trials, Trials]:
    """The slots' answers in each trial without the canary and with it, sampled and asked for as in the service."""
    ask = voting(engine)
    without, with_canary = (
        [ask(store.sample_slots("audit", probability=q, ensemble=SLOTS, max_exemplars=100)) for _ in range(number)]
        for store in (store_with(canary, embedder) for canary in (False, True))
    )
    return without, with_canary


def release(drawn: tuple[Trials, Trials]) -> Counts:
    """How often each label is released, with fresh noise."""
    mechanism = RnmGaussian(Z, len(LABELS), prior_weight=LEAD)
    prior = np.array([0.0, 1.0])
    without, with_canary = (Counter(mechanism.release(votes, prior) for votes in trials) for trials in drawn)
    return without, with_canary


@pytest.fixture(scope="module")
def all_units(engine, embedder) -> tuple[Trials, Trials]:
    return draw(1.0, 2_000, engine, embedder)


RIGHT, TOO_LITTLE = claim(Gaussian(Z)), claim(Gaussian(1.5 * Z))


def test_the_claim_survives_a_strong_attack_on_all_units(all_units) -> None:
    """A claim for 1.5 times the noise escapes with probability 3e-16."""
    counts = release(all_units)
    assert not caught(counts, RIGHT), judge(counts, RIGHT)
    assert caught(counts, TOO_LITTLE), judge(counts, TOO_LITTLE)


def test_a_sensitivity_of_one_is_caught(all_units, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bug is missed with probability 2e-11."""
    monkeypatch.setattr(aggregation.rnm_gaussian, "L2_SENSITIVITY", 1.0)
    counts = release(all_units)
    assert caught(counts, RIGHT), judge(counts, RIGHT)


def test_the_claim_survives_with_a_sample(engine, embedder) -> None:
    """A claim for a smaller q than the sampler's escapes on the same answers with probability 7e-15."""
    counts = release(draw(0.7, 1_000, engine, embedder))
    right, wrong = (claim(Gaussian(Z), q) for q in (0.7, 0.25))
    assert not caught(counts, right), judge(counts, right)
    assert caught(counts, wrong), judge(counts, wrong)
