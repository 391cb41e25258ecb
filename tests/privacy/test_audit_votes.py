"""The whole pipeline of a classification answer, attacked: sampling, engine, votes, noise.

Two neighbouring knowledge bases differ in one unit, the canary, whose text is the attacker's query word for word, with
another label than everybody else's. Where it is drawn, it flips its slot. The audit must find nothing in the pipeline
as it is, and must catch each broken variant of it.
"""

from __future__ import annotations

import asyncio
import io
import json
import math
import os
from collections.abc import Callable, Sequence

import numpy as np
import pytest

import aggregation.rnm_gaussian
import exemplar_store.store
from accounting.profiles import Gaussian
from aggregation.rnm_gaussian import RnmGaussian
from exemplar_store import ExemplarStore, Layout, read_json_lines, sampling
from exemplar_store.tables import metadata
from service.database import open_database
from service.embedding import Embedder
from service.engines import Prompt, TaskSpec
from service.engines.nearest_exemplar import NearestExemplarEngine
from tests.privacy.audit import Verdict, audit

QUERY = {"text": "The parcel arrived with a broken lid."}
LABELS = ("delivery", "music")
TASK = TaskSpec("audit.task", LABELS, Prompt("", "{text}: {label}", "{text}:"))
Draw = Callable[[], int]


@pytest.fixture(scope="module")
def engine() -> NearestExemplarEngine:
    return NearestExemplarEngine(Embedder(threads=1))


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(threads=1)


def store_with(units: int, canary: bool, embedder: Embedder) -> ExemplarStore:
    database = open_database("sqlite://")
    metadata.create_all(database)
    store = ExemplarStore(database, os.urandom(32))
    with database.begin() as connection:
        store.create(connection, "audit", public_size=100, fields=["text", "label"], embedded_field="text")
    rows = [{"unit_id": f"u{i}", "text": f"Where is my parcel number {i}?", "label": "delivery"} for i in range(units)]
    if canary:
        rows.append({"unit_id": "canary", **QUERY, "label": "music"})
    stream = io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())
    store.ingest("audit", read_json_lines(stream, Layout(("text", "label"))), embedder.embed)
    return store


def pipeline(
    store: ExemplarStore, engine: NearestExemplarEngine, *, probability: float, ensemble: int, noise_multiplier: float
) -> Draw:
    """Draws answers as the service does; the public zero-shot call is made once."""
    mechanism = RnmGaussian(noise_multiplier, len(LABELS))
    loop = asyncio.new_event_loop()
    zero_shot = loop.run_until_complete(engine.zero_shot(TASK, QUERY))
    assert zero_shot.probabilities.argmax() == 0

    def draw() -> int:
        slots = store.sample_slots("audit", probability=probability, ensemble=ensemble, max_exemplars=100)
        contributions = loop.run_until_complete(engine.contributions(TASK, QUERY, slots, zero_shot))
        return mechanism.release(contributions, zero_shot.probabilities)

    return draw


def run_audit(
    engine: NearestExemplarEngine,
    embedder: Embedder,
    *,
    units: int,
    probability: float,
    ensemble: int,
    noise_multiplier: float,
    trials: int,
    deltas: Sequence[float],
    claimed_probability: float | None = None,
) -> list[Verdict]:
    draws = [
        pipeline(
            store_with(units, canary, embedder),
            engine,
            probability=probability,
            ensemble=ensemble,
            noise_multiplier=noise_multiplier,
        )
        for canary in (False, True)
    ]
    return audit(
        *draws,
        labels=len(LABELS),
        trials=trials,
        mechanism=Gaussian(noise_multiplier),
        probability=probability if claimed_probability is None else claimed_probability,
        deltas=deltas,
    )


# Every unit takes part: the sensitivity is laid bare. The attack is the optimal one (a threshold on the difference of
# two votes, which moves by its full range), so a claim that is 5 % too low would be caught.
EVERYBODY = {
    "units": 12,
    "probability": 1.0,
    "ensemble": 3,
    "noise_multiplier": 1.0,
    "trials": 8_000,
    "deltas": (0.02, 0.05, 0.1),
}
# Few units, in a knowledge base declared to be larger: each takes part with the claimed probability all the same.
SAMPLED = {
    "units": 20,
    "probability": 0.2,
    "ensemble": 2,
    "noise_multiplier": 0.5,
    "trials": 8_000,
    "deltas": (0.005, 0.02, 0.05),
}


def test_the_claim_survives_a_strong_attack_on_everybody(engine, embedder) -> None:
    """Strong: an audit that sees nothing would pass too, so it must find at least half of what is claimed."""
    verdicts = run_audit(engine, embedder, **EVERYBODY)
    for verdict in verdicts:
        assert not verdict.caught, verdict
    assert max(verdict.lower_bound / verdict.claimed for verdict in verdicts) > 0.5


def test_the_claim_survives_with_a_sample(engine, embedder) -> None:
    for verdict in run_audit(engine, embedder, **SAMPLED):
        assert not verdict.caught, verdict


def test_a_sensitivity_of_one_is_caught(engine, embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation.rnm_gaussian, "L2_SENSITIVITY", 1.0)
    assert any(verdict.caught for verdict in run_audit(engine, embedder, **EVERYBODY))


def test_a_smaller_q_than_the_samplers_is_caught(engine, embedder) -> None:
    assert any(v.caught for v in run_audit(engine, embedder, claimed_probability=0.05, **SAMPLED))


def test_no_noise_is_caught(engine, embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(aggregation.rnm_gaussian, "add_gaussian_noise", lambda votes, _sigma: votes)
    setting = {**EVERYBODY, "ensemble": 1, "trials": 200}
    assert any(verdict.caught for verdict in run_audit(engine, embedder, **setting))


def test_a_sample_of_fixed_size_is_caught(engine, embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """As many as Poisson sampling expects of the declared size: with fewer units, each is drawn far more often."""

    def fixed_size(positions: int, probability: float) -> np.ndarray:
        size = min(positions, round(probability * 100))
        order = np.argsort(sampling.words(positions))
        return np.sort(order[:size]).astype(np.int64)

    monkeypatch.setattr(exemplar_store.store.sampling, "poisson_sample", fixed_size)
    assert any(verdict.caught for verdict in run_audit(engine, embedder, **SAMPLED))


def test_cutting_a_shuffled_sample_is_caught(engine, embedder, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal pieces of a shuffled sample: one more unit makes every piece larger, and there are fewer of them."""

    def cut_after_shuffle(ensemble: int, count: int) -> np.ndarray:
        slots = np.arange(count) // max(1, math.ceil(count / ensemble))
        return slots[np.argsort(sampling.words(count))].astype(np.int64)

    monkeypatch.setattr(exemplar_store.store.sampling, "below", cut_after_shuffle)
    setting = {**EVERYBODY, "units": 12, "ensemble": 12, "noise_multiplier": 2.0}
    assert any(verdict.caught for verdict in run_audit(engine, embedder, **setting))


def test_independent_slots_survive_where_cutting_fails(engine, embedder) -> None:
    for verdict in run_audit(engine, embedder, **{**EVERYBODY, "units": 12, "ensemble": 12, "noise_multiplier": 2.0}):
        assert not verdict.caught, verdict


def test_the_canary_flips_its_slot(engine, embedder) -> None:
    """Three slots of twelve units, all drawn, hardly any noise: 2 to 1 against the canary, whatever the slots."""
    for canary, flipped in ((False, 0), (True, 1)):
        store = store_with(12, canary, embedder)
        zero_shot = asyncio.run(engine.zero_shot(TASK, QUERY))
        slots = store.sample_slots("audit", probability=1.0, ensemble=3, max_exemplars=100)
        outputs = asyncio.run(engine.contributions(TASK, QUERY, slots, zero_shot))
        votes = [int(np.argmax(output)) for output in outputs if output is not None]
        assert votes.count(1) == flipped
