"""Signs of life: of a database that takes charges, not of one that is only read."""

import asyncio
import multiprocessing
import resource
from pathlib import Path
from unittest.mock import AsyncMock

import pytest
import sqlalchemy as sa

from service.records.database import open_database
from service.records.tables import heartbeats
from service.records.telemetry import heartbeat
from service.records.telemetry.heartbeat import Heartbeat
from tests.processes import FRESH


@pytest.fixture
def database(engine: sa.Engine) -> sa.Engine:
    heartbeats.create(engine)
    return engine


def beats(database: sa.Engine, times: int = 1) -> Heartbeat:
    beating = Heartbeat(database, AsyncMock(), None)

    async def beat() -> None:
        for _ in range(times):
            await beating.beat()

    asyncio.run(beat())
    return beating


def test_a_database_is_written_to_now_and_then(database: sa.Engine) -> None:
    assert beats(database, 3).missing() is None
    assert beats(database).missing() is None
    with database.connect() as connection:
        assert connection.execute(sa.select(sa.func.count()).select_from(heartbeats)).scalar_one() == 1


def _on_a_full_disk(url: str, said: multiprocessing.Queue) -> None:
    database = open_database(url)
    alive = [beats(database).missing()]
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, resource.RLIM_INFINITY))  # nothing more can be written
    with database.connect() as connection:  # and all can be read
        connection.execute(sa.select(heartbeats)).all()
    said.put([*alive, beats(database).missing()])


def test_a_database_that_can_only_be_read_is_missed(tmp_path: Path) -> None:
    url, said = f"sqlite:///{tmp_path / 'full.sqlite'}", FRESH.Queue()
    heartbeats.create(open_database(url))
    process = FRESH.Process(target=_on_a_full_disk, args=(url, said))
    process.start()
    assert said.get(timeout=120) == [None, "database"]
    process.join(60)


def test_a_database_that_is_being_written_to_is_alive(database: sa.Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """The duration of a long upload, for instance, is not for every caller to see."""
    monkeypatch.setattr(heartbeat, "_WRITE_EVERY_S", 0.0)
    with database.begin() as writer:
        writer.execute(sa.text("CREATE TABLE other (n INTEGER)"))
        assert beats(database, 2).missing() is None
