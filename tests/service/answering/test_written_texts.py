"""Texts that slots write once, from the plan to the answers, with an engine that numbers the texts that it writes."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import AsyncMock

import numpy as np
import pytest
from ray import serve

from accounting.ledger.budgets import SignedTask
from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from exemplar_store import Exemplar, Slot
from service.answering.measured_grains import Work
from service.answering.mechanisms.adapter import once_adapter_of
from service.answering.mechanisms.written_texts import WrittenTextsAdapter
from service.answering.once import making
from service.answering.once.making import NotMadeError, grain_s
from service.answering.plans.exported import certificate_of, export, problems
from service.answering.plans.signing import promise, sign
from service.cli import trying
from service.engines.errors import EngineUnavailableError
from service.engines.private_threads import privately
from service.engines.prompts import render
from service.engines.task import TaskSpec, ZeroShot
from service.operations.services import Services, open_services
from service.records.records import Records, open_records
from service.serving.application import PrivateWork, RemotePrivateWork
from service.settings import Settings
from tests.service.conftest import Embedding, MajorityEngine, make_records, states
from tests.service.engines.roomy import WRITES, Roomy
from tests.service.gateway.api.test_api import Api, problem

pytestmark = pytest.mark.model

PLAN = """
knowledge_base: toys
budget: {epsilon: 3, delta: 1.0e-5}
tasks:
  tales:
    kind: generate
    release: once
    response_field: text
    shots: 3
    ensemble: 5
    prompt:
      instruction: Write about a toy.
      exemplar: "A {label} toy: {text}"
      query: "A {label} toy:"
      written: "{written}\\n\\nQuestion {{about}} {label} toys: {question}\\nAnswer:"
    mechanism: {type: token_ensemble, tokens: 8, topics: [red, blue], texts: 2, shown: 1}
"""


class Scribe(Roomy, MajorityEngine):
    """Numbers the texts that its slots write; without exemplars it returns what it was asked.

    Attributes:
        written: task, question and slots of each text.
        asked: task of each question without exemplars.
        breaks: whether writing fails.
        mute: whether it has no answers to questions.
    """

    info = replace(MajorityEngine.info, name="scribe", **WRITES)

    def __init__(self) -> None:
        super().__init__()
        self.written: list[tuple[TaskSpec, Mapping[str, str], Sequence[Slot]]] = []
        self.asked: list[TaskSpec] = []
        self.breaks = False
        self.mute = False

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        if self.down:
            raise EngineUnavailableError("down")
        self.asked.append(task)
        return ZeroShot(texts=() if self.mute else (render(task.prompt, query),))

    async def write(self, task: TaskSpec, query: Mapping[str, str], slots: Sequence[Slot], zero_shot: ZeroShot) -> str:
        self.written.append((task, query, slots))
        if self.breaks:
            raise RuntimeError("cannot read a slot")
        return f"{{tale}} {len(self.written)}"


def embed(texts: Sequence[str]) -> np.ndarray:
    """Vectors that depend on the last character of a text, if that is a digit."""
    angles = [int(text[-1]) if text[-1].isdigit() else 0 for text in texts]
    return np.stack([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


@pytest.fixture(scope="module")
def calibrated() -> CalibratedPlan:
    return calibrate_plan(load_plan(PLAN), 60)


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return make_records(tmp_path, epsilon=8, blue=20)


@pytest.fixture
def scribe() -> Scribe:
    return Scribe()


@pytest.fixture
def services(records: Records, scribe: Scribe) -> Services:
    return open_services(records, scribe, Embedding(embed))


def signed(services: Services, calibrated: CalibratedPlan) -> None:
    asyncio.run(privately(lambda: sign(services.records, calibrated, "test", make=services.make)))


@pytest.fixture
def unmade(records: Records, calibrated: CalibratedPlan) -> SignedTask:
    """A task that is signed and not yet written."""
    promise(records, calibrated, "test")
    return records.ledger.budgets.task("toys.tales")


def ask(services: Services, **query: str) -> str:
    return str(asyncio.run(services.answering.answer("toys.tales", query, key_id="k")).release.answer["text"])


def test_each_topic_is_an_ensemble_of_all_its_units(services: Services, scribe: Scribe, calibrated) -> None:
    signed(services, calibrated)
    assert [query["label"] for _, query, _ in scribe.written] == ["red", "red", "blue", "blue"]
    for spec, query, slots in scribe.written:
        assert (len(slots), spec.ensemble) == (5, 5)
        assert max(map(len, slots)) <= 6
        assert {exemplar.fields["label"] for slot in slots for exemplar in slot} == {query["label"]}
        assert 12 <= sum(map(len, slots)) <= 30
    writings = {(spec.knowledge_base, spec.writing.tokens) for spec, _, _ in scribe.written}
    ((cache, tokens),) = writings
    assert cache != "toys"
    assert tokens == 8
    assert states(services.records) == {"released": 1}


def test_a_unit_is_on_a_topic_however_that_is_spelt(calibrated: CalibratedPlan) -> None:
    adapter = once_adapter_of(calibrated.plan.tasks["tales"], calibrated.noise["tales"])
    units = [[Exemplar({"text": "t", "label": label}, None)] for label in ("blue", "Blue ", "\ufeffBLUE", "blu\xade")]
    seen = {"red": 0, "blue": 0}

    def write(query: Mapping[str, str], slots: Sequence[Slot]) -> str:
        seen[query["label"]] += sum(map(len, slots))
        return ""

    adapter.make(units, np.empty((0, 0)), write, len(units))
    assert seen == {"red": 0, "blue": 2 * len(units)}


UNITS = {
    "on red": ["red", "red"],
    "on blue": ["blue"],
    "on blue mostly": ["blue", "red", "blue"],
    "torn": ["blue", "red"],
    "torn again": ["red", "blue"],
    "elsewhere": ["green", ""],
    "nowhere": [],
}


def written_from(calibrated: CalibratedPlan, units: Sequence[str]) -> dict[str, list[list[Slot]]]:
    """The slots that each text is written from, by topic."""
    adapter = WrittenTextsAdapter(calibrated.plan.tasks["tales"], calibrated.noise["tales"])
    shown: dict[str, list[list[Slot]]] = {}

    def write(query: Mapping[str, str], slots: Sequence[Slot]) -> str:
        shown.setdefault(query["label"], []).append(list(slots))
        return ""

    exemplars = [[Exemplar({"label": topic, "text": name}, None) for topic in UNITS[name]] for name in units]
    adapter.make(exemplars, np.empty((0, 2), np.float32), write, len(exemplars))
    return shown


@pytest.mark.parametrize("order", [1, -1])
def test_the_topic_of_a_unit_depends_on_the_unit_alone(calibrated: CalibratedPlan, order: int) -> None:
    """Other units, and their number on a topic, do not matter: otherwise one unit would move many."""

    def read(names: Sequence[str]) -> dict[str, set[str]]:
        slots = {topic: texts[0] for topic, texts in written_from(calibrated, names).items()}
        return {topic: {one.fields["text"] for slot in some for one in slot} for topic, some in slots.items()}

    names = [*UNITS][::order]
    everybody = read(names)
    assert everybody == {"red": {"on red", "torn", "torn again"}, "blue": {"on blue", "on blue mostly"}}
    for left_out in names:
        others = read([name for name in names if name != left_out])
        assert others == {topic: units - {left_out} for topic, units in everybody.items()}


def test_all_texts_on_a_topic_are_written_from_the_same_slots(calibrated: CalibratedPlan) -> None:
    """A one-time release has one sample, and an engine that reads it again finds it cached."""
    for first, second in written_from(calibrated, [*UNITS] * 10).values():
        assert first == second
        assert any(first)


def test_questions_see_the_texts_of_their_topic_else_those_like_them(services: Services, scribe, calibrated) -> None:
    signed(services, calibrated)
    del scribe.asked[:]
    shown = "A red toy: {tale} 1\n\nA red toy: {tale} 2\n\nQuestion {about} red toys: Are {they} nice?\nAnswer:"
    assert ask(services, label="red", question="Are {they} nice?") == shown
    assert ask(services, label="RED", question="Are {they} nice?") == shown.replace("} red toys", "} RED toys")
    nearest = "A blue toy: {tale} 3\n\nQuestion {about} green toys: What of number 3\nAnswer:"
    assert ask(services, label="green", question="What of number 3") == nearest
    assert {(spec.knowledge_base, spec.asker, spec.writing) for spec in scribe.asked} == {
        ("written texts of toys", "k", None)
    }
    assert len(scribe.written) == 4
    assert states(services.records) == {"released": 1}


def test_it_is_signed_asked_and_read_over_http(services: Services) -> None:
    api = Api(services)
    response = api("admin", "POST", "/v1/knowledge-bases/toys/plans?confirm=worse_than_free", content=PLAN)
    assert response.status_code == 201, response.text
    task = api("analyst", "GET", "/v1/tasks/toys.tales").json()
    assert (task["query_fields"], task["answers"]) == (["label", "question"], None)
    question = {"query": {"label": "red", "question": "Why?"}}
    answer = api("analyst", "POST", "/v1/tasks/toys.tales/answers", json=question).json()
    assert answer["text"].startswith("A red toy: {tale} 1")
    told = api("analyst", "GET", f"/v1/releases/{answer['id']}").json()
    assert told["texts"] == {"red": ["{tale} 1", "{tale} 2"], "blue": ["{tale} 3", "{tale} 4"]}
    problem(api("analyst", "POST", "/v1/tasks/toys.tales/answers", json={"query": "Why?"}), 422, "invalid-query")


class Apart(PrivateWork.func_or_class):
    """The deployment that reads whole knowledge bases, with an engine that numbers texts."""

    def __init__(self, settings: Settings):
        self._services = open_services(open_records(settings), Scribe(), Embedding(embed))


def test_it_is_made_apart_from_requests(records: Records, calibrated: CalibratedPlan) -> None:
    handle = serve.run(serve.deployment(Apart).bind(records.settings), _local_testing_mode=True)
    ingress = open_services(records, Scribe(), Embedding(embed), apart=RemotePrivateWork(handle))
    signed(ingress, calibrated)
    assert states(records) == {"released": 1}
    assert ask(ingress, label="blue", question="Why?").startswith("A blue toy: {tale} 3")


def test_the_texts_leave_with_a_certificate(services: Services, calibrated: CalibratedPlan, tmp_path: Path) -> None:
    signed(services, calibrated)
    lines, certificate = export(services.records, "toys.tales")
    rows = [json.loads(line) for line in lines.decode().splitlines()]
    assert rows[0] == {"label": "red", "text": "{tale} 1"}
    assert [row["label"] for row in rows] == ["red", "red", "blue", "blue"]
    file, trail = tmp_path / "tales.jsonl", list(services.records.audit.export())
    file.write_bytes(lines)
    certificate_of(file).write_text(certificate.model_dump_json())
    assert problems(file, trail) == []
    forged = certificate.model_copy(update={"answer": {**certificate.answer, "texts": {"red": ["mine"], "blue": []}}})
    certificate_of(file).write_text(forged.model_dump_json())
    assert any("votes or texts" in found for found in problems(file, trail))


def test_a_failure_while_a_text_is_written_is_not_disclosed(services: Services, scribe: Scribe, calibrated) -> None:
    scribe.breaks = True
    signed(services, calibrated)
    assert states(services.records) == {"released": 1}
    rows = [json.loads(line) for line in export(services.records, "toys.tales")[0].splitlines()]
    assert rows[-1] == {"label": "blue", "text": "Write about a toy.\n\nA blue toy:"}


def test_texts_that_are_empty_are_not_shown(services: Services, scribe: Scribe) -> None:
    forbidding = PLAN.replace("shown: 1", "shown: 1, regex: '[a-z]+'")
    scribe.breaks = True
    signed(services, calibrate_plan(load_plan(forbidding), 60))
    assert export(services.records, "toys.tales")[0] == b""
    assert ask(services, label="red", question="Why?") == "\n\nQuestion {about} red toys: Why?\nAnswer:"


def test_an_empty_answer_is_an_answer(services: Services, scribe: Scribe, calibrated: CalibratedPlan) -> None:
    signed(services, calibrated)
    scribe.mute = True
    assert ask(services, label="red", question="Why?") == ""


@pytest.mark.parametrize("why", ["down", "cannot write"])
def test_an_engine_that_cannot_write_costs_nothing(why: str, services: Services, scribe: Scribe, calibrated) -> None:
    scribe.down = why == "down"
    other = open_services(services.records, MajorityEngine(), Embedding(embed))
    with pytest.raises(NotMadeError):
        signed(services if scribe.down else other, calibrated)
    assert states(services.records) == {}
    scribe.down = False
    asyncio.run(privately(lambda: services.make("toys.tales")))
    assert states(services.records) == {"released": 1}
    asyncio.run(privately(lambda: other.make("toys.tales")))  # it is there
    assert len(scribe.written) == 4


def test_without_an_engine_nothing_is_signed(records: Records, calibrated: CalibratedPlan) -> None:
    with pytest.raises(NotMadeError, match="--engine-config"):
        sign(records, calibrated, "test", embed=embed)
    assert records.ledger.budgets.plans("toys") == []


def test_what_was_read_stays_charged(services: Services, scribe: Scribe, calibrated, monkeypatch) -> None:
    make = WrittenTextsAdapter.make

    def die(*args: object) -> None:
        make(*args)
        raise KeyboardInterrupt

    with monkeypatch.context() as dying:
        dying.setattr(WrittenTextsAdapter, "make", die)
        with pytest.raises(KeyboardInterrupt):
            signed(services, calibrated)
    with pytest.raises(NotMadeError):
        asyncio.run(privately(lambda: services.make("toys.tales")))
    assert len(scribe.written) == 4
    assert states(services.records) == {"charged": 1}


def test_it_ends_on_a_grain_of_the_largest_slots_of_all_texts(services, scribe, unmade: SignedTask, monkeypatch):
    slept: list[float] = []
    largest = AsyncMock(return_value=Work(work_s=0.2))
    monkeypatch.setattr(making, "largest_work", largest)
    monkeypatch.setattr(making, "time", SimpleNamespace(monotonic=time.monotonic, sleep=slept.append))
    records, stages = services.records, services.answering.stages
    started = time.monotonic()
    asyncio.run(privately(lambda: making.make(records.ledger, records.store, unmade, embed, stages)))
    took = time.monotonic() - started
    assert took >= 4 * 0.2  # each text begins when the largest slots of the one before must be done
    assert took + slept[0] == pytest.approx(grain_s(60) + 4 * 0.2, abs=0.5)
    ((_, task, _, spec, _), _) = largest.call_args
    assert task.release == "each"
    assert {spec.knowledge_base} == {written.knowledge_base for written, _, _ in scribe.written}


def test_where_made_up_slots_cannot_write_nothing_is_charged(records: Records, scribe: Scribe, unmade) -> None:
    scribe.breaks = True
    stages = open_services(records, scribe, Embedding(embed)).answering.stages
    with pytest.raises(NotMadeError):
        asyncio.run(privately(lambda: making.make(records.ledger, records.store, unmade, embed, stages)))
    assert states(records) == {}


def test_made_up_slots_are_measured(services: Services, scribe: Scribe, unmade: SignedTask) -> None:
    described = services.records.store.get("toys")
    _, all_s = asyncio.run(making.writer(services.answering.stages, unmade, described, measured=True))
    assert all_s > 0
    assert all(spec.measuring for spec, _, _ in scribe.written)
    assert states(services.records) == {}


def test_the_command_line_signs_beside_an_engine(dpicl, records: Records, scribe, tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("DPICL_DATABASE_URL", str(records.database.url))
    monkeypatch.setenv("DPICL_LATENCY_UNPADDED", "true")
    monkeypatch.setattr(trying, "open_engine", lambda _config, _embedder: scribe)
    scribe.close = lambda: None
    plan, config = tmp_path / "plan.yaml", tmp_path / "engine.yaml"
    plan.write_text(PLAN)
    config.write_text("name: nearest_exemplar\n")
    assert "--engine-config" in dpicl.fails("plan", "sign", plan, "--yes")
    assert "Signed as version 1" in dpicl.ok("plan", "sign", plan, "--yes", "--engine-config", config)
    assert states(records) == {"released": 1}
