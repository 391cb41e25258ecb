"""Blocks that vLLM keeps, end to end: read at the first question, and anew after each change, on real Ray Serve."""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from examples.tiny_model import make_tiny_model
from tests.e2e.serving import SUPPORT, Running, configured, serving

PLAN = """
knowledge_base: support
budget: {epsilon: 4, delta: 1.0e-4}
accountant: pld
tasks:
  block:
    kind: classify
    labels: [Office, Workshop]
    label_field: desk
    prompt: {exemplar: "Ticket: {text}\\nWhere: {desk}", query: "Ticket: {text}\\nWhere:"}
    sampling: blocks
    shots: 30
    slot_tokens: 300
    ensemble: 6
    answers: 20
    mechanism: {type: rnm_gaussian, vote: soft}
"""


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = tmp_path_factory.mktemp("serve")
    model = make_tiny_model(folder / "model", chat=True)
    options = configured(folder, engine={"name": "vllm", "model": str(model), "kv_cache_gib": 1})
    (folder / "plan.yaml").write_text(PLAN)
    with serving(folder, *options, plans=(folder / "plan.yaml",)) as running:
        yield running


def test_answers_go_on_through_every_change(running: Running, tmp_path: Path) -> None:
    first = running.ask("Where is my parcel?", "support.block")
    assert first.status_code == 200, first.text
    latency = running.get("/v1/tasks/support.block").json()["latency"]
    assert (latency["kept_blocks"], latency["cold"]) == (30, None)
    assert latency["grain_s"] >= 2 * latency["largest_s"] > 0
    more = [json.loads(line) for line in (SUPPORT / "tickets.jsonl").read_text().splitlines()[150:160]]
    (tmp_path / "more.jsonl").write_text("".join(json.dumps(one) + "\n" for one in more))
    running.dpicl("kb", "ingest", "support", str(tmp_path / "more.jsonl"))
    assert running.ask("Where is my second parcel?", "support.block").status_code == 200
    running.dpicl("kb", "forget", "support", more[0]["unit_id"], "--yes")
    assert running.ask("Where is my third parcel?", "support.block").status_code == 200
    left = running.ask("Where is my parcel?", "support.block").json()["cost"]
    assert (left["charged"], left["answers_left"]) == (0, 17)
