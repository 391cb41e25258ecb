"""Answers from exemplars whose responses were embedded at ingest: the built-in engine, through the whole pipeline."""

import asyncio
import hashlib
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting.plans.plan import CalibratedPlan, load_plan
from exemplar_store import Layout
from research.evaluation import dataset
from service.answering.plans.signing import sign
from service.answering.queries import task_spec
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.operations.services import Services, open_services
from service.records.records import open_records
from service.settings import Settings
from tests.service.conftest import TEXT_PLAN, nearly_noiseless

pytestmark = pytest.mark.model

FIELDS = ("text", "label")
ENSEMBLE = 20


@dataclass
class CountingEmbedder:
    """Random directions in 384 dimensions, one for each text; notes what it was asked for."""

    whole: list[str] = field(default_factory=list)
    bounded: list[int] = field(default_factory=list)

    def embed(self, texts) -> np.ndarray:
        self.whole += texts
        return np.array([self._direction(text) for text in texts], np.float32).reshape(-1, 384)

    embed_many = embed

    def embed_bounded(self, texts) -> np.ndarray:
        self.bounded.append(len(texts))
        return np.stack([self._direction(text or "") for text in texts])

    def _direction(self, text: str) -> np.ndarray:
        vector = np.random.default_rng([*hashlib.sha256(text.encode()).digest()]).normal(size=384)
        return (vector / np.linalg.norm(vector)).astype(np.float32)


@pytest.fixture(scope="module", params=["embedding_mean", "embedding_mean, radius: 0.7, centred: true"])
def calibrated(request: pytest.FixtureRequest) -> CalibratedPlan:
    text = TEXT_PLAN.format(mechanism=f"type: {request.param}", answers=3, epsilon=40)
    return nearly_noiseless(load_plan(text))


def serving(url: str, calibrated: CalibratedPlan, response_field: str | None, **settings: Any) -> Services:
    """A service whose exemplars nearly all have the same one of the public answers as their response."""
    records = open_records(Settings(database_url=url, development=True, witness_url="none", **settings))
    sizes = {"epsilon": 40, "delta": 2e-4, "public_size": 60}
    embedded = {"embedded_field": "text", "response_field": response_field}
    records.create_knowledge_base("toys", **sizes, **embedded, fields=FIELDS)
    layout, embedder = Layout(FIELDS), CountingEmbedder()
    said = ["a blue boat" if i % 30 == 0 else "a red kite" for i in range(60)]
    rows = [layout.row(i, {"unit_id": f"u{i}", "text": f"toy {i}", "label": one}) for i, one in enumerate(said, 1)]
    records.store.ingest("toys", rows, embedder.embed_many)
    sign(records, calibrated, "test")
    asked = CountingEmbedder()
    return open_services(records, NearestExemplarEngine(asked), asked)


@pytest.fixture(params=["label", None], ids=["embedded", "not embedded"])
def services(
    request: pytest.FixtureRequest, database_url: str, calibrated: CalibratedPlan
) -> Iterator[tuple[Services, bool]]:
    services = serving(database_url, calibrated, request.param, latency_unpadded=True)
    yield services, request.param is not None
    services.records.database.dispose()


def test_nothing_is_embedded_after_the_sample_where_responses_were(services: tuple[Services, bool]) -> None:
    """The same is released either way; without embedded responses, the constant work is done after the sample."""
    service, embedded = services
    answer = asyncio.run(service.answering.answer("toys.story", "which toy?", key_id="k"))
    assert answer.release.answer["text"] == "a red kite"
    public = {"which toy?", "a red kite", "a blue boat"}  # the question, and the candidates
    assert set(service.embedder.whole) == public
    assert service.embedder.bounded == ([] if embedded else [ENSEMBLE])


def test_trials_go_the_same_way(services: tuple[Services, bool], calibrated: CalibratedPlan) -> None:
    service, embedded = services
    described = service.records.store.get("toys")
    exemplars = [{"text": f"toy {i}", "label": "a blue boat"} for i in range(9)]
    fields = {"embedded_field": described.embedded_field, "response_field": described.response_field}
    trying = service.trials.try_task(calibrated, "story", "which toy?", exemplars, **fields, asker="")
    trial = asyncio.run(trying)
    assert trial.consensus.answer["text"] == "a blue boat"
    assert trial.consensus.support["a blue boat"] == pytest.approx(1, abs=1e-5)
    assert bool(service.embedder.bounded) != embedded


def test_the_slots_that_are_measured_are_made_alike(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    for response_field in ("label", None):
        services = serving(f"sqlite:///{tmp_path / str(response_field)}", calibrated, response_field)
        (measured,) = asyncio.run(services.grains.all())
        assert measured.problem == ""
        assert measured.work_s > 0
        assert set(services.embedder.bounded) == (set() if response_field else {ENSEMBLE})
        services.records.database.dispose()


def test_made_up_slots_have_outputs(tmp_path: Path, calibrated: CalibratedPlan, monkeypatch) -> None:
    """Each of them has one, because the largest possible work is measured."""
    services = serving(f"sqlite:///{tmp_path / 'kb'}", calibrated, "label")
    engine, said = services.engine, []
    contributions = NearestExemplarEngine.contributions

    async def noting(self, task, query, slots, zero_shot):
        outputs = await contributions(self, task, query, slots, zero_shot)
        said.extend(output is not None for output in outputs)
        return outputs

    monkeypatch.setattr(NearestExemplarEngine, "contributions", noting)
    asyncio.run(services.grains.all())
    assert asyncio.run(engine.describe()).reads_embeddings
    assert len(said) >= ENSEMBLE
    assert all(said)
    services.records.database.dispose()


def test_only_the_tasks_own_field_counts(calibrated: CalibratedPlan) -> None:
    task = calibrated.plan.tasks["story"]
    for response_field, expected in (("label", True), ("other", False), (None, False)):
        assert (
            task_spec("a", task, "toys", "text", response_field=response_field, asker="").responses_embedded is expected
        )


def test_evaluations_embed_what_tasks_answer_with(calibrated: CalibratedPlan) -> None:
    plan, task = calibrated.plan, calibrated.plan.tasks["story"]
    assert dataset.response_field(task) == "label"
    assert dataset.Dataset(Path(), plan, "story", "text").specification.responses_embedded
    task = task.model_copy(update={"document_field": "text"})
    of_documents = plan.model_copy(update={"tasks": {"story": task}})
    assert dataset.response_field(task) is None
    assert not dataset.Dataset(Path(), of_documents, "story", "text").specification.responses_embedded
