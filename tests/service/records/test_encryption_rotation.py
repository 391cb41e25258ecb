"""The encryption key changed under running services: nobody waits, nothing is lost, repeated questions stay free."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import re
import subprocess
from pathlib import Path

import pytest

from accounting.ledger.events import EncryptionKeyAdded, EncryptionKeyRetired, ExemplarsRenewed
from accounting.plan import CalibratedPlan
from accounting.replay.trail import verify
from exemplar_store import EncryptionKeyError, WrongKeyError
from service.plans.signing import sign
from service.records.key_rotation import add_key, renew_exemplars, retire_keys
from service.records.records import open_records
from service.records.synthetic_store import KEY, KEY_BASE64
from service.services import Services, open_services
from service.settings import Settings
from tests.service.cli.test_cli import Shell, create, dpicl  # noqa: F401  (a fixture)
from tests.service.conftest import EMBEDDER, MajorityEngine, make_records

ROOT = Path(__file__).parents[3]
OLD, NEW = b"o" * 32, b"n" * 32


def settings(url: str, key: bytes) -> Settings:
    return Settings(
        database_url=url, encryption_key=base64.b64encode(key).decode(), witness_url="none", latency_unpadded=True
    )


def replica(url: str, key: bytes) -> Services:
    """A process that serves; of another's, it shares the database alone."""
    return open_services(open_records(settings(url, key)), MajorityEngine(), EMBEDDER)


def charged(services: Services, query: str) -> bool:
    (key,) = services.records.keys.list()
    return asyncio.run(services.answering.answer("toys.colour", query, key_id=key.id)).charged


def test_replicas_change_keys_one_after_the_other(database_url: str, tmp_path: Path, calibrated: CalibratedPlan):
    records = make_records(tmp_path, settings=settings(database_url, OLD))
    sign(records, calibrated, "test")
    records.keys.create("ana", "analyst")
    before = open_services(records, MajorityEngine(), EMBEDDER)
    assert charged(before, "one")

    new = add_key(records, NEW, by="root")
    after = replica(database_url, NEW)
    assert not charged(after, "one")
    assert charged(after, "two")
    assert not charged(replica(database_url, OLD), "two")  # one that crashed, and has not got the new key yet

    (old,) = retire_keys(after.records, by="root")
    assert charged(before, "three")
    with pytest.raises(WrongKeyError, match="start with the newer key"):
        replica(database_url, OLD)

    assert renew_exemplars(after.records, "toys", by="root") == 0
    assert not charged(after, "one")
    assert charged(after, "four")
    with pytest.raises(WrongKeyError, match="start with the newer key"):
        charged(before, "five")  # it should have been restarted before the old key was retired
    restarted = replica(database_url, NEW)
    assert not charged(restarted, "three")
    assert not charged(restarted, "four")

    trail = after.records.audit
    told = trail.events(kinds=[kind.kind for kind in (EncryptionKeyAdded, EncryptionKeyRetired, ExemplarsRenewed)])
    assert [event.particulars for event in told] == [
        EncryptionKeyAdded(fingerprint=new, by="root"),
        EncryptionKeyRetired(fingerprint=old, by="root"),
        ExemplarsRenewed(knowledge_base="toys", by="root"),
    ]
    assert verify(trail.export(), recompute=False).problems == []
    assert [task.charged for budget in after.records.ledger.budgets.statuses() for task in budget.tasks] == [4]
    for services in (before, after, restarted):
        services.records.database.dispose()


def test_made_up_data_keep_their_published_key(tmp_path: Path) -> None:
    made_up = open_records(settings(f"sqlite:///{tmp_path}/made-up.sqlite", KEY))
    with pytest.raises(EncryptionKeyError, match="marks a database as made up"):
        add_key(made_up, NEW, by="root")
    own = open_records(settings(f"sqlite:///{tmp_path}/own.sqlite", OLD))
    with pytest.raises(EncryptionKeyError, match="marks a database as made up"):
        add_key(own, KEY, by="root")


def commands() -> list[str]:
    """What the page for operators tells to type."""
    page = (ROOT / "docs" / "operations.md").read_text(encoding="utf-8")
    section = page.split("## Change the encryption key")[1].split("\n## ")[0]
    found = re.findall(r"^```bash\n(.*?)^```", section, re.MULTILINE | re.DOTALL)
    return [line.split("  #")[0].strip() for block in found for line in block.splitlines()]


def test_the_documented_commands_change_the_key(dpicl: Shell, tmp_path: Path, monkeypatch) -> None:  # noqa: F811
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("DPICL_DEVELOPMENT")
    first = base64.b64encode(OLD).decode()
    monkeypatch.setenv("DPICL_ENCRYPTION_KEY", first)
    create(dpicl)
    printed = []
    for command in commands():
        match command.split():
            case ["dpicl", *arguments]:
                printed.append(dpicl.ok(*arguments))
            case ["export", assignment]:  # in a service's environment, the one takes the other's place
                monkeypatch.setenv(*assignment.split("=", 1))
                monkeypatch.delenv("DPICL_ENCRYPTION_KEY")
            case _:
                subprocess.run(["bash", "-euc", command], check=True)
    new = re.search(r"Encryption key (\w{16}) opens this database too", printed[1]).group(1)
    assert "Renewed toys" in printed[-1]
    (key,) = json.loads(dpicl.ok("encryption", "status", "--json"))["keys"]
    assert (key["fingerprint"], key["held"]) == (new, True)
    assert "toys" in dpicl.ok("encryption", "status")
    assert oct(os.stat("next.key").st_mode & 0o777) == "0o600"

    monkeypatch.delenv("DPICL_ENCRYPTION_KEY_FILE")
    monkeypatch.setenv("DPICL_ENCRYPTION_KEY", first)
    assert "start with the newer key" in dpicl.fails("encryption", "status")


def test_mistakes_change_nothing(dpicl: Shell, tmp_path: Path, monkeypatch) -> None:  # noqa: F811
    create(dpicl)
    file = tmp_path / "next.key"
    for content, says in (("short", "not base64"), ("", "0 bytes long"), (KEY_BASE64, "made up")):
        file.write_text(content)
        assert says in dpicl.fails("encryption", "add", "--new-key-file", file)
    file.write_text(base64.b64encode(b"dp-icl development key, public!!").decode())
    assert "published development key" in dpicl.fails("encryption", "add", "--new-key-file", file)
    assert "cannot be read" in dpicl.fails("encryption", "add", "--new-key-file", tmp_path / "none")
    assert "Nothing to retire" in dpicl.ok("encryption", "retire", "--yes")
    file.write_text(base64.b64encode(NEW).decode())
    assert "opens this database too" in dpicl.ok("encryption", "add", "--new-key-file", file)
    assert "retire" in dpicl.fails("encryption", "renew", "--yes")
    assert "was added after the one given" in dpicl.fails("encryption", "retire", "--yes")
    assert "no knowledge base named 'cars'" in dpicl.fails("encryption", "renew", "cars", "--yes")
    monkeypatch.setattr("typer.confirm", lambda _question: False)
    for command in ("retire", "renew"):
        assert dpicl("encryption", command)[0] == 1
    assert len(json.loads(dpicl.ok("encryption", "status", "--json"))["keys"]) == 2
