"""SIGKILL at every step of a query: never an answer without a charge, never a charge given back."""

import asyncio
import os
import signal
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
import sqlalchemy as sa

from accounting.ledger.charges import Ledger
from accounting.ledger.tables import charges, releases, tasks
from accounting.plan import CalibratedPlan
from accounting.replay.books import violations
from service.pipeline.answering import Answering
from service.pipeline.kept_blocks import KeptBlocks
from service.pipeline.latency import Grains
from service.pipeline.stages import Stages
from service.plans.signing import sign
from service.records.records import Records, open_records
from service.services import open_services
from service.settings import Settings
from tests.processes import FRESH
from tests.service.conftest import EMBEDDER, MajorityEngine, make_records

pytestmark = pytest.mark.slow

# Where the process dies, and how many charges there are for the one query afterwards.
STEPS = {
    "before charge": 0,
    "after charge": 1,
    "after probe": 1,
    "after sample": 1,
    "after engine": 1,
    "before release": 1,
    "after release": 1,
}


def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def ask_and_die(url: str, step: str) -> None:
    """Answer one query and be killed at the step."""
    records = open_records(Settings(database_url=url, witness_url="none", development=True, latency_unpadded=True))
    engine = MajorityEngine()
    services = open_services(records, engine, EMBEDDER)
    moment, _, name = step.partition(" ")
    owner, method = {
        "charge": (records.ledger, "charge"),
        "probe": (engine, "zero_shot"),
        "sample": (records.store, "sample_slots"),
        "engine": (engine, "contributions"),
        "release": (records.ledger, "release"),
    }[name]
    original = getattr(owner, method)

    def killed(*args, **options):
        if moment == "before":
            die()
        result = original(*args, **options)
        die()
        return result

    async def killed_async(*args):
        await original(*args)
        die()

    setattr(owner, method, killed_async if asyncio.iscoroutinefunction(original) else killed)
    asyncio.run(services.answering.answer("toys.colour", "q", key_id="k"))


@pytest.mark.parametrize("step", STEPS)
def test_killed_at(step: str, database_url: str, tmp_path: Path, calibrated: CalibratedPlan) -> None:
    records = make_records(tmp_path, database_url)
    sign(records, calibrated, "test")
    process = FRESH.Process(target=ask_and_die, args=(database_url, step))
    process.start()
    process.join(60)
    assert process.exitcode == -signal.SIGKILL

    with records.database.connect() as connection:
        assert violations(connection) == []
        charged = connection.execute(sa.select(tasks.c.charged)).scalar_one()
        stored = connection.execute(sa.select(sa.func.count()).select_from(releases)).scalar_one()
        states = connection.execute(sa.select(charges.c.state)).scalars().all()
    assert charged == STEPS[step]
    assert stored == (1 if step == "after release" else 0)
    assert states == [] if charged == 0 else ["released" if stored else "charged"]

    # The query can be asked again: free if it was released, else for a new charge once the lease has run out.
    answer = asyncio.run(_patient(records).answer("toys.colour", "q", key_id="k"))
    assert answer.charged == (step != "after release")
    assert answer.answers_left == 20 - (1 if step in ("before charge", "after release") else 2)
    with records.database.connect() as connection:
        assert violations(connection) == []
    records.database.dispose()


def _patient(records: Records) -> Answering:
    """A pipeline for which the dead holder's lease is over."""
    later = Ledger(records.database, lease_s=60, clock=lambda: datetime.now(UTC) + timedelta(hours=1))
    stages = Stages(MajorityEngine(), EMBEDDER, 60.0)
    blocks = KeptBlocks(stages, records.store, records.audit)
    return Answering(later, records.store, stages, digest_key=records.digest_key, grains=Grains(), blocks=blocks)
