"""A change of the encryption key: no caller waits, nothing is lost, repeated questions stay free."""

import asyncio
import base64
import gc
import os
import re
import subprocess
from pathlib import Path

import pytest

from accounting.ledger.events import EncryptionKeyChanged, ExemplarsReencrypted
from accounting.replay.trail import verify
from exemplar_store import WrongKeyError
from service.answering.plans.signing import sign
from service.operations.services import Services, open_services
from service.records.records import open_records
from service.records.synthetic_store import KEY_BASE64
from service.settings import Settings
from tests.documented import DOCS
from tests.private_file import private_file
from tests.service.conftest import EMBEDDER, MajorityEngine, make_records
from tests.service.shell import Shell, create

OLD, NEW = (base64.b64encode(key * 32).decode() for key in (b"o", b"n"))


def settings(url: str, key: str) -> Settings:
    return Settings(database_url=url, encryption_key=key, witness_url="none", latency_unpadded=True)


def replica(url: str, key: str) -> Services:
    """A process that serves; it shares nothing but the database with other processes."""
    return open_services(open_records(settings(url, key)), MajorityEngine(), EMBEDDER)


def charged(services: Services, query: str) -> bool:
    (key,) = services.records.keys.list()
    return asyncio.run(services.answering.answer("toys.colour", query, key_id=key.id)).charged


@pytest.mark.slow
def test_a_replica_goes_on_under_the_key_that_it_started_with(database_url, tmp_path, calibrated, dpicl, monkeypatch):
    records = make_records(tmp_path, settings=settings(database_url, OLD))
    sign(records, calibrated, "test")
    records.keys.create("ana", "analyst")
    before = open_services(records, MajorityEngine(), EMBEDDER)
    assert charged(before, "one")
    file = tmp_path / "next.key"
    private_file(file, NEW)
    for name, value in {"DATABASE_URL": database_url, "WITNESS_URL": "none", "ENCRYPTION_KEY": OLD}.items():
        monkeypatch.setenv(f"DPICL_{name}", value)

    said = dpicl.ok("encryption", "rewrap", "--new-key-file", file, "--yes")
    assert charged(before, "two")
    with pytest.raises(WrongKeyError):
        replica(database_url, OLD)
    after = replica(database_url, NEW)
    assert not charged(after, "two")
    assert charged(after, "three")

    monkeypatch.setenv("DPICL_ENCRYPTION_KEY", NEW)
    assert "stop all services" in dpicl.fails("encryption", "reencrypt", "--yes")
    assert charged(after, "four")
    for services in (before, after):
        services.records.database.dispose()
    gc.collect()  # connections of what would have been other processes
    assert "Encrypted all exemplars" in dpicl.ok("encryption", "reencrypt", "--yes")

    restarted = replica(database_url, NEW)
    assert not any(charged(restarted, query) for query in ("one", "two", "three", "four"))
    assert charged(restarted, "five")
    trail = restarted.records.audit
    changed, _encrypted = trail.events(kinds=[EncryptionKeyChanged.kind, ExemplarsReencrypted.kind])
    assert changed.particulars.fingerprint in said
    assert verify(trail.export(), recompute=False).problems == []
    assert [task.charged for budget in restarted.records.ledger.budgets.statuses() for task in budget.tasks] == [5]
    restarted.records.database.dispose()


def commands() -> list[str]:
    """The commands on the page for operators."""
    page = (DOCS / "maintenance.md").read_text(encoding="utf-8")
    section = page.split("## Change the encryption key")[1].split("\n## ")[0]
    found = re.findall(r"^```bash\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line for block in found for line in block.splitlines()]


def test_the_documented_commands_change_the_key(dpicl: Shell, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPICL_DEVELOPMENT")
    monkeypatch.setenv("DPICL_ENCRYPTION_KEY", OLD)
    create(dpicl)
    for command in commands():
        match command.split():
            case ["dpicl", *arguments]:
                dpicl.ok(*arguments)
            case ["export", assignment]:  # in a service's environment, one variable takes the other's place
                monkeypatch.setenv(*assignment.split("=", 1))
                monkeypatch.delenv("DPICL_ENCRYPTION_KEY")
            case _:
                subprocess.run(["bash", "-euc", command], check=True)
    assert "toys" in dpicl.ok("kb", "list")
    assert oct(os.stat("next.key").st_mode & 0o777) == "0o600"
    monkeypatch.delenv("DPICL_ENCRYPTION_KEY_FILE")
    monkeypatch.setenv("DPICL_ENCRYPTION_KEY", OLD)
    assert "the new one" in dpicl.fails("kb", "list")


def test_mistakes_change_nothing(dpicl: Shell, tmp_path: Path, monkeypatch) -> None:
    create(dpicl)
    file = tmp_path / "next.key"
    for content, says in (("short", "not base64"), ("", "0 bytes long"), (KEY_BASE64, "made up")):
        private_file(file, content)
        assert says in dpicl.fails("encryption", "rewrap", "--new-key-file", file)
    private_file(file, base64.b64encode(b"dp-icl development key, public!!"))
    assert "published development key" in dpicl.fails("encryption", "rewrap", "--new-key-file", file)
    assert "cannot be read" in dpicl.fails("encryption", "rewrap", "--new-key-file", tmp_path / "none")
    monkeypatch.setattr("typer.confirm", lambda _question: False)
    assert dpicl("encryption", "reencrypt")[0] == 1
    assert "toys" in dpicl.ok("kb", "list")


def test_made_up_data_keep_their_published_key(dpicl: Shell, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{tmp_path}/made-up.sqlite")
    monkeypatch.setenv("DPICL_ENCRYPTION_KEY", KEY_BASE64)
    file = tmp_path / "next.key"
    private_file(file, NEW)
    dpicl.ok("keys", "create", "ana")
    assert "made up" in dpicl.fails("encryption", "rewrap", "--new-key-file", file)
