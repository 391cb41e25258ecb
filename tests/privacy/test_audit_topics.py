"""Attacks on topics: neighbouring knowledge bases are asked one question on each of many topics.

The database, the encrypted store, signing, the sorting of units, the draw and the noise are real. One unit, the canary,
is in only one of the knowledge bases. Where an answer draws it, it turns the vote of the answer's only slot. It may do
so for the answers on one topic. If it could for all of them, the sum of their noisy votes would give it away.

The canary tries two ways: it has exemplars on every topic, or it is uploaded anew for every question, with exemplars on
the question's topic alone. The slots' votes are drawn once, since every unit is drawn; each trial draws its own noise.

False alarms: a look at one event and its complement, in both directions, is four bounds of two intervals, each wrong
with probability 1e-8 (:data:`tests.privacy.audit.ERROR`). A unit that counts for all topics moves the sum by 4.6
standard deviations, and escapes with a probability below 1e-6.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting.plans.plan import load_plan
from aggregation.noise import add_gaussian_noise, from_fixed_point, to_fixed_point
from aggregation.rnm_gaussian import RnmGaussian
from exemplar_store import Row
from exemplar_store.ingest import _Writer
from service.answering.draw import draw_signed
from service.answering.plans.signing import prepare, sign
from service.records.records import Records, open_records
from service.records.signed import read_task
from tests.privacy.audit import epsilon_lower_bound
from tests.service.conftest import development, embed
from tests.service.records.test_topic_histories import all_units, of

pytestmark = pytest.mark.slow

EPSILON, DELTA, TOPICS, TRIALS = 0.8, 1e-3, 200, 120
NAMES = [f"t{number}" for number in range(TOPICS)]
PLAN = f"""
knowledge_base: attacked
budget: {{epsilon: {EPSILON}, delta: {DELTA}}}
tasks:
  task:
    kind: classify
    labels: [red, blue]
    prompt: {{exemplar: "{{text}}: {{label}}", query: "{{text}}:"}}
    shots: 50
    max_exemplars: 1000
    ensemble: 1
    answers: 1
    mechanism: {{type: rnm_gaussian, vote: hard}}
    topics: {{by: field, field: topic, names: [{", ".join(NAMES)}]}}
"""

Canary = Callable[[str], Sequence[str]]
"""The topics of the canary's exemplars when a question on some topic is asked."""


def upload(records: Records, unit: str, text: str, topics: Sequence[str]) -> None:
    rows = [Row(1, unit, {"text": f"{text} {n}", "topic": topic, "label": "red"}) for n, topic in enumerate(topics)]
    records.ingest("attacked", rows, embed, by="test", replace=True)


def votes(folder: Path, canary: Canary | None) -> tuple[RnmGaussian, np.ndarray]:
    """The mechanism as signed, and the votes on each topic, float (topics, 2): the canary's alone is for blue."""
    folder.mkdir()
    records = open_records(development(folder, witness_url="none"))
    fields = ["text", "topic", "label"]
    records.create_knowledge_base(
        "attacked", epsilon=1, delta=1e-2, public_size=50 * TOPICS, fields=fields, embedded_field="text"
    )
    rows = [Row(1, f"u{name}", {"text": "usual", "topic": name, "label": "red"}) for name in NAMES]
    records.ingest("attacked", rows, embed, by="test")
    if canary is not None:
        upload(records, "canary", "canary", canary(NAMES[0]))
    sign(records, prepare(records, load_plan(PLAN), embed), "test")
    whole = records.ledger.budgets.task("attacked.task")
    said, has = [], None if canary is None else canary(NAMES[0])
    for name in NAMES:
        if canary is not None and canary(name) != has:
            has = canary(name)
            upload(records, "canary", "canary", has)
        slots = draw_signed(records.store, records.ledger.budgets.on_topic(whole, name), arrived=None, embeddings=False)
        here = [any(exemplar.fields["text"].startswith("canary") for exemplar in slot) for slot in slots]
        said.append(sum(np.eye(2)[int(drawn)] for drawn in here))
    noise: Any = read_task(whole)[1].mechanism
    return RnmGaussian(noise.noise_multiplier, 2), np.array(said)


def bound(folder: Path, canary: Canary) -> float:
    """The largest lower bound on ε that the answers of all topics together prove."""
    mechanism, without = votes(folder / "without", None)
    _, with_canary = votes(folder / "with", canary)

    def lead(said: np.ndarray) -> float:
        noisy = from_fixed_point(add_gaussian_noise(to_fixed_point(said.ravel()), mechanism.sigma))
        return float((noisy[1::2] - noisy[::2]).sum())

    # The threshold is halfway between a canary that counts for no topic and one that counts for all.
    zero, one = (sum(lead(said) > 0 for _ in range(TRIALS)) for said in (without, with_canary))
    pairs = [*itertools.permutations((zero, one)), *itertools.permutations((TRIALS - zero, TRIALS - one))]
    return max(epsilon_lower_bound(first, second, TRIALS, DELTA) for first, second in pairs)


def everywhere(_question: str) -> list[str]:
    return [NAMES[0], *NAMES]


def on_the_questions_topic(question: str) -> list[str]:
    return [question]


@pytest.mark.parametrize("canary", [everywhere, on_the_questions_topic])
def test_a_unit_counts_for_one_topic(tmp_path: Path, canary: Canary) -> None:
    assert bound(tmp_path, canary) <= EPSILON


def test_a_unit_that_is_drawn_by_each_exemplar_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def every_exemplar(_connection: Any, _kb: int, _keys: Any, _topic: Any, spans: list[tuple[int, int]]) -> np.ndarray:
        return np.concatenate([np.arange(first, end) for first, end in spans])

    monkeypatch.setattr("exemplar_store.store.on_topic", every_exemplar)
    assert bound(tmp_path, everywhere) > EPSILON


@pytest.mark.lengthy
def test_a_topic_that_follows_the_exemplars_is_caught(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_Writer, "publish", of(all_units))
    assert bound(tmp_path, on_the_questions_topic) > EPSILON
