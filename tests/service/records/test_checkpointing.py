"""A running service signs its trail as it grows, beside everything else."""

import asyncio
from pathlib import Path

import pytest
import structlog

from service.records import checkpointing
from service.records.audit_key import make_signer
from service.records.checkpointing import keep_signed
from service.records.records import Records
from tests.service.conftest import development, make_records


def signing(folder: Path) -> Records:
    make_signer(folder / "audit.pem", "a.example")
    return make_records(
        folder, settings=development(folder, audit_key_file=folder / "audit.pem", audit_origin="a.example")
    )


def hide(records: Records, folder: Path) -> None:
    """Take the witness away."""
    records.witness._database.dispose()
    for file in folder.glob("*.witness.sqlite*"):
        file.rename(file.with_name(f"hidden-{file.name}"))


def show(records: Records, folder: Path) -> None:
    """Bring the witness back, in place of an empty one."""
    records.witness._database.dispose()
    for file in folder.glob("*.witness.sqlite*"):
        if not file.name.startswith("hidden-"):
            file.unlink()
    for file in folder.glob("hidden-*"):
        file.rename(file.with_name(file.name.removeprefix("hidden-")))


async def until(condition) -> None:
    while not condition():  # noqa: ASYNC110 - other threads write
        await asyncio.sleep(0.01)


def signed(records: Records) -> int:
    return max((one.size for one in records.log.kept()), default=0)


async def test_it_signs_whenever_the_trail_has_grown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "EVERY_S", 0.01)
    records = signing(tmp_path)
    task = asyncio.create_task(keep_signed(records.log))
    async with asyncio.timeout(60):
        await until(lambda: signed(records) == records.audit.end().sequence)
        records.keys.create("ana", "analyst")
        await until(lambda: signed(records) == records.audit.end().sequence)
    task.cancel()


async def test_it_logs_once_that_it_cannot_and_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpointing, "EVERY_S", 0.01)
    records = signing(tmp_path)
    hide(records, tmp_path)
    with structlog.testing.capture_logs() as logs:
        task = asyncio.create_task(keep_signed(records.log))
        async with asyncio.timeout(60):
            await until(lambda: logs)
            await asyncio.sleep(0.1)
        assert [one["event"] for one in logs] == ["audit_trail_not_signed"]
        show(records, tmp_path)
        async with asyncio.timeout(60):
            await until(lambda: signed(records) == records.audit.end().sequence)
    task.cancel()
