"""SIGKILL at every step of a query: never an answer without a charge, never a charge given back."""

import asyncio
import inspect
import os
import signal
from collections.abc import Awaitable
from pathlib import Path
from typing import Any

import pytest

from accounting.ledger import holders
from accounting.plans.plan import CalibratedPlan
from service.answering.plans.signing import sign
from service.operations.services import open_services
from service.records.records import Records, open_records
from tests.processes import FRESH
from tests.service.conftest import EMBEDDER, MajorityEngine, make_records, states, unwitnessed

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
    """Answer one query and be killed at the step: before a call, or when its result is there."""
    records, engine = open_records(unwitnessed(url)), MajorityEngine()
    moment, _, name = step.partition(" ")
    owner, method = {
        "charge": (records.ledger, "charge"),
        "probe": (engine, "zero_shot"),
        "sample": (records.store, "sample_slots"),
        "engine": (engine, "contributions"),
        "release": (records.ledger, "release"),
    }[name]
    original = getattr(owner, method)

    async def die_after(work: Awaitable[object]) -> None:
        await work
        os.kill(os.getpid(), signal.SIGKILL)

    def called(*args: Any, **options: Any) -> Any:
        result = original(*args, **options) if moment == "after" else None
        if inspect.iscoroutine(result):
            return die_after(result)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(owner, method, called)
    ask(records, engine)


@pytest.mark.parametrize("step", STEPS)
def test_killed_at(
    step: str, database_url: str, tmp_path: Path, calibrated: CalibratedPlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holders, "GONE_AFTER_S", 0.5)
    records = make_records(tmp_path, settings=unwitnessed(database_url))
    sign(records, calibrated, "test")
    process = FRESH.Process(target=ask_and_die, args=(database_url, step))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL
    assert states(records) == STEPS[step]
    # The query can be asked again: free if it was released, else for a new charge, long before the lease has run out.
    answer = ask(records, MajorityEngine())
    assert answer.charged == (step != "after release")
    assert answer.answers_left == 20 - (1 if step in ("before charge", "after release") else 2)
    assert states(records)["released"] == 1
    records.database.dispose()
