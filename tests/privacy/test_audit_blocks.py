"""Sampling by blocks, attacked: the whole pipeline of a label with its claim, and the claim of `units` for two answers.

The neighbours share one knowledge base key, so every other unit is in the same block in both. The canary's text is the
attacker's query word for word; where it joins other units' block, it flips that block's vote.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import Counter

import numpy as np
import pytest

from accounting.privacy.events import Event, Sampling
from accounting.privacy.pld import PldAccountant
from accounting.privacy.profiles import BoundedRange, Gaussian
from aggregation.rnm_gaussian import RnmGaussian
from exemplar_store import ExemplarStore
from exemplar_store.tables import knowledge_bases, metadata
from service.embedding.embedder import Embedder
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.records.database import open_database
from tests.privacy.audit import Counts, caught, claim, judge
from tests.privacy.parcels import LABELS, Slots, ingest, voting

BLOCKS = 3
CANARYS = 1  # the canary's block
Answers = tuple[list[Slots], list[Slots]]


def neighbours(embedder: Embedder, others: int) -> list[ExemplarStore]:
    """Without and with the canary, which has ``others`` units in its block; nobody is in the other blocks."""
    databases = [open_database("sqlite://") for _ in range(2)]
    master = os.urandom(32)
    metadata.create_all(databases[0])
    store = ExemplarStore(databases[0], master)
    with databases[0].begin() as connection:
        store.create(connection, "audit", public_size=100, fields=["text", "label"], embedded_field="text")
        keys = store.keyring.of(connection.execute(knowledge_bases.select()).one())
    source, copy = (database.raw_connection().driver_connection for database in databases)
    source.backup(copy)
    stores = [store, ExemplarStore(databases[1], master)]

    def in_the_block(name: str) -> bool:
        return int.from_bytes(keys.unit_tag(name)) * BLOCKS >> 128 == CANARYS

    *units, own = itertools.islice(filter(in_the_block, (f"u{i}" for i in itertools.count())), others + 1)
    for store, canary in zip(stores, (None, own), strict=True):
        ingest(store, units, canary, embedder)
    return stores


def draw(engine: NearestExemplarEngine, embedder: Embedder, *, others: int, probability: float, trials: int) -> Answers:
    """Trial by trial, without the canary and with it."""
    ask = voting(engine)
    without, with_canary = (
        [
            ask(store.sample_blocks("audit", probability=probability, blocks=BLOCKS, max_exemplars=100))
            for _ in range(trials)
        ]
        for store in neighbours(embedder, others)
    )
    return without, with_canary


def release(answers: Answers, noise_multiplier: float, lead: float = 0.0) -> Counts:
    """``lead``: in votes, the public prior's for the label that is not the canary's."""
    mechanism = RnmGaussian(noise_multiplier, len(LABELS), prior_weight=lead)
    prior = np.array([1.0, 0.0])
    without, with_canary = (Counter(mechanism.release(slots, prior) for slots in trials) for trials in answers)
    return without, with_canary


def test_the_claim_survives_a_strong_attack(engine, embedder) -> None:
    """The canary flips its block. The wrong claims escape with probability 8e-17 and 4e-13."""
    counts = release(draw(engine, embedder, others=3, probability=0.8, trials=1_000), 0.4)
    right, smaller_q, more_noise = (claim(Gaussian(z), q, "blocks") for z, q in ((0.4, 0.8), (0.4, 0.4), (0.9, 0.8)))
    assert not caught(counts, right), judge(counts, right)
    assert caught(counts, smaller_q), judge(counts, smaller_q)
    assert caught(counts, more_noise), judge(counts, more_noise)


@pytest.mark.parametrize(("probability", "more_noise"), [(0.8, 2.0), (1.0, 1.5)])
def test_the_claim_survives_where_the_block_was_empty(engine, embedder, probability, more_noise) -> None:
    """The canary's vote is half the change that is claimed for; the wrong claims escape with 2e-20 and 1e-38."""
    counts = release(draw(engine, embedder, others=0, probability=probability, trials=500), 0.2, lead=0.5)
    right, wrong = (claim(Gaussian(z), probability, "blocks") for z in (0.2, more_noise))
    assert not caught(counts, right), judge(counts, right)
    assert caught(counts, wrong), judge(counts, wrong)


# Two answers by randomised response to the canary's block: nobody drawn, or its vote; kept in 15 of 16 cases, else one
# of the two others. The slot's content is replaced, so removing *and* adding a vote are at work at once, and that is
# more than either direction of `units`, composed by itself, allows for.

Q = 0.78
KEPT, CHANGED = 15 / 16, 1 / 32
LOSS = 1.7


def response(value: int) -> np.ndarray:
    return np.where(np.arange(3) == value, KEPT, CHANGED)


def sampled(drawn: int) -> np.ndarray:
    """One answer's distribution, where the block is drawn with probability Q and then gives ``drawn``."""
    return (1 - Q) * response(0) + Q * response(drawn)


def twice(answer: np.ndarray) -> np.ndarray:
    return np.multiply.outer(answer, answer)


def divergence(p: np.ndarray, q: np.ndarray) -> float:
    return float(np.maximum(p - math.exp(LOSS) * q, 0).sum())


COST_BY_UNITS = max(
    divergence(*(twice(answer) for answer in order))
    for order in itertools.permutations((sampled(1), response(0)))  # with the unit and without it
)
COST_BY_BLOCKS = divergence(twice(sampled(2)), twice(sampled(1)))


def test_two_answers_by_blocks_cost_more_than_by_units() -> None:
    """Exactly; and what is charged for blocks is enough. (A ratio of at most 30 is a range of at most 2 ln 30.)"""
    assert COST_BY_BLOCKS > COST_BY_UNITS + 0.2
    event = Event(BoundedRange(2 * math.log(KEPT / CHANGED)), Sampling("blocks", Q), 2)
    assert PldAccountant().bounds([event], COST_BY_BLOCKS).upper > LOSS
