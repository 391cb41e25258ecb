"""Checkpoints of the trail have the root of its export, continue each other, and outlive a restore of the ledger."""

import json
import shutil
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
import sqlalchemy as sa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from accounting.ledger import tables, transparency_log
from accounting.ledger.checkpoints import CheckpointError
from accounting.ledger.cosigning import Cosigner
from accounting.ledger.events import KeyCreated
from accounting.ledger.merkle import leaf_hash, root_from
from accounting.ledger.notes import WITNESS, NoteError, Signer
from accounting.ledger.restoring import acknowledge, find_loss
from accounting.ledger.tables import audit_blocks, audit_events
from accounting.ledger.trail import AuditTrail, append
from accounting.ledger.transparency_log import TrailTree, TransparencyLog
from accounting.ledger.witness import LedgerRestoredError, Witness
from service.records.database import open_database
from tests.accounting.ledger import rfc6962

NOW = datetime(2030, 1, 1, tzinfo=UTC)
SIGNER = Signer("a.example/log", Ed25519PrivateKey.from_private_bytes(b"1" * 32))
WITNESS_SIGNER = Signer("w.example", Ed25519PrivateKey.from_private_bytes(b"2" * 32))
KEYS = [SIGNER.verifier()]


def add(database: sa.Engine, count: int = 1, name: str = "ä") -> None:
    with database.begin() as connection:
        for number in range(count):
            append(connection, NOW, KeyCreated(key=str(number), name=name, role="analyst", quota=None))


def leaves(database: sa.Engine) -> list[bytes]:
    return "".join(AuditTrail(database).export()).encode().splitlines()[:-1]


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transparency_log, "BLOCK", 4)


@pytest.mark.usefixtures("small_blocks")
def test_every_root_and_path_is_that_of_the_export(engine: sa.Engine) -> None:
    tables.metadata.create_all(engine)
    add(engine, 23)
    lines = leaves(engine)
    for size in range(24):
        assert TrailTree(engine).root(size) == rfc6962.root(lines[:size])
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(audit_blocks)) == 5
    for size in (1, 4, 5, 16, 22, 23):
        for index in range(size):
            path = TrailTree(engine).path(index, size)
            assert root_from(path, index, size, leaf_hash(lines[index])) == rfc6962.root(lines[:size])


@pytest.mark.usefixtures("small_blocks")
def test_a_later_checkpoint_reads_whole_blocks_by_their_roots(engine: sa.Engine) -> None:
    tables.metadata.create_all(engine)
    add(engine, 21)
    log = TransparencyLog(engine, SIGNER, None)
    log.sign()
    add(engine, 4)
    read: list[int] = []
    kept = transparency_log.leaf_of
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(transparency_log, "leaf_of", lambda event: read.append(event.sequence) or kept(event))
        checkpoint = log.sign()
    assert checkpoint.root == rfc6962.root(leaves(engine))
    assert min(read) == 21  # the block that it is in was whole for the first time


def test_a_checkpoint_is_signed_once_the_trail_has_grown(engine: sa.Engine) -> None:
    tables.metadata.create_all(engine)
    log = TransparencyLog(engine, SIGNER, None)
    first = log.sign_if_grown()
    assert first is not None
    assert (first.size, first.root) == (0, rfc6962.root([]))
    assert log.sign_if_grown() is None
    add(engine)
    second = log.sign_if_grown()
    assert second is not None
    assert second.root == rfc6962.root(leaves(engine))
    assert second.signers(KEYS) == {KEYS[0]: None}
    assert log.kept() == [second]


def drop_guards(database: sa.Engine, table: str = "audit_events") -> None:
    """Act as the database's owner, whom no trigger stops."""
    with database.begin() as connection:
        for change in ("update", "delete"):
            name = f"{table}_no_{change}"
            on = f" ON {table}" if connection.dialect.name == "postgresql" else ""
            connection.exec_driver_sql(f"DROP TRIGGER {name}{on}")


def rewrite(database: sa.Engine, first: int) -> None:
    """Another history from an event on, with hashes that continue, as the database's owner can write it."""
    with database.begin() as connection:
        count = connection.scalar(sa.select(sa.func.count()).select_from(audit_events))
        connection.execute(sa.delete(audit_events).where(audit_events.c.sequence >= first))
    add(database, count + 1 - first, "another")


def test_a_rewritten_trail_is_not_signed(engine: sa.Engine) -> None:
    tables.metadata.create_all(engine)
    add(engine, 6)
    log = TransparencyLog(engine, SIGNER, None)
    log.sign()
    drop_guards(engine)
    rewrite(engine, 4)
    add(engine)
    with pytest.raises(CheckpointError, match=r"does not continue the 6 events that a\.example/log signed"):
        log.sign()
    assert TransparencyLog(engine, Signer("a.example/log2", SIGNER.key), None).sign().size == 7


def test_a_trail_with_a_gap_is_not_signed(engine: sa.Engine) -> None:
    tables.metadata.create_all(engine)
    add(engine, 6)
    drop_guards(engine)
    with engine.begin() as connection:
        connection.execute(sa.delete(audit_events).where(audit_events.c.sequence == 3))
    with pytest.raises(CheckpointError, match="event 3 of the audit trail is missing"):
        TransparencyLog(engine, SIGNER, None).sign()


def test_a_new_key_needs_a_new_name(engine: sa.Engine) -> None:
    tables.metadata.create_all(engine)
    add(engine)
    TransparencyLog(engine, SIGNER, None).sign()
    another = Signer("a.example/log", WITNESS_SIGNER.key)
    with pytest.raises(CheckpointError, match="a new key needs a new name"):
        TransparencyLog(engine, another, None).sign()


def test_what_was_signed_cannot_be_changed(engine: sa.Engine) -> None:
    tables.metadata.create_all(engine)
    TransparencyLog(engine, SIGNER, None).sign()
    for statement in ("UPDATE audit_checkpoints SET note = ''", "DELETE FROM audit_checkpoints"):
        with pytest.raises(sa.exc.IntegrityError, match="signed checkpoint"), engine.begin() as connection:
            connection.exec_driver_sql(statement)


class Deployment:
    """A ledger with its witness, on SQLite files, and a backup of the ledger."""

    def __init__(self, folder: Path) -> None:
        self.file, self.backup = folder / "ledger.sqlite", folder / "backup.sqlite"
        self.apart = open_database(f"sqlite:///{folder}/witness.sqlite")
        self.open()

    def open(self) -> None:
        self.ledger = open_database(f"sqlite:///{self.file}")
        tables.metadata.create_all(self.ledger)
        self.witness = Witness(self.ledger, self.apart)
        self.witness.create()
        self.log = TransparencyLog(self.ledger, SIGNER, self.witness)

    def back_up(self) -> None:
        self.ledger.dispose()
        shutil.copy(self.file, self.backup)

    def restore(self) -> None:
        self.ledger.dispose()
        for file in self.file.parent.glob("ledger.sqlite*"):
            file.unlink()
        shutil.copy(self.backup, self.file)
        self.open()

    def acknowledge(self) -> None:
        loss = find_loss(AuditTrail(self.ledger), self.witness)
        assert loss is not None
        acknowledge(self.ledger, self.witness, loss, by="root")


@pytest.fixture
def deployment(tmp_path: Path) -> Iterator[Deployment]:
    deployed = Deployment(tmp_path)
    add(deployed.ledger, 3)
    yield deployed
    deployed.ledger.dispose()
    deployed.apart.dispose()


def test_a_restored_ledger_signs_nothing_that_contradicts_what_it_signed(deployment: Deployment) -> None:
    deployment.log.sign()
    deployment.back_up()
    add(deployment.ledger, 2)
    signed = deployment.log.sign()
    deployment.restore()
    assert [one.size for one in deployment.log.kept()] == [3, 5]
    with pytest.raises(LedgerRestoredError):
        deployment.log.sign()
    deployment.acknowledge()
    add(deployment.ledger, 9)
    with pytest.raises(CheckpointError, match="does not continue the 5 events"):
        deployment.log.sign()
    assert deployment.witness.newest_checkpoint("a.example/log") == signed
    renamed = TransparencyLog(deployment.ledger, Signer("a.example/log2", SIGNER.key), deployment.witness)
    assert renamed.sign().root == rfc6962.root(leaves(deployment.ledger))


def test_a_restore_that_lost_nothing_signed_changes_nothing(deployment: Deployment) -> None:
    deployment.log.sign()
    deployment.back_up()
    add(deployment.ledger, 2)
    deployment.witness.catch_up()
    deployment.restore()
    deployment.acknowledge()
    assert deployment.log.sign().root == rfc6962.root(leaves(deployment.ledger))


def test_the_witness_cosigns_what_its_own_copy_has(deployment: Deployment) -> None:
    checkpoint = deployment.log.sign()
    cosigned = Cosigner(deployment.apart, WITNESS_SIGNER, lambda: NOW).cosign(checkpoint, KEYS)
    keys = [*KEYS, WITNESS_SIGNER.verifier(WITNESS)]
    assert cosigned.signers(keys) == {keys[0]: None, keys[1]: NOW}
    assert cosigned.text == checkpoint.text


def test_the_witness_cosigns_nothing_else(deployment: Deployment) -> None:
    cosigner = Cosigner(deployment.apart, WITNESS_SIGNER)
    old = deployment.log.sign()
    with pytest.raises(CheckpointError, match=r"no given verifier key of a\.example/log signed"):
        cosigner.cosign(old, [Signer("a.example/log", WITNESS_SIGNER.key).verifier()])
    with pytest.raises(CheckpointError, match="needs a key of its own"):
        Cosigner(deployment.apart, Signer("w.example", SIGNER.key)).cosign(old, KEYS)
    forged = SIGNER.sign(3, b"r" * 32).signed("a.example/log", old.signatures[0][1])
    with pytest.raises(NoteError, match="not genuine"):
        cosigner.cosign(forged, KEYS)
    with pytest.raises(CheckpointError, match="another root than the checkpoint"):
        cosigner.cosign(SIGNER.sign(3, b"r" * 32), KEYS)
    with pytest.raises(CheckpointError, match="fewer events than the checkpoint's 4"):
        cosigner.cosign(SIGNER.sign(4, b"r" * 32), KEYS)
    add(deployment.ledger)
    cosigner.cosign(deployment.log.sign(), KEYS)
    with pytest.raises(CheckpointError, match="of 4 events was cosigned before, and this one has 3"):
        cosigner.cosign(old, KEYS)


def test_the_witness_cosigns_no_history_after_another(deployment: Deployment) -> None:
    deployment.back_up()
    add(deployment.ledger, 2)
    cosigner = Cosigner(deployment.apart, WITNESS_SIGNER)
    cosigner.cosign(deployment.log.sign(), KEYS)
    deployment.restore()
    deployment.acknowledge()
    add(deployment.ledger, 5)
    deployment.witness.catch_up()
    forged = SIGNER.sign(9, rfc6962.root(leaves(deployment.ledger)[:9]))
    with pytest.raises(CheckpointError, match="does not continue the 5 events"):
        cosigner.cosign(forged, KEYS)


def test_an_export_ends_with_its_checkpoint(engine: sa.Engine) -> None:
    tables.metadata.create_all(engine)
    add(engine, 3)
    checkpoint = TransparencyLog(engine, SIGNER, None).sign()
    add(engine)
    *_, last = AuditTrail(engine).export(checkpoint)
    end = json.loads(last)
    assert (end["end"]["sequence"], end["checkpoint"]) == (3, str(checkpoint))
