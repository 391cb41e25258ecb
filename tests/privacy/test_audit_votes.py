"""The whole pipeline of a classification answer, attacked: sampling, engine, votes, noise.

Two neighbouring knowledge bases differ in one unit, the canary, whose text is the attacker's query word for word, with
another label than everybody else's. Where it is drawn, it flips its slot. The audit must find nothing in the pipeline
as it is, and must catch each broken variant of it.

What the slots answer is drawn once for each setting and shared; every test draws its own noise. The public prior leans
so far to the canary's label that the two labels are about as likely with the canary as they are without, swapped.
"""

from __future__ import annotations

import asyncio
import math
import os
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pytest

import aggregation.rnm_gaussian
import exemplar_store.store
from accounting.privacy.profiles import Gaussian
from aggregation.rnm_gaussian import RnmGaussian
from exemplar_store import ExemplarStore, sampling
from exemplar_store.tables import metadata
from service.embedding.embedder import Embedder
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.records.database import open_database
from tests.privacy.audit import Counts, caught, claim, judge
from tests.privacy.parcels import LABELS, QUERY, TASK, ingest

Trials = list[Sequence[np.ndarray | None]]


@dataclass(frozen=True)
class Setting:
    """How the attacked service is set up.

    Attributes:
        others: units beside the canary; the knowledge base is declared to be larger.
        lead: votes that the public prior has for the canary's label.
    """

    others: int
    probability: float
    ensemble: int
    noise_multiplier: float
    lead: float
    trials: int


EVERYBODY = Setting(others=6, probability=1.0, ensemble=2, noise_multiplier=0.4, lead=1.0, trials=2_000)
SAMPLED = Setting(others=6, probability=0.7, ensemble=2, noise_multiplier=0.4, lead=1.0, trials=1_000)
SELDOM = Setting(others=6, probability=0.3, ensemble=2, noise_multiplier=0.4, lead=1.0, trials=300)
AS_MANY_SLOTS = Setting(others=12, probability=1.0, ensemble=12, noise_multiplier=2.0, lead=8.5, trials=500)


def store_with(others: int, canary: bool, embedder: Embedder) -> ExemplarStore:
    database = open_database("sqlite://")
    metadata.create_all(database)
    store = ExemplarStore(database, os.urandom(32))
    with database.begin() as connection:
        store.create(connection, "audit", public_size=100, fields=["text", "label"], embedded_field="text")
    ingest(store, [f"u{i}" for i in range(others)], "canary" if canary else None, embedder)
    return store


def draw(setting: Setting, engine: NearestExemplarEngine, embedder: Embedder) -> tuple[Trials, Trials]:
    """What the slots answer without the canary and with it, sampled and asked as the service does, trial by trial."""

    async def trials(store: ExemplarStore) -> Trials:
        zero_shot = await engine.zero_shot(TASK, QUERY)  # public: once for all
        drawn = []
        for _ in range(setting.trials):
            slots = store.sample_slots(
                "audit", probability=setting.probability, ensemble=setting.ensemble, max_exemplars=100
            )
            drawn.append(await engine.contributions(TASK, QUERY, slots, zero_shot))
        return drawn

    without, with_canary = (
        asyncio.run(trials(store_with(setting.others, canary, embedder))) for canary in (False, True)
    )
    return without, with_canary


def release(setting: Setting, drawn: tuple[Trials, Trials]) -> Counts:
    """How often each label is released, with fresh noise."""
    mechanism = RnmGaussian(setting.noise_multiplier, len(LABELS), prior_weight=setting.lead)
    prior = np.array([0.0, 1.0])
    without, with_canary = (Counter(mechanism.release(votes, prior) for votes in trials) for trials in drawn)
    return without, with_canary


@pytest.fixture(scope="module")
def everybody(engine, embedder) -> tuple[Trials, Trials]:
    return draw(EVERYBODY, engine, embedder)


RIGHT, TOO_LITTLE = claim(Gaussian(0.4)), claim(Gaussian(0.6))


def test_the_claim_survives_a_strong_attack_on_everybody(everybody) -> None:
    """Strong: a claim for 1.5 times the noise that there is escapes with probability 3e-16."""
    counts = release(EVERYBODY, everybody)
    assert not caught(counts, RIGHT), judge(counts, RIGHT)
    assert caught(counts, TOO_LITTLE), judge(counts, TOO_LITTLE)


def test_a_sensitivity_of_one_is_caught(everybody, monkeypatch: pytest.MonkeyPatch) -> None:
    """Missed with probability 2e-11."""
    monkeypatch.setattr(aggregation.rnm_gaussian, "L2_SENSITIVITY", 1.0)
    counts = release(EVERYBODY, everybody)
    assert caught(counts, RIGHT), judge(counts, RIGHT)


def test_no_noise_is_caught(everybody, monkeypatch: pytest.MonkeyPatch) -> None:
    """Always: the canary's label comes out if and only if the canary is there."""
    monkeypatch.setattr(aggregation.rnm_gaussian, "add_gaussian_noise", lambda votes, _sigma: votes)
    counts = release(EVERYBODY, everybody)
    assert counts[0].keys() == {0}
    assert counts[1].keys() == {1}
    assert caught(counts, RIGHT)


@pytest.fixture(scope="module")
def sampled(engine, embedder) -> Counts:
    return release(SAMPLED, draw(SAMPLED, engine, embedder))


def test_the_claim_survives_with_a_sample(sampled) -> None:
    claimed = claim(Gaussian(SAMPLED.noise_multiplier), SAMPLED.probability)
    assert not caught(sampled, claimed), judge(sampled, claimed)


def test_a_smaller_q_than_the_samplers_is_caught(sampled) -> None:
    """On the same answers; it escapes with probability 7e-15."""
    claimed = claim(Gaussian(SAMPLED.noise_multiplier), 0.25)
    assert caught(sampled, claimed), judge(sampled, claimed)


def test_a_sample_of_fixed_size_is_caught(engine, embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as Poisson sampling expects of the declared size: with fewer units, each is drawn far more often.

    Here all are drawn, against a claim for three in ten; missed with probability 2e-16.
    """

    def fixed_size(positions: int, probability: float) -> np.ndarray:
        size = min(positions, round(probability * 100))
        order = np.argsort(sampling.words(positions))
        return np.sort(order[:size]).astype(np.int64)

    monkeypatch.setattr(exemplar_store.store.sampling, "poisson_sample", fixed_size)
    counts = release(SELDOM, draw(SELDOM, engine, embedder))
    claimed = claim(Gaussian(SELDOM.noise_multiplier), SELDOM.probability)
    assert caught(counts, claimed), judge(counts, claimed)


def test_cutting_a_shuffled_sample_is_caught(engine, embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal pieces of a shuffled sample: one more unit makes every piece larger, and there are fewer of them.

    Twelve votes to none become six to one, which is missed with probability 5e-12.
    """

    def cut_after_shuffle(ensemble: int, count: int) -> np.ndarray:
        slots = np.arange(count) // max(1, math.ceil(count / ensemble))
        return slots[np.argsort(sampling.words(count))].astype(np.int64)

    claimed = claim(Gaussian(AS_MANY_SLOTS.noise_multiplier))
    counts = release(AS_MANY_SLOTS, draw(AS_MANY_SLOTS, engine, embedder))
    assert not caught(counts, claimed), judge(counts, claimed)
    monkeypatch.setattr(exemplar_store.store.sampling, "below", cut_after_shuffle)
    counts = release(AS_MANY_SLOTS, draw(AS_MANY_SLOTS, engine, embedder))
    assert caught(counts, claimed), judge(counts, claimed)
