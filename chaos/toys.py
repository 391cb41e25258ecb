"""A made-up knowledge base that the load asks, with canaries in all private data."""

import io
import json
import random
from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from exemplar_store import Layout, read_json_lines
from service.answering.plans.signing import sign
from service.records.records import Records

EXEMPLAR_CANARY = "toycanary5c90"
QUESTION_CANARY = "askcanary7d31"
UNIT_CANARY = "unitcanary1e2f"
TOYS = 150
_FIELDS = ["text", "colour", "story"]
_COLOUR = """
  {name}:
    kind: classify
    labels: [red, blue]
    label_field: colour
    prompt: {{exemplar: "{{text}}: {{colour}}", query: "{{text}}:"}}
    shots: 2
    ensemble: 10
    answers: {answers}
    mechanism: {{type: rnm_gaussian, vote: hard}}"""
_STORY = """
  story:
    kind: generate
    response_field: story
    prompt: {{exemplar: "Story of {{text}}: {{story}}", query: "Story of {{text}}:"}}
    shots: 2
    ensemble: 10
    answers: {answers}
    candidates: 2
    public_answers: [A red kite rises., A blue boat sinks.]
    mechanism: {{type: embedding_mean}}"""
_PLAN = "knowledge_base: toys\nbudget: {epsilon: 6, delta: 1.0e-4}\naccountant: rdp\ntasks:"


def fill(records: Records, *, remote_engine: bool, answers: int) -> None:
    """Create a knowledge base with a signed plan: two tasks of ``answers`` answers, and one whose answers run out."""
    records.create_knowledge_base(
        "toys",
        epsilon=8,
        delta=2e-4,
        public_size=TOYS,
        fields=_FIELDS,
        embedded_field="text",
        remote_engine=remote_engine,
        by="chaos",
    )
    layout = Layout(tuple(_FIELDS))
    records.ingest("toys", read_json_lines(io.BytesIO(rows(range(TOYS)).encode()), layout), _embed, by="chaos")
    sign(records, _calibrated(answers), "chaos")


def rows(numbers: Sequence[int]) -> str:
    """Exemplars as JSON lines, each with canaries in its unit's id and in its texts."""
    toys = (
        {
            "unit_id": f"{UNIT_CANARY}-{n}",
            "text": f"{EXEMPLAR_CANARY} {n}",
            "colour": "red" if n % 3 else "blue",
            "story": f"It flies, said {EXEMPLAR_CANARY}.",
        }
        for n in numbers
    )
    return "".join(json.dumps(toy) + "\n" for toy in toys)


@lru_cache
def _calibrated(answers: int) -> CalibratedPlan:
    tasks = _COLOUR.format(name="colour", answers=answers) + _STORY.format(answers=answers)
    tasks += _COLOUR.format(name="scarce", answers=40)
    return calibrate_plan(load_plan(_PLAN + tasks), public_size=TOYS)


def _embed(texts: Sequence[str]) -> np.ndarray:
    """Random unit-norm vectors of shape (n, 384), the shape of the embedder's own: no fault depends on their values."""
    drawn = np.array([[random.Random(f"{text} {i}").gauss(0, 1) for i in range(384)] for text in texts], np.float32)
    normed: np.ndarray = drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return normed
