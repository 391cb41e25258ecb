"""Sampling by blocks, attacked: the whole pipeline of a label with its claim, and the claim of `units` for two answers.

The neighbours share one knowledge base key, so every other unit is in the same block in both. The canary's text is the
attacker's query word for word; where it joins other units' block, it flips that block's vote.
"""

from __future__ import annotations

import asyncio
import io
import itertools
import json
import math
import os
import secrets
from collections.abc import Callable, Sequence

import numpy as np
import pytest

from accounting.events import Event, Sampling
from accounting.pld import PldAccountant
from accounting.profiles import BoundedRange, Gaussian
from accounting.subsampling import amplify
from aggregation.rnm_gaussian import RnmGaussian
from exemplar_store import ExemplarStore, Layout, Slot, read_json_lines
from exemplar_store.tables import knowledge_bases, metadata
from service.database import open_database
from service.embedding import Embedder
from service.engines import Prompt, TaskSpec
from service.engines.nearest_exemplar import NearestExemplarEngine
from tests.privacy.attacks import attack
from tests.privacy.audit import Verdict, epsilon_lower_bound

QUERY = {"text": "The parcel arrived with a broken lid."}
LABELS = ("delivery", "music")
TASK = TaskSpec("audit.task", LABELS, Prompt("", "{text}: {label}", "{text}:"))
BLOCKS = 3
CANARYS = 1  # the canary's block
Slots = Sequence[np.ndarray | None]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder(threads=1)


@pytest.fixture(scope="module")
def engine(embedder: Embedder) -> NearestExemplarEngine:
    return NearestExemplarEngine(embedder)


def neighbours(embedder: Embedder, others: int) -> list[ExemplarStore]:
    """Without and with the canary, which has ``others`` units in its block; nobody is in the other blocks."""
    databases = [open_database("sqlite://") for _ in range(2)]
    master = os.urandom(32)
    metadata.create_all(databases[0])
    store = ExemplarStore(databases[0], master)
    with databases[0].begin() as connection:
        store.create(connection, "audit", public_size=100, fields=["text", "label"], embedded_field="text")
        keys = store.data_keys.of(connection, connection.execute(knowledge_bases.select()).one())
    source, copy = (database.raw_connection().driver_connection for database in databases)
    source.backup(copy)
    stores = [store, ExemplarStore(databases[1], master)]

    def in_the_block(name: str) -> bool:
        return int.from_bytes(keys.unit_tag(name)) * BLOCKS >> 128 == CANARYS

    names = itertools.islice(filter(in_the_block, (f"u{i}" for i in itertools.count())), others + 1)
    rows = [{"unit_id": u, "text": f"Where is my parcel number {i}?", "label": "delivery"} for i, u in enumerate(names)]
    rows[-1] |= {**QUERY, "label": "music"}
    for store, upload in zip(stores, (rows[:-1], rows), strict=True):
        stream = io.BytesIO("".join(json.dumps(row) + "\n" for row in upload).encode())
        store.ingest("audit", read_json_lines(stream, Layout(("text", "label"))), embedder.embed)
    return stores


def votes(store: ExemplarStore, engine: NearestExemplarEngine, probability: float) -> Callable[[], Slots]:
    """Draws a sample and asks the engine about it, as the service does; about the same slot only once."""
    loop = asyncio.new_event_loop()
    zero_shot = loop.run_until_complete(engine.zero_shot(TASK, QUERY))
    known: dict[tuple[str, ...], np.ndarray | None] = {}

    def vote(slot: Slot) -> np.ndarray | None:
        texts = tuple(exemplar.fields["text"] for exemplar in slot)
        if texts not in known:
            (known[texts],) = loop.run_until_complete(engine.contributions(TASK, QUERY, [slot], zero_shot))
        return known[texts]

    def draw() -> Slots:
        slots = store.sample_blocks("audit", probability=probability, blocks=BLOCKS, max_exemplars=100)
        return [vote(slot) for slot in slots]

    return draw


def run_audit(
    engine: NearestExemplarEngine,
    embedder: Embedder,
    *,
    others: int,
    lead: float,
    probability: float = 0.8,
    claimed_probability: float | None = None,
    trials: int = 5_000,
) -> list[Verdict]:
    """``lead``: in votes, the public prior's for the label that is not the canary's. It sets the attack's threshold."""
    z = 0.5
    mechanism = RnmGaussian(z, len(LABELS), prior_weight=lead)
    prior = np.array([1.0, 0.0])

    def release(draw: Callable[[], Slots]) -> Callable[[], int]:
        return lambda: mechanism.release(draw(), prior)

    one, other = (release(votes(store, engine, probability)) for store in neighbours(embedder, others))
    (pair,) = amplify(Gaussian(z), Sampling("blocks", claimed_probability or probability))
    return attack(one, other, delta=pair.delta, losses=(1.0, 2.0, 3.0), trials=trials)


def test_the_claim_survives_a_strong_attack(engine, embedder) -> None:
    """Strong: an audit that sees nothing would pass too. (Expected: 0.46 of the claim; 0.37 once in 300,000 runs.)"""
    verdicts = run_audit(engine, embedder, others=3, lead=1.0)
    for verdict in verdicts:
        assert not verdict.caught, verdict
    assert max(verdict.lower_bound / verdict.claimed for verdict in verdicts) > 0.3, verdicts


@pytest.mark.parametrize("probability", [0.3, 1.0])
def test_the_claim_survives_whether_the_block_was_empty_or_not(engine, embedder, probability) -> None:
    for others in (0, 1):
        for verdict in run_audit(engine, embedder, others=others, lead=0.5, probability=probability, trials=1_500):
            assert not verdict.caught, verdict


def test_a_smaller_q_than_the_samplers_is_caught(engine, embedder) -> None:
    verdicts = run_audit(engine, embedder, others=3, lead=1.0, claimed_probability=0.2, trials=3_000)
    assert any(verdict.caught for verdict in verdicts), verdicts


# Two answers by randomised response to the canary's block: nobody drawn, or its vote; kept in 20 of 21 cases, else one
# of the two others. The slot's content is replaced, so removing *and* adding a vote are at work at once, and that is
# more than either direction of `units`, composed by itself, allows for.

Q = 0.8
KEPT, CHANGED = 20 / 21, 1 / 42
LOSS = 1.9


def randomised(votes: Slots) -> int:
    """0 for no vote, 1 and 2 for the labels."""
    given = [1 + int(np.argmax(vote)) for vote in votes if vote is not None]
    assert len(given) <= 1
    value = given[0] if given else 0
    return value if secrets.randbelow(21) else (value + 1 + secrets.randbelow(2)) % 3


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
    """Exactly; and what is charged for blocks is enough. (A ratio of at most 40 is a range of at most 2 ln 40.)"""
    assert COST_BY_BLOCKS > COST_BY_UNITS + 0.2
    event = Event(BoundedRange(2 * math.log(KEPT / CHANGED)), Sampling("blocks", Q), 2)
    assert PldAccountant().bounds([event], COST_BY_BLOCKS).upper > LOSS


def test_the_claim_of_units_is_caught_where_blocks_are_drawn(engine, embedder) -> None:
    trials = 5_000
    event = twice(sampled(2)) > math.exp(LOSS) * twice(sampled(1))
    hits = []
    for store in neighbours(embedder, others=3):
        draw = votes(store, engine, Q)
        hits.append(sum(bool(event[randomised(draw()), randomised(draw())]) for _ in range(trials)))
    assert Verdict(COST_BY_UNITS, LOSS, epsilon_lower_bound(*hits, trials, COST_BY_UNITS)).caught
    assert not Verdict(COST_BY_BLOCKS, LOSS, epsilon_lower_bound(*hits, trials, COST_BY_BLOCKS)).caught
