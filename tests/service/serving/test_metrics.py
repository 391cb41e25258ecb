"""Metrics: the ledger's own numbers, the same from every replica, and nothing private."""

import asyncio
import re
import sqlite3
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from prometheus_client.openmetrics.parser import text_string_to_metric_families as parse_openmetrics
from prometheus_client.parser import text_string_to_metric_families

from accounting.ledger.tables import audit_events, charges
from accounting.ledger.witness import LedgerRestoredError, WitnessUnavailableError
from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from service.answering.plans.signing import sign
from service.engines.protocol import EngineInfo
from service.operations.services import Services, open_services
from service.records.engine_record import note_engine
from service.records.tables import api_keys
from service.serving.web import create_app
from tests.deploy import promql
from tests.service.conftest import EMBEDDER, PLAN, MajorityEngine, make_records, serving

DOCS = Path(__file__).parents[3] / "docs"
COLOUR = {"knowledge_base": "toys", "task": "toys.colour@1"}
VERSIONS = ("toys.colour@1", "toys.colour@2")


class Scraper:
    """An analyst who asks, and a monitor with an analyst key that may ask nothing."""

    def __init__(self, services: Services):
        self.services = services
        self.analyst, token = services.records.keys.create("asks", "analyst", quota=7)
        self.client = TestClient(create_app(services), headers={"Authorization": f"Bearer {token}"})
        self.monitor, token = services.records.keys.create("monitor", "analyst", quota=0)
        self.monitors = {"Authorization": f"Bearer {token}"}

    def ask(self, query: str) -> int:
        return self.client.post("/v1/tasks/toys.colour/answers", json={"query": query}).status_code

    def text(self) -> str:
        response = self.client.get("/metrics", headers=self.monitors)
        assert response.status_code == 200, response.text
        return response.text

    def samples(self) -> dict[tuple[str, frozenset[tuple[str, str]]], float]:
        families = text_string_to_metric_families(self.text())
        return {(s.name, frozenset(s.labels.items())): s.value for family in families for s in family.samples}

    def value(self, name: str, /, **labels: str) -> float:
        return self.samples()[name, frozenset(labels.items())]


@pytest.fixture
def scraper(services: Services) -> Scraper:
    return Scraper(services)


def test_answers_repeats_voids_and_refusals_are_counted(scraper: Scraper, toy_engine: MajorityEngine) -> None:
    assert [scraper.ask(f"toy {i}") for i in (1, 2, 3, 3)] == [200] * 4
    toy_engine.down = True
    assert scraper.ask("toy 4") == 503
    toy_engine.down = False
    assert [scraper.ask(f"more {i}") for i in range(4)] == [200] * 4
    assert [scraper.ask("too many"), scraper.ask("far too many")] == [402, 402]  # the key's quota is 7
    samples = scraper.samples()
    told = {name: samples[name, frozenset(COLOUR.items())] for name, labels in samples if labels == COLOUR.items()}
    assert told == {
        "dpicl_task_answers": 20,
        "dpicl_task_answers_left": 13,
        "dpicl_task_current": 1,
        "dpicl_charges_total": 8,
        "dpicl_charges_released_total": 7,
        "dpicl_charges_voided_total": 1,
        "dpicl_charges_fell_back_total": 0,
        "dpicl_charges_open": 0,
        "dpicl_charges_lost": 0,
    }
    assert scraper.value("dpicl_refusals_total", task="toys.colour@1", reason="quota-exhausted") == 2
    assert scraper.value("dpicl_key_answers", key=scraper.analyst.id) == 7
    assert scraper.value("dpicl_key_quota_answers", key=scraper.analyst.id) == 7
    assert scraper.value("dpicl_key_answers", key=scraper.monitor.id) == 0
    trail = scraper.services.records.audit.head()
    assert trail is not None
    assert scraper.value("dpicl_audit_events_total") == trail.sequence


def test_answers_that_used_no_exemplars_are_counted(scraper: Scraper) -> None:
    ledger = scraper.services.records.ledger
    task = ledger.budgets.task("toys.colour")
    for i, fell_back in enumerate((True, False, True)):
        charged = ledger.charge(task, bytes([i]) * 32, key_id=scraper.analyst.id)
        ledger.release(charged.id, {"text": "red", "fallback": fell_back})
    assert scraper.value("dpicl_charges_fell_back_total", **COLOUR) == 2
    assert scraper.value("dpicl_charges_released_total", **COLOUR) == 3


def test_a_retired_plan_is_not_current(scraper: Scraper) -> None:
    """Otherwise its tasks would raise alerts forever: they have no answers left, and perhaps fell back."""
    records = scraper.services.records
    sign(records, calibrate_plan(load_plan(PLAN.replace("epsilon: 4", "epsilon: 2")), 60), "test")

    def current() -> list[float]:
        tasks = [{**COLOUR, "task": f"toys.colour@{version}"} for version in (1, 2)]
        return [scraper.value("dpicl_task_current", **task) for task in tasks]

    assert current() == [0, 1]
    records.ledger.budgets.retire("toys", 2, by="test")
    assert current() == [1, 0]  # the older one answers again
    records.ledger.budgets.retire("toys", 1, by="test")
    assert current() == [0, 0]


def test_a_one_time_release_never_runs_out(scraper: Scraper) -> None:
    once = f"{PLAN[: PLAN.index('    shots')]}    release: once\n    mechanism: {{type: prototypes}}"
    plan = load_plan(once.replace("colour", "for-ever").replace("1.0e-4", "5.0e-5"))
    sign(scraper.services.records, calibrate_plan(plan, 60), "test")
    told = {name for name, labels in scraper.samples() if ("task", "toys.for-ever@2") in labels}
    assert {name for name in told if "answers" in name} == set()
    where = {"knowledge_base": "toys", "task": "toys.for-ever@2"}
    assert scraper.value("dpicl_charges_released_total", **where) == 1
    assert scraper.value("dpicl_charges_lost", **where) == 0


def test_budgets_and_what_was_spent(scraper: Scraper) -> None:
    for letter, shares in {"epsilon": (8, 4, 4), "delta": (2e-4, 1e-4, 1e-4)}.items():
        for share, value in zip(("lifetime", "promised", "free"), shares, strict=True):
            told = scraper.value(f"dpicl_budget_{letter}", knowledge_base="toys", share=share)
            assert told == pytest.approx(value)
    settings = scraper.services.records.settings
    assert scraper.value("dpicl_attention_percent") == settings.attention_percent
    assert scraper.value("dpicl_attention_days") == settings.attention_days
    for reason in ("answers-exhausted", "quota-exhausted"):  # shown before the first refusal
        assert scraper.value("dpicl_refusals_total", task="toys.colour@1", reason=reason) == 0
    spent = {"knowledge_base": "toys", "version": "1"}
    assert scraper.value("dpicl_plan_epsilon_spent", **spent) == 0
    scraper.ask("a toy")
    assert 0 < scraper.value("dpicl_plan_epsilon_spent", **spent) < 4


def test_charges_whose_holder_died_are_overdue_and_then_lost(scraper: Scraper) -> None:
    ledger, settings = scraper.services.records.ledger, scraper.services.records.settings
    ledger.charge(ledger.budgets.task("toys.colour"), b"d" * 32, key_id=scraper.analyst.id)
    assert scraper.value("dpicl_charges_open", **COLOUR) == 1
    assert scraper.value("dpicl_charges_overdue") == 0
    age_charge(scraper, settings.lease_s * 0.6)
    assert scraper.value("dpicl_charges_overdue") == 1
    age_charge(scraper, settings.lease_s * 1.1)
    assert scraper.value("dpicl_charges_overdue") == 0
    assert scraper.value("dpicl_charges_open", **COLOUR) == 0
    assert scraper.value("dpicl_charges_lost", **COLOUR) == 1
    assert scraper.value("dpicl_task_answers_left", **COLOUR) == 19


def age_charge(scraper: Scraper, seconds: float) -> None:
    """Put the only charge's lease where it would be the given number of seconds after the charge."""
    records = scraper.services.records
    until = datetime.now(UTC) + timedelta(seconds=records.settings.lease_s - seconds)
    with records.database.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER IF EXISTS charges_only_settled")
        connection.execute(sa.update(charges).values(lease_until=until))


def test_the_current_version_of_a_task_is_the_newest(scraper: Scraper, calibrated: CalibratedPlan) -> None:
    sign(scraper.services.records, calibrated, "test", again=1)
    current = {version: scraper.value("dpicl_task_current", **COLOUR | {"task": version}) for version in VERSIONS}
    assert current == dict(zip(VERSIONS, (0, 1), strict=True))


def test_a_changed_audit_trail_is_shown_and_logged(scraper: Scraper, capsys: pytest.CaptureFixture[str]) -> None:
    scraper.ask("a toy")
    events = scraper.value("dpicl_audit_events_total")
    assert scraper.value("dpicl_audit_checked_events") == events
    assert scraper.value("dpicl_audit_chain_broken") == 0
    with scraper.services.records.database.begin() as connection:
        connection.exec_driver_sql("DROP TRIGGER audit_events_no_update")
        connection.execute(sa.update(audit_events).where(audit_events.c.sequence == events).values(hash="0" * 64))
    assert [scraper.value("dpicl_audit_chain_broken") for _ in range(2)] == [1, 1]
    assert "".join(capsys.readouterr()).count("audit_chain_broken") == 1  # wherever this process logs to


def test_a_restored_ledger_and_a_lost_witness_are_shown(scraper: Scraper, tmp_path: Path) -> None:
    witness = scraper.services.records.witness
    assert witness is not None

    def shown() -> tuple[float, float]:
        return scraper.value("dpicl_ledger_restored"), scraper.value("dpicl_witness_up")

    assert shown() == (0, 1)
    with (
        closing(sqlite3.connect(tmp_path / "service.sqlite")) as ledger,
        closing(sqlite3.connect(":memory:")) as backup,
    ):
        ledger.backup(backup)
        assert scraper.ask("a toy") == 200
        backup.backup(ledger)
    with pytest.raises(LedgerRestoredError):
        witness.catch_up()
    assert shown() == (1, 1)
    with closing(sqlite3.connect(tmp_path / "service.witness.sqlite")) as other:
        other.execute("DROP TABLE witnessed_events")
    with pytest.raises(WitnessUnavailableError):
        witness.catch_up()
    assert shown() == (0, 0)


def test_keys_by_role_and_status(scraper: Scraper) -> None:
    keys = scraper.services.records.keys
    keys.create("decides", "admin")
    keys.revoke(scraper.analyst.id)
    expired, _ = keys.create("late", "analyst", quota=3)
    with scraper.services.records.database.begin() as connection:
        connection.execute(sa.update(api_keys).values(expires_at=datetime.now(UTC)).where(api_keys.c.id == expired.id))
    for role, counts in (("analyst", (1, 1, 1)), ("admin", (1, 0, 0))):
        told = [scraper.value("dpicl_keys", role=role, status=status) for status in ("valid", "expired", "revoked")]
        assert tuple(told) == counts
    text = scraper.text()
    assert not any(name in text for name in (scraper.analyst.id, expired.id, "decides"))  # which only admins may see


def test_the_engine_is_up_until_it_is_not(services: Services, toy_engine: MajorityEngine) -> None:
    note_engine(services.records.database, EngineInfo("majority", 'each "slot"\nalone', False, "for tests"))
    first = Scraper(services)
    asyncio.run(services.heartbeat.beat())
    assert first.value("dpicl_engine_up") == 1
    told = {"name": "majority", "isolation": 'each "slot"\nalone', "is_llm": "false", "remote": "false"}
    assert first.value("dpicl_engine_info", **told) == 1
    toy_engine.down = True
    assert first.value("dpicl_engine_up") == 1  # seen a moment ago
    asyncio.run(services.heartbeat.beat())
    assert first.value("dpicl_engine_up") == 0


def test_every_replica_shows_the_same(scraper: Scraper) -> None:
    for i in range(3):
        scraper.ask(f"toy {i}")
    told = scraper.text()
    other = TestClient(create_app(scraper.services), headers=scraper.monitors)
    assert of_all(other.get("/metrics").text) == of_all(told)


def of_all(told: str) -> list[str]:
    """Lines of metrics about all replicas together."""
    return [line for line in told.splitlines() if not line.startswith("dpicl_http_responses_total")]


def test_metrics_are_available_as_openmetrics_and_an_operator_may_open_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("DPICL_METRICS_OPEN", "true")
    client, wanted = (
        TestClient(create_app(serving(tmp_path))),
        {"Accept": "application/openmetrics-text; version=1.0.0"},
    )
    assert 'dpicl_budget_epsilon{knowledge_base="toys",share="free"} 8.0' in client.get("/metrics").text
    text = client.get("/metrics", headers=wanted).text
    assert text.endswith("# EOF\n")
    assert {family.name for family in parse_openmetrics(text)} >= {"dpicl_charges", "dpicl_build"}


def test_no_metric_depends_on_the_exemplars(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    """Two knowledge bases that differ in their exemplars show the same metrics after the same questions."""
    texts = []
    for blue, folder in ((12, tmp_path / "some"), (2, tmp_path / "few")):
        records = make_records(folder, blue=blue)
        sign(records, calibrated, "test")
        scraper = Scraper(open_services(records, MajorityEngine(), EMBEDDER))
        for i in range(5):
            scraper.ask(f"toy {i}")
        told = re.sub('replica="[0-9a-f]{8}"', 'replica="one"', scraper.text())
        texts.append(told.replace(scraper.analyst.id, "analyst").replace(scraper.monitor.id, "monitor"))
    assert texts[0] == texts[1]


@pytest.fixture
def reference() -> dict[str, tuple[str, str, str]]:
    """Type, labels and meaning of each metric on the reference page."""
    page = (DOCS / "reference" / "metrics.md").read_text()
    rows = re.findall(r"^\| `(dpicl_\w+)` \| (\w+) \|([\w, `]*)\| (.+) \|$", page, flags=re.M)
    return {name: (kind, labels, meaning) for name, kind, labels, meaning in rows}


def test_every_metric_is_documented(scraper: Scraper, reference: dict[str, tuple[str, str, str]]) -> None:
    """The page gives the type and labels of each metric, and has no other metrics."""
    services = scraper.services
    note_engine(services.records.database, EngineInfo("majority", "alone", False, "for tests"))
    for i in range(8):
        scraper.ask(f"toy {i}")
    families = text_string_to_metric_families(scraper.text())
    shown = {f.samples[0].name: (f.type, set(f.samples[0].labels)) for f in families}
    assert {name: (kind, set(re.findall(r"\w+", labels))) for name, (kind, labels, _) in reference.items()} == shown
    assert all(meaning.endswith(".") for _, _, meaning in reference.values())


@pytest.mark.parametrize("page", ["observability.md", "runbooks.md", "operations.md"])
def test_prose_names_metrics_that_exist(page: str, reference: dict[str, tuple[str, str, str]]) -> None:
    named = set(re.findall(r"\bdpicl_\w+", (DOCS / page).read_text()))
    assert named
    assert named <= reference.keys()


OF_PROMETHEUS = {"job", "instance", "pod", "alertname", "alertstate", "severity"}
"""Labels that Prometheus adds by itself, or by the rules."""


def test_rules_and_dashboards_ask_for_metrics_that_exist(scraper: Scraper) -> None:
    """Queries name metrics, labels and values that a scrape has, and texts show labels that the metrics have."""
    note_engine(scraper.services.records.database, EngineInfo("majority", "alone", False, "for tests", remote=True))
    values: dict[str, dict[str, set[str]]] = {}
    for (name, labels), _ in scraper.samples().items():
        of_metric = values.setdefault(name, {})
        for label, value in labels:
            of_metric.setdefault(label, set()).add(value)
    for record, expression in promql.RECORDS.items():
        sources = [values[one.metric] for one in promql.selected(expression)]
        assert sources
        assert all(source == sources[0] for source in sources)
        values[record] = sources[0]
    everywhere = {label for of_metric in values.values() for label in of_metric} | OF_PROMETHEUS
    asked = set()
    for query in promql.all_queries():
        assert promql.grouped(query) <= everywhere, query
        for one in promql.selected(query):
            asked.add(one.metric)
            if one.metric in ("up", "ALERTS"):
                continue
            for label, operator, value in one.matchers:
                if label not in OF_PROMETHEUS:
                    told = values[one.metric][label]
                    matched = told & {value} if operator == "=" else {t for t in told if re.fullmatch(value, t)}
                    assert matched or operator.startswith("!"), f"{query}: no {one.metric} has {label} {value}"
    assert values.keys() <= asked, "metrics that no rule and no dashboard looks at"
    for query, shown in promql.legends():
        known = {label for one in promql.selected(query) for label in values.get(one.metric, {})} | OF_PROMETHEUS
        assert shown <= known, query
