"""A knowledge base keeps the model that embedded it: processes with another one refuse it, and charge nothing."""

import asyncio
from pathlib import Path

import pytest

from accounting.plans.plan import CalibratedPlan
from exemplar_store import OtherEmbeddingModelError, Row
from exemplar_store.tables import knowledge_bases
from service.answering.plans.signing import sign
from service.operations.refusals import kind_of
from service.problem_kinds import ProblemKind
from service.records.records import open_records
from tests.service.conftest import embed, make_records, serving, unwitnessed


@pytest.fixture
def models(tmp_path: Path) -> list[str]:
    """Two folders that are models as far as their digests go."""
    folders = [tmp_path / name for name in ("one", "other")]
    for folder in folders:
        folder.mkdir()
        (folder / "model.safetensors").write_text(folder.name)
    return [str(folder) for folder in folders]


def test_a_process_with_another_model_refuses_the_database(database_url: str, tmp_path: Path, models: list[str]):
    one, other = models
    make_records(tmp_path, settings=unwitnessed(database_url, embedding_model=one)).database.dispose()
    with pytest.raises(OtherEmbeddingModelError, match="DPICL_EMBEDDING_MODEL"):
        open_records(unwitnessed(database_url, embedding_model=other))
    with pytest.raises(OtherEmbeddingModelError):
        open_records(unwitnessed(database_url, embedding_model=""))
    copy = tmp_path / "copied"
    Path(one).rename(copy)
    open_records(unwitnessed(database_url, embedding_model=str(copy))).database.dispose()


def test_a_service_charges_nothing_for_what_another_model_has_embedded(tmp_path: Path, calibrated: CalibratedPlan):
    """The service runs already when another process fills the knowledge base."""
    services = serving(tmp_path)
    records = services.records
    sign(records, calibrated, "test")
    records.keys.create("ana", "analyst")
    (key,) = records.keys.list()
    with records.database.begin() as connection:
        connection.execute(knowledge_bases.update().values(embedding_model="0" * 64))
    with pytest.raises(OtherEmbeddingModelError) as refused:
        asyncio.run(services.answering.answer("toys.colour", "a toy", key_id=key.id))
    assert kind_of(refused.value) is ProblemKind.OTHER_EMBEDDING_MODEL
    ((status,),) = (budget.tasks for budget in records.ledger.budgets.statuses())
    assert status.left == 20
    with pytest.raises(OtherEmbeddingModelError):
        records.ingest("toys", [Row(1, "ada", {"text": "a ripe tomato", "label": "red"})], embed, by="test")


def test_the_first_upload_with_embeddings_decides(tmp_path: Path, models: list[str]):
    one, other = (unwitnessed(f"sqlite:///{tmp_path / 'a.sqlite'}", embedding_model=model) for model in models)
    records = open_records(one)
    with records.database.begin() as connection:
        records.store.create(connection, "toys", public_size=9, fields=["text", "label"], embedded_field="text")
    records = open_records(other)
    records.store.ingest("toys", [Row(1, "ada", {"text": "a ripe tomato", "label": "red"})], embed)
    open_records(other)
    with pytest.raises(OtherEmbeddingModelError):
        open_records(one)
