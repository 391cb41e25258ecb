"""A small service without Ray: a real database, the real pipeline, and an engine that counts labels."""

import asyncio
import io
import json
import shutil
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
from fastapi.testclient import TestClient

import accounting.plans.plan
from accounting.ledger.budgets import SignedTask
from accounting.plans.plan import CalibratedPlan, Plan, calibrate_plan, load_plan
from exemplar_store import Layout, read_json_lines
from service.answering.answering import Answering
from service.answering.kept_blocks import KeptBlocks
from service.answering.latency import Departure, Grains, Measured
from service.answering.plans.signing import sign
from service.answering.stages import Stages
from service.engines.embedding.embedder import Embed
from service.engines.protocol import Engine
from service.operations.services import Services, open_services
from service.records.api_keys import Role
from service.records.records import Records, open_records
from service.serving.web import create_app
from service.settings import Settings
from tests.accounting.books import wrong
from tests.service.engines.majority import MajorityEngine
from tests.service.shell import Shell

PLAN = """
knowledge_base: toys
budget: {epsilon: 4, delta: 1.0e-4}
tasks:
  colour:
    kind: classify
    labels: [red, blue]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    shots: 2
    ensemble: 10
    answers: 20
    mechanism: {type: rnm_gaussian, vote: hard}
"""


def embed(texts: Sequence[str]) -> np.ndarray:
    """Embed all texts alike: the engine of these tests does not use embeddings."""
    return np.tile(np.array([1.0, 0.0], np.float32), (len(texts), 1))


class Embedding:
    """An embedder made of a function."""

    def __init__(self, embed: Embed) -> None:
        self.embed = self.embed_many = embed

    def embed_bounded(self, texts: Sequence[str | None]) -> np.ndarray:
        return self.embed([text or "" for text in texts])


EMBEDDER = Embedding(embed)


class FixedGrain:
    """The same grain for every task, unmeasured."""

    report = ()

    def __init__(self, grain_s: float) -> None:
        self._grain_s = grain_s

    async def of(self, task: SignedTask) -> Measured:
        return Measured(task.address, self._grain_s)

    async def all(self) -> tuple[()]:
        return ()

    def overran(self, _task: SignedTask) -> None:
        pass


def answering(services: Services, engine: Engine | None = None, *, timeout_s: float = 60.0, **options) -> Answering:
    """A new pipeline on the records of a service."""
    stages = Stages(engine or services.engine, EMBEDDER, timeout_s)
    return Answering(
        services.records.ledger,
        services.records.store,
        stages,
        **{
            "digest_key": b"k" * 32,
            "grains": Grains(),
            "blocks": KeptBlocks(stages, services.records.store, services.records.audit),
            **options,
        },
    )


def rows(exemplars: Sequence[dict[str, str]]) -> io.BytesIO:
    return io.BytesIO("".join(json.dumps(exemplar) + "\n" for exemplar in exemplars).encode())


def development(folder: Path, **settings: Any) -> Settings:
    """Settings of a service with its database in a folder, unless the given settings name another."""
    given = {"database_url": f"sqlite:///{folder / 'service.sqlite'}", "development": True, "latency_unpadded": True}
    return Settings(**given | settings)


def unwitnessed(url: str, **settings: Any) -> Settings:
    """Settings of a service whose database has no witness."""
    return development(Path(), database_url=url, witness_url="none", **settings)


def upload(records: Records, toys: Sequence[tuple[str, str, str]], embed: Embed = embed) -> None:
    """Store toys; each is a unit's id, a text and a label."""
    exemplars = [dict(zip(("unit_id", "text", "label"), toy, strict=True)) for toy in toys]
    records.store.ingest("toys", read_json_lines(rows(exemplars), Layout(("text", "label"))), embed)


def make_records(
    folder: Path,
    url: str | None = None,
    epsilon: float = 8,
    blue: int = 12,
    settings: Settings | None = None,
    described: Mapping[str, Any] | None = None,
    **more,
) -> Records:
    """Opened records on a database of their own, with a knowledge base ``toys`` of 60 exemplars, some of them blue.

    ``described`` is what else describes it. Further arguments go to :func:`upload`: other toys, or another embedding.
    """
    records = open_records(settings or development(folder, **({"database_url": url} if url else {})))
    toys_are = {"public_size": 60, "fields": ["text", "label"], "embedded_field": "text", **(described or {})}
    records.create_knowledge_base("toys", epsilon=epsilon, delta=2e-4, **toys_are)
    toys = [(f"u{i}", f"toy {i}", "blue" if i * blue % 60 < blue else "red") for i in range(60)]
    upload(records, **{"toys": toys, **more})
    return records


def serving(folder: Path, engine: Engine | None = None, embedder: Any = EMBEDDER, **settings: Any) -> Services:
    """A new service with toys, without a plan, and with the given settings."""
    folder.mkdir(exist_ok=True)
    return open_services(
        make_records(folder, settings=development(folder, **settings)), engine or MajorityEngine(), embedder
    )


def bearer(token: str, **headers: str) -> dict[str, str]:
    """Headers of a request with a key."""
    return {"Authorization": f"Bearer {token}", **headers}


def client_of(services: Services, role: Role = "analyst", name: str = "ann", **options: Any) -> TestClient:
    """A client of a service over HTTP, with a new key."""
    token = services.records.keys.create(name, role)[1]
    return TestClient(create_app(services), headers=bearer(token), **options)


def states(services: Services | Records, task: str = "") -> dict[str, int]:
    """Number of charges in each state, of the named task or of all tasks, after a check that the books balance."""
    records = services.records if isinstance(services, Services) else services
    assert wrong(records.database) == []
    tasks = [one for budget in records.ledger.budgets.statuses() for one in budget.tasks if task in ("", one.name)]
    return dict(+sum((Counter(one.states) for one in tasks), Counter()))


def nearly_noiseless(plan: Plan) -> CalibratedPlan:
    """Calibrate a plan with more ε than may be signed for, so that no test of the text of answers fails by chance."""
    with mock.patch.object(accounting.plans.plan, "LARGEST_EPSILON", 100.0):
        return calibrate_plan(plan, 60)


def remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function of a list and further arguments, made to compute each result once for all tests."""

    @cache
    def of(first: tuple[Any, ...], *others: Any) -> Any:
        return function(first, *others)

    return lambda first, *others: copy(of(tuple(first), *others))


CALIBRATIONS = {name: remembered(getattr(accounting.plans.plan, name)) for name in ("calibrate", "compare")}


@pytest.fixture(autouse=True)
def equal_plans_are_calibrated_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Many tests here sign the same plans; the accounting's own tests check the noise that a plan needs."""
    for name, calibration in CALIBRATIONS.items():
        monkeypatch.setattr(accounting.plans.plan, name, calibration)


@pytest.fixture(scope="session")
def plan() -> Plan:
    return load_plan(PLAN)


@pytest.fixture(scope="session")
def calibrated(plan: Plan) -> CalibratedPlan:
    return calibrate_plan(plan, public_size=60)


@pytest.fixture(scope="session")
def toys(tmp_path_factory: pytest.TempPathFactory, calibrated: CalibratedPlan) -> Path:
    """A folder with the files of :func:`records`: copying them is faster than creating new ones."""
    folder = tmp_path_factory.mktemp("toys")
    records = make_records(folder)
    sign(records, calibrated, "test")
    records.database.dispose()
    return folder


@pytest.fixture
def records(tmp_path: Path, toys: Path) -> Records:
    shutil.copytree(toys, tmp_path, dirs_exist_ok=True)
    return open_records(development(tmp_path))


@pytest.fixture
def toy_engine() -> MajorityEngine:
    return MajorityEngine()


@pytest.fixture
def services(records: Records, toy_engine: MajorityEngine) -> Services:
    return open_services(records, toy_engine, EMBEDDER)


@pytest.fixture
def padding(monkeypatch: pytest.MonkeyPatch) -> tuple[asyncio.Event, asyncio.Event]:
    """Replace the clock of the padding with two events: the padding sets the first, and ends when the second is set."""
    begun, over = asyncio.Event(), asyncio.Event()

    async def wait(_departure: Departure) -> int:
        begun.set()
        await over.wait()
        return 0

    monkeypatch.setattr(Departure, "wait", wait)
    return begun, over


TEXT_PLAN = """
knowledge_base: toys
budget: {{epsilon: {epsilon}, delta: 1.0e-4}}
tasks:
  story:
    kind: generate
    response_field: label
    prompt: {{exemplar: "{{text}}: {{label}}", query: "{{text}}:"}}
    shots: 3
    ensemble: 20
    answers: {answers}
    candidates: 4
    public_answers: [a red kite, a blue boat]
    mechanism: {{{mechanism}}}
"""


@pytest.fixture
def dpicl(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Shell:
    monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{tmp_path}/cli.sqlite")
    monkeypatch.setenv("DPICL_DEVELOPMENT", "true")
    monkeypatch.setenv("COLUMNS", "200")
    monkeypatch.setattr("typer.confirm", lambda _question: False)  # every confirmation is refused
    for name in ("DPICL_ENCRYPTION_KEY", "DPICL_ENCRYPTION_KEY_FILE", "DPICL_API_KEY", "DPICL_URL"):
        monkeypatch.delenv(name, raising=False)
    return Shell(monkeypatch, capsys)


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    return file
