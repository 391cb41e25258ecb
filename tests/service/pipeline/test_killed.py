"""SIGKILL at every step of a query: never an answer without a charge, never a charge given back."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from accounting.ledger.charges import Ledger
from accounting.plan import CalibratedPlan
from service.plans.signing import sign
from service.records.records import Records, open_records
from service.services import open_services
from tests.service.conftest import EMBEDDER, MajorityEngine, make_records, states, unwitnessed
from tests.service.pipeline.dying import die_at, killed

pytestmark = pytest.mark.slow

# Where the process dies, and the charge for the one query afterwards.
STEPS = {
    "before charge": {},
    **{f"after {name}": {"charged": 1} for name in ("charge", "probe", "sample", "engine")},
    "before release": {"charged": 1},
    "after release": {"released": 1},
}


def ask(records: Records, engine: MajorityEngine):
    services = open_services(records, engine, EMBEDDER)
    return asyncio.run(services.answering.answer("toys.colour", "q", key_id="k"))


def ask_and_die(url: str, step: str) -> None:
    """Answer one query and be killed at the step."""
    records = open_records(unwitnessed(url))
    engine = MajorityEngine()
    die_at(
        step,
        {
            "charge": (records.ledger, "charge"),
            "probe": (engine, "zero_shot"),
            "sample": (records.store, "sample_slots"),
            "engine": (engine, "contributions"),
            "release": (records.ledger, "release"),
        },
    )
    ask(records, engine)


@pytest.mark.parametrize("step", STEPS)
def test_killed_at(step: str, database_url: str, tmp_path: Path, calibrated: CalibratedPlan) -> None:
    records = make_records(tmp_path, settings=unwitnessed(database_url))
    sign(records, calibrated, "test")
    killed(ask_and_die, database_url, step)
    assert states(records) == STEPS[step]
    # The query can be asked again: free if it was released, else for a new charge once the lease has run out.
    later = Ledger(records.database, lease_s=60, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
    answer = ask(replace(records, ledger=later), MajorityEngine())
    assert answer.charged == (step != "after release")
    assert answer.answers_left == 20 - (1 if step in ("before charge", "after release") else 2)
    assert states(records)["released"] == 1
    records.database.dispose()
