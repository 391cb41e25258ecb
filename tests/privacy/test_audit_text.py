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
from tests.privacy.audit import Verdict, judge

QUERY = {"text": "Which way to the harbour?"}
COMPASS = {QUERY["text"]: (0.0, 1.0), "left": (-1.0, 0.0), "right": (1.0, 0.0)}
ELSEWHERE = (0.6, 0.8)
TOP, RARE = "left", [f"lane{i}" for i in range(20)]
TURNS = ["right", *(f"turn{i}" for i in range(29))]


class Compass:
    """Embeds in two dimensions."""

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        return np.array([COMPASS.get(text.split()[0], COMPASS.get(text, ELSEWHERE)) for text in texts], np.float32)


@dataclass(frozen=True)
class Case:
    """A mechanism with the claim it makes, how its answers are told apart, and a setting in which it can be attacked.

    ``broken`` is a claim, and what is done instead: less noise.
    """

    mechanism: dict[str, object]
    claim: Mechanism
    broken: tuple[Mechanism, Mechanism]
    outcomes: Callable[[Answer], int]
    labels: int
    usual: str
    canary: str
    units: int
    ensemble: int
    deltas: Sequence[float]


def direction(answer: Answer) -> int:
    return int(answer["text"] == "right")


def ranking(answer: Answer) -> int:
    """Of each of the two words, whether it is everybody's, one of the canary's, or nobody's."""
    first, second = (0 if word == TOP else 1 if word in TURNS else 2 for word in answer["keywords"])
    return 3 * first + second


def passed(answer: Answer) -> int:
    return int(answer["fallback"]) + 2 * int(answer["keywords"] == ["right"])


CASES = {
    "embedding_mean": Case(
        {"type": "embedding_mean"},
        Gaussian(1.5),
        (Gaussian(1.5), Gaussian(0.75)),
        direction,
        2,
        "left",
        "right",
        24,
        3,
        (0.02, 0.05, 0.1),
    ),
    "keyword_joint_em": Case(
        {"type": "keyword_joint_em", "k": 2},
        BoundedRange(5.0),
        (BoundedRange(2.0), BoundedRange(10.0)),
        ranking,
        9,
        "left",
        " ".join(TURNS),
        24,
        3,
        (0.001, 0.05, 0.1),
    ),
    "keyword_ptr": Case(
        {"type": "keyword_ptr", "k_min": 1, "k_max": 1},
        ProposeTestRelease(0.01, 0.6, 0.02),
        (ProposeTestRelease(0.01, 0.6, 0.02), ProposeTestRelease(0.01, 0.3, 0.02)),
        passed,
        4,
        "left",
        "right",
        40,
        5,
        (0.03, 0.05, 0.1),
    ),
}


def store_with(case: Case, canary: bool) -> ExemplarStore:
    database = open_database("sqlite://")
    metadata.create_all(database)
    store = ExemplarStore(database, os.urandom(32))
    with database.begin() as connection:
        store.create(connection, "audit", public_size=100, fields=["text", "response"], embedded_field="text")
    rows = [{"unit_id": f"u{i}", "text": f"Way {i}?", "response": case.usual} for i in range(case.units)]
    if canary:
        rows.append({"unit_id": "canary", **QUERY, "response": case.canary})
    stream = io.BytesIO("".join(json.dumps(row) + "\n" for row in rows).encode())
    store.ingest("audit", read_json_lines(stream, Layout(("text", "response"))), Compass().embed)
    return store


def draw(case: Case, given: Mechanism, probability: float, trials: int) -> list[np.ndarray]:
    """Counts of outcomes without and with the canary, as the service gives its answers; the probe is asked once."""
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
    noise = TaskNoise(sampling_probability=probability, mechanism=given)

    async def sentence(words: Sequence[str], _ordered: bool) -> Sentence:
        return Sentence(" ".join(words), "words")

    async def answers(store: ExemplarStore) -> np.ndarray:
        zero_shot = await engine.zero_shot(spec, QUERY)
        query = {"text": " ".join([QUERY["text"], *TURNS, *RARE])}  # the attacker knows which words to offer
        aggregator = await prepare(task, noise, query, zero_shot, embed=Compass().embed, reconstruct=sentence)
        counts = np.zeros(case.labels, np.int64)
        for _ in range(trials):
            slots = store.sample_slots(
                "audit", probability=noise.sampling_probability, ensemble=task.ensemble, max_exemplars=100
            )
            outputs = await engine.contributions(spec, QUERY, slots, zero_shot)
            counts[case.outcomes(await aggregator.release(outputs))] += 1
        return counts

    return [asyncio.run(answers(store_with(case, canary))) for canary in (False, True)]


def verdicts(case: Case, counts: list[np.ndarray], probability: float, claim: Mechanism | None = None) -> list[Verdict]:
    return judge(counts, mechanism=claim or case.claim, probability=probability, deltas=case.deltas)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_claim_survives_where_everybody_takes_part(case: Case) -> None:
    """An audit that sees nothing would pass too, so it must find a quarter of what is claimed."""
    found = verdicts(case, draw(case, case.claim, 1.0, trials=2_000), 1.0)
    for verdict in found:
        assert not verdict.caught, verdict
    assert max(verdict.lower_bound / verdict.claimed for verdict in found) > 0.25


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_the_claim_survives_with_a_sample_and_a_smaller_q_is_caught(case: Case) -> None:
    counts = draw(case, case.claim, 0.7, trials=4_000)
    for verdict in verdicts(case, counts, 0.7):
        assert not verdict.caught, verdict
    assert any(verdict.caught for verdict in verdicts(case, counts, 0.05))


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_too_little_noise_is_caught(case: Case) -> None:
    """Half of what is claimed; a fifth for ranked words, whose worst case is not the one at hand."""
    claim, given = case.broken
    assert any(verdict.caught for verdict in verdicts(case, draw(case, given, 1.0, trials=4_000), 1.0, claim))
