"""The synthetic mode: real except for its data, which cannot be mistaken for real data."""

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from examples.serving import use_database_in
from exemplar_store import ExemplarStore, WrongKeyError
from exemplar_store.errors import EncryptionKeyError
from service.cli.serve import print_how_to_ask
from service.operations.services import Services, open_services
from service.records.records import open_records
from service.records.signed import read_signed
from service.records.synthetic_store import KEY_BASE64, NOTICE, SyntheticUploadError
from service.records.witness import witness_url
from service.serving.synthetic import setup
from service.serving.synthetic.setup import FIELDS, Synthetic, synthetic_database
from service.serving.web import create_app
from service.settings import Settings, set_operators_aside
from tests.service.conftest import EMBEDDER, MajorityEngine, bearer, embed, make_records
from tests.service.gateway.api.test_api import problem
from tests.service.gateway.dashboard.dashboard_browser import Browser
from tests.service.shell import Shell

pytestmark = pytest.mark.slow

TICKET = {"unit_id": "me", "text": "my own", "team": "Security", "desk": "Office", "reply": "mine"}


@pytest.fixture(scope="module")
def synthetic() -> Iterator[Synthetic]:
    with synthetic_database(embed) as made:
        yield made


@pytest.fixture
def services(synthetic: Synthetic) -> Services:
    return open_services(open_records(Settings(latency_unpadded=True)), MajorityEngine(), EMBEDDER)


@pytest.fixture
def client(services: Services) -> TestClient:
    return TestClient(create_app(services))


def test_every_answer_notes_that_the_data_are_made_up(client: TestClient, synthetic: Synthetic) -> None:
    body = {"query": "Where is my parcel?"}
    answer = client.post("/v1/tasks/support.team/answers", json=body, headers=bearer(synthetic.analyst_token))
    assert answer.status_code == 200, answer.text
    assert answer.json()["engine"]["notice"].startswith(NOTICE)
    asked = {"model": "support.team", "messages": [{"role": "user", "content": "Where is my parcel?"}]}
    chat = client.post("/v1/chat/completions", json=asked, headers=bearer(synthetic.analyst_token))
    assert chat.json()["dp_icl"]["engine"]["notice"].startswith(NOTICE)
    body["exemplars"] = [{"text": "Lost parcel", "team": "Shipping"}]
    shown = client.post("/v1/tasks/support.team/preview", json=body, headers=bearer(synthetic.admin_token)).json()
    assert shown["engine"]["notice"].startswith(NOTICE)


def test_budgets_note_it_too(client: TestClient, synthetic: Synthetic, dpicl: Shell, monkeypatch) -> None:
    with client:  # the engine is noted once the service starts
        deadline = time.monotonic() + 30
        told = {"engine": None}
        while told["engine"] is None and time.monotonic() < deadline:
            told = client.get("/v1/budgets", headers=bearer(synthetic.analyst_token)).json()
    assert told["engine"]["notice"].startswith(NOTICE)
    assert [plan["version"] for plan in told["knowledge_bases"][0]["plans"]] == [1, 2]
    assert told["knowledge_bases"][0]["free"]["epsilon"] == 8
    monkeypatch.setenv("DPICL_DATABASE_URL", synthetic.database_url)
    monkeypatch.setenv("DPICL_ENCRYPTION_KEY", KEY_BASE64)
    monkeypatch.delenv("DPICL_DEVELOPMENT")
    assert NOTICE in " ".join(dpicl.ok("budget").split())


def test_it_takes_no_exemplars_of_users(client, services, synthetic, dpicl, monkeypatch, tmp_path: Path) -> None:
    upload = {"content": json.dumps(TICKET), "headers": bearer(synthetic.admin_token)}
    upload["headers"]["Content-Type"] = "application/x-ndjson"
    refused = problem(client.post("/v1/knowledge-bases/support/exemplars", **upload), 403, "made-up-data")
    assert "DPICL_ENCRYPTION_KEY" in refused["detail"]
    browser = Browser(services)
    browser.sign_in()
    chosen = {"file": ("mine.jsonl", json.dumps(TICKET).encode())}
    page = browser.post("/knowledge-bases/support/exemplars", {"unit_id": "unit_id"}, files=chosen)
    assert page.status_code == 403
    assert "one of your own" in page.text
    monkeypatch.setenv("DPICL_DATABASE_URL", synthetic.database_url)
    monkeypatch.setenv("DPICL_ENCRYPTION_KEY", KEY_BASE64)
    file = tmp_path / "mine.jsonl"
    file.write_text(json.dumps(TICKET))
    assert "one of your own" in dpicl.fails("kb", "ingest", "support", file)
    with pytest.raises(SyntheticUploadError):
        open_records(Settings()).store.ingest("support", iter(()), embed)


def test_its_key_and_the_key_of_a_real_service_open_only_their_own_databases(
    synthetic: Synthetic, tmp_path, monkeypatch
) -> None:
    monkeypatch.delenv("DPICL_ENCRYPTION_KEY")
    with pytest.raises(WrongKeyError):
        open_records(Settings(database_url=synthetic.database_url, encryption_key="Q" * 43 + "="))
    with pytest.raises((WrongKeyError, EncryptionKeyError)):
        open_records(Settings(database_url=synthetic.database_url, encryption_key=None, development=True))
    own = make_records(tmp_path)
    assert not own.synthetic
    with pytest.raises(WrongKeyError):
        open_records(Settings(database_url=str(own.database.url), encryption_key=KEY_BASE64))


def test_it_holds_the_tickets_and_leaves_nothing_behind(monkeypatch, tmp_path) -> None:
    operators = {
        "DPICL_DATABASE_URL": "sqlite:///nowhere/real.sqlite",
        "DPICL_ENCRYPTION_KEY_FILE": "/nowhere/key",
        "DPICL_WITNESS_URL": f"sqlite:///{tmp_path}/witness.sqlite",
        "DPICL_MIGRATE": "never",
        "dpicl_oidc_issuer": "https://nowhere",
    }
    for name, value in operators.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("DPICL_LATENCY_UNPADDED", "true")
    monkeypatch.delenv("DPICL_ENCRYPTION_KEY", raising=False)
    told: list[tuple[int, int]] = []
    with synthetic_database(embed, lambda done, total: told.append((done, total)), setup.SMALL_PLANS) as made:
        file = Path(made.database_url.removeprefix("sqlite:///"))
        assert file.is_file()
        assert told[-1] == (900, 900)
        monkeypatch.setenv("DPICL_WITNESS_URL", witness_url(Settings()))  # as `dpicl serve` does
        opened = open_records(Settings())
        known = opened.settings.model_fields_set
        assert known == {"database_url", "encryption_key", "witness_url", "latency_unpadded"}
        (slot,) = opened.store.sample_slots("support", probability=1, ensemble=1, max_exemplars=10_000)
        tickets = Path(setup.__file__).with_name("tickets.jsonl").read_text(encoding="utf-8").splitlines()
        key = [tuple(one[field] for field in FIELDS) for one in map(json.loads, tickets)]
        assert sorted(tuple(exemplar.fields[field] for field in FIELDS) for exemplar in slot) == sorted(key)
        assert isinstance(opened.store, ExemplarStore)
        assert read_signed(opened.ledger.budgets.task("support.team").document).plan.tasks["team"].ensemble == 8
        opened.database.dispose()
    assert not file.parent.exists()
    assert operators.items() <= os.environ.items()
    assert "DPICL_ENCRYPTION_KEY" not in os.environ
    assert not (tmp_path / "witness.sqlite").exists()


def test_a_demo_uses_no_database_of_an_operator(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("DPICL_DATABASE_URL", "DPICL_ENCRYPTION_KEY", "DPICL_WITNESS_URL"):
        monkeypatch.setenv(name, "sqlite:///nowhere")
    use_database_in(tmp_path)
    assert {name for name in os.environ if "_URL" in name and name.startswith("DPICL_")} == {"DPICL_DATABASE_URL"}
    assert str(tmp_path) in os.environ["DPICL_DATABASE_URL"]


def test_every_setting_is_an_operators_or_is_about_answering(monkeypatch: pytest.MonkeyPatch) -> None:
    names = {f"DPICL_{field.upper()}" for field in Settings.model_fields}
    for name in names:
        monkeypatch.setenv(name, "")
    answering = """
        latency_grain_ms latency_unpadded query_timeout_s lease_s max_queries_in_flight
        attention_percent attention_days max_upload_bytes root_path trusted_proxies problem_base embedding_model
        mcp_hosts sanitizer_words public_texts restore_bundles text_epsilon_cap metrics_open
    """
    others = names - set_operators_aside().keys()
    assert {name.removeprefix("DPICL_").lower() for name in others} == set(answering.split())


def test_it_prints_where_the_witness_is(capsys, synthetic: Synthetic) -> None:
    """The other commands that it prints are run by tests/service/cli/test_extras.py."""
    print_how_to_ask(synthetic, "http://127.0.0.1:8080")
    witness = synthetic.database_url.replace("synthetic.sqlite", "synthetic.witness.sqlite")
    assert f"DPICL_WITNESS_URL={witness} " in capsys.readouterr().out


def test_every_page_of_the_dashboard_notes_it_and_the_audit_trail_has_the_upload(
    services: Services, synthetic: Synthetic
) -> None:
    browser = Browser(services)
    browser.sign_in(synthetic.admin_token)
    for page in ("/", "/keys", "/audit", "/plans", "/knowledge-bases/support"):
        assert "Made-up tickets" in browser.get(page).text
    assert [event.particulars.by for event in services.records.audit.events(kinds=["exemplars.ingested"])] == [
        "dpicl serve --synthetic"
    ]
