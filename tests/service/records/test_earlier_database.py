"""A database and a config that commit 6cf7564 wrote still work: nothing is lost, and nothing is charged twice."""

from __future__ import annotations

import asyncio
import sqlite3
from pathlib import Path

import pytest
import yaml

from accounting.ledger.trail import canonical
from accounting.mechanisms import RnmGaussianMechanism
from accounting.replay.books import violations
from accounting.replay.trail import verify
from exemplar_store import UnrecognisedUnitsError
from service.application import ApplicationArgs
from service.records.records import Records, open_records
from service.records.signed import read_signed
from service.services import open_services
from service.settings import Settings
from tests.service.conftest import EMBEDDER, MajorityEngine

SIGNED_THEN = "23695d71972e78b9e92ea5ecf6ae51e7e611f3544e1e5ddaf11103247aa6b02b"  # pragma: allowlist secret
"""The digest of its plan, by its own code."""
EARLIER = Path(__file__).parent / "earlier"


@pytest.fixture
def earlier(tmp_path: Path) -> Records:
    for dump in EARLIER.glob("*.sql"):
        connection = sqlite3.connect(tmp_path / f"{dump.stem}.sqlite")
        connection.executescript(dump.read_text())
        connection.close()
    return open_records(
        Settings(database_url=f"sqlite:///{tmp_path}/service.sqlite", development=True, latency_unpadded=True)
    )


def test_its_budget_plan_key_and_exemplars_are_there(earlier: Records) -> None:
    (budget,) = earlier.ledger.budgets.statuses()
    assert (float(budget.tightest.epsilon), float(budget.tightest.promised_epsilon)) == (8, 4)
    (task,) = budget.tasks
    assert task.states == {"charged": 0, "released": 2, "voided": 1, "lost": 0}
    (plan,) = earlier.ledger.budgets.plans("toys")
    assert read_signed(plan.document).plan.tasks["colour"].answers == 20
    mechanism = read_signed(plan.document).plan.tasks["colour"].mechanism
    assert isinstance(mechanism, RnmGaussianMechanism)
    assert (mechanism.decide, mechanism.prior_weight) == ("argmax", 0.0)
    assert read_signed(plan.document).model_dump_json() == plan.document
    assert read_signed(plan.document).digest == SIGNED_THEN
    (key,) = earlier.keys.list()
    assert (key.name, key.role) == ("desk", "analyst")
    slots = earlier.store.sample_slots("toys", probability=1.0, ensemble=1, max_exemplars=100)
    assert {exemplar.fields["text"] for exemplar in slots[0]} == {f"toy {i}" for i in range(60) if i != 7}


def test_an_answer_of_then_is_free_and_a_new_one_is_charged(earlier: Records) -> None:
    services = open_services(earlier, MajorityEngine(), EMBEDDER)
    (key,) = earlier.keys.list()

    def ask(question: str):
        return asyncio.run(services.answering.answer("toys.colour", question, key_id=key.id))

    assert ask("a ball").charged is False
    new = ask("a drum")
    assert (new.charged, new.answers_left) == (True, 17)
    assert ask("a drum").release == new.release
    assert new.release.answer.keys() == {"label"}


def test_its_trail_replays_with_what_is_added(earlier: Records) -> None:
    services = open_services(earlier, MajorityEngine(), EMBEDDER)
    (key,) = earlier.keys.list()
    asyncio.run(services.answering.answer("toys.colour", "a drum", key_id=key.id))
    assert verify(earlier.audit.export()).problems == []
    assert earlier.witness is not None
    assert earlier.witness.head().sequence == earlier.audit.head().sequence - 1  # the release after the charge


def test_its_events_would_be_written_the_same_today(earlier: Records) -> None:
    events = earlier.audit.events(limit=1000)
    assert len({event.kind for event in events}) > 5
    for event in events:
        assert event.particulars is not None
        assert canonical(event.particulars.model_dump()) == event.body


def test_it_is_one_cohort_and_stays_one(earlier: Records) -> None:
    (budget,) = earlier.ledger.budgets.statuses()
    assert [one.number for one in budget.cohorts] == [1]
    assert [plan.cohorts for plan in earlier.ledger.budgets.plans("toys")] == [(1,)]
    with pytest.raises(UnrecognisedUnitsError):  # unit 7 was forgotten, tag and all
        earlier.open_cohort("toys", epsilon=1, delta=1e-5, public_size=60, by="root")
    with earlier.database.connect() as connection:
        assert violations(connection) == []


def test_its_config_is_read(tmp_path: Path) -> None:
    config = yaml.safe_load((EARLIER / "serve.yaml").read_text())
    for application in config["applications"]:
        assert application["import_path"] == "service.application:build"
        ApplicationArgs.model_validate(application["args"])
