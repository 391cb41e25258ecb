"""The whole pipeline of free-text answers, attacked: sampling, engine, the service's aggregation, noise.

As for votes, two neighbouring knowledge bases differ in one unit, the canary, whose text is the attacker's query word
for word. Where it is drawn, its slot answers with its response instead of everybody else's. Embeddings are those of a
compass, on which the two responses are opposite points: the worst case of a mean. (The worst case of ranked keywords
needs slots that differ, and is attacked in ``test_audit_joint_em``.)
"""

from __future__ import annotations

import asyncio
import io
import json
import os
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import pytest

from accounting.plan import TaskNoise
from accounting.profiles import BoundedRange, Gaussian, Mechanism, ProposeTestRelease
from accounting.tasks import GenerateTask
from exemplar_store import ExemplarStore, Layout, read_json_lines
from exemplar_store.tables import metadata
from service.aggregating import Answer, prepare
from service.database import open_database
from service.engines import Sentence
from service.engines.nearest_exemplar import NearestExemplarEngine
from service.queries import task_spec
from tests.privacy.audit import Counts, caught, claim, judge

QUERY = {"text": "Which way to the harbour?"}
COMPASS = {QUERY["text"]: (0.0, 1.0), "left": (-1.0, 0.0), "right": (1.0, 0.0)}
ELSEWHERE = (0.6, 0.8)
RARE = [f"lane{i}" for i in range(20)]
TURNS = ["right", *(f"turn{i}" for i in range(29))]


class Compass:
    """Embeds in two dimensions."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([COMPASS.get(text.split()[0], COMPASS.get(text, ELSEWHERE)) for text in texts], np.float32)


@dataclass(frozen=True)
class Case:
    """A mechanism, and a setting in which one event tells the neighbours apart.

    Attributes:
        mechanism: as in a plan.
        given: its noise, and what is claimed.
        weaker: a claim for more noise, which must be caught.
        event: whether an answer speaks for the canary.
        usual: what everybody answers.
        canary: what the canary answers.
        others: units beside the canary.
    """

    mechanism: dict[str, object]
    given: Mechanism
    weaker: Mechanism
    event: Callable[[Answer], bool]
    usual: str
    canary: str
    others: int
    ensemble: int


# A claim for the smaller q escapes with probability 2e-23 at most; the weaker claims with 1e-14, 2e-19 and 1e-11.
TRIALS = 1_000
Q, SMALLER_Q = 0.8, 0.3
CASES = {
    "embedding_mean": Case(
        mechanism={"type": "embedding_mean"},
        given=Gaussian(0.4),
        weaker=Gaussian(0.9),
        event=lambda answer: answer["text"] == "right",
        usual="left",
        canary="right",
        others=6,
        ensemble=1,
    ),
    "keyword_joint_em": Case(  # a fifth of ε: the worst case of ranked words is another one
        mechanism={"type": "keyword_joint_em", "k": 2},
        given=BoundedRange(10.0),
        weaker=BoundedRange(2.0),
        event=lambda answer: answer["keywords"][0] in TURNS,
        usual="left",
        canary=" ".join(TURNS),
        others=12,
        ensemble=3,
    ),
    "keyword_ptr": Case(  # a lead of four slots, or of two, which passes as seldom as none
        mechanism={"type": "keyword_ptr", "k_min": 1, "k_max": 1},
        given=ProposeTestRelease(0.01, 0.4, 0.1),
        weaker=ProposeTestRelease(0.01, 1.0, 0.1),
        event=lambda answer: bool(answer["fallback"]),
        usual="left",
        canary="right",
        others=16,
        ensemble=4,
    ),
}


def store_with(case: Case, canary: bool) -> ExemplarStore:
    database = open_database("sqlite://")
    metadata.create_all(database)
    store = ExemplarStore(database, os.urandom(32))
    with database.begin() as connection:
        store.create(connection, "audit", public_size=100, fields=["text", "response"], embedded_field="text")
    rows = [{"unit_id": f"u{i}", "text": f"Way {i}?", "response": case.usual} for i in range(case.others)]
    if canary:
        rows.append({"unit_id": "canary", **QUERY, "response": case.canary})
    stream = io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())
    store.ingest("audit", read_json_lines(stream, Layout(("text", "response"))), Compass().embed)
    return store


def draw(case: Case) -> Counts:
    """How often the event happens without and with the canary, as the service answers; the probe is asked once."""
    engine = NearestExemplarEngine(Compass())
    task = GenerateTask.model_validate(
        {
            "kind": "generate",
            "prompt": {"exemplar": "{text}: {response}", "query": "{text}:"},
            "shots": 1,
            "ensemble": case.ensemble,
            "answers": 1,
            "public_answers": ["left", "right"],
            "mechanism": case.mechanism,
        }
    )
    spec = task_spec("audit.task", task, "audit", "text")
    noise = TaskNoise(sampling_probability=Q, mechanism=case.given)

    async def sentence(words: Sequence[str], _ordered: bool) -> Sentence:
        return Sentence(" ".join(words), "words")

    async def answers(store: ExemplarStore) -> Counter[bool]:
        zero_shot = await engine.zero_shot(spec, QUERY)
        query = {"text": " ".join([QUERY["text"], *TURNS, *RARE])}  # the attacker knows which words to offer
        aggregator = await prepare(task, noise, query, zero_shot, embed=Compass().embed, reconstruct=sentence)
        counts: Counter[bool] = Counter()
        for _ in range(TRIALS):
            slots = store.sample_slots(
                "audit", probability=noise.sampling_probability, ensemble=task.ensemble, max_exemplars=100
            )
            outputs = await engine.contributions(spec, QUERY, slots, zero_shot)
            counts[case.event(await aggregator.release(outputs))] += 1
        return counts

    without, with_canary = (asyncio.run(answers(store_with(case, canary))) for canary in (False, True))
    return without, with_canary


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_claim_survives_and_weaker_ones_are_caught(case: Case) -> None:
    """On the same answers: the claim made, one for a smaller q, and one for more noise."""
    counts = draw(case)
    right, smaller_q, more_noise = claim(case.given, Q), claim(case.given, SMALLER_Q), claim(case.weaker, Q)
    assert not caught(counts, right), judge(counts, right)
    assert caught(counts, smaller_q), judge(counts, smaller_q)
    assert caught(counts, more_noise), judge(counts, more_noise)
