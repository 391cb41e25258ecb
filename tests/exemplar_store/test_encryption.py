"""Keys, and what a reader of the database without them can and cannot do."""

import base64
import os
from pathlib import Path

import numpy as np
import pytest
import sqlalchemy as sa

from exemplar_store import EncryptionKeyError, ExemplarStore, Row, TamperedError, WrongKeyError, load_key
from exemplar_store.encryption import DEVELOPMENT_KEY, DataKey, KnowledgeBaseKeys, MasterKey, place
from exemplar_store.spool import Record, Spool
from exemplar_store.tables import exemplars, knowledge_bases, metadata, units
from tests.private_file import private_file

KEY = bytes(range(32))
ENCODED = base64.b64encode(KEY).decode()


def test_the_key_comes_from_the_environment_or_a_file(tmp_path):
    file = private_file(tmp_path / "key", ENCODED + "\n")
    assert load_key(ENCODED) == load_key(None, file) == load_key(f" {ENCODED} ", development=True) == KEY


@pytest.mark.parametrize(
    ("value", "message"),
    [(None, "openssl rand"), (base64.b64encode(DEVELOPMENT_KEY).decode(), "published")],
)
def test_no_key_and_the_published_one_are_for_development_only(value, message):
    with pytest.raises(EncryptionKeyError, match=message):
        load_key(value)
    assert load_key(value, development=True) == DEVELOPMENT_KEY


@pytest.mark.parametrize(
    ("value", "file", "message"),
    [
        (ENCODED, Path("key"), "twice"),
        (None, Path("/nonexistent/key"), "/nonexistent/key"),
        ("", None, "0 bytes"),
        ("c2hvcnQ=", None, "5 bytes"),
        ("not base64!", None, "not base64"),
        ("schlüssel", None, "not base64"),
    ],
)
@pytest.mark.parametrize("development", [False, True])
def test_an_unusable_key_is_refused_with_the_reason(value, file, message, development):
    with pytest.raises(EncryptionKeyError, match=message) as caught:
        load_key(value, file, development=development)
    assert not value or value not in str(caught.value)


def test_a_key_file_of_raw_bytes_is_refused_without_showing_them(tmp_path):
    file = tmp_path / "key"
    file.write_bytes(bytes(range(200, 232)))
    file.chmod(0o600)
    with pytest.raises(EncryptionKeyError, match=r"The encryption key is not base64\."):
        load_key(file=file)


def test_every_knowledge_base_has_keys_of_its_own():
    one, other = KnowledgeBaseKeys(KEY, b"1" * 16), KnowledgeBaseKeys(KEY, b"2" * 16)
    assert one.check != other.check
    assert one.unit_tag("ann") != other.unit_tag("ann")
    assert one.check != KnowledgeBaseKeys(os.urandom(32), b"1" * 16).check
    with pytest.raises(TamperedError):
        other.decrypt(one.encrypt(b"text", b"here"), b"here")
    with pytest.raises(EncryptionKeyError):
        MasterKey(b"short")


ROWS, MASTER, SECRET = KnowledgeBaseKeys(KEY, bytes(16)), MasterKey(KEY), DataKey(b"e" * 32, b"q" * 32)
HERE = place(3, bytes(16))


@pytest.mark.parametrize(
    ("seal", "unseal", "content", "error"),
    [
        (lambda: ROWS.encrypt(b"text", HERE), lambda row: ROWS.decrypt(row, HERE), b"text", TamperedError),
        (lambda: MASTER.wrap(SECRET, 7), lambda wrap: MASTER.unwrap(wrap, 7), SECRET, WrongKeyError),
    ],
    ids=["row", "data key"],
)
def test_what_is_sealed_opens_unchanged_only(seal, unseal, content, error):
    sealed = seal()
    assert unseal(sealed) == content
    assert seal() != sealed
    number = int.from_bytes(sealed)
    flipped = [(number ^ 1 << bit).to_bytes(len(sealed)) for bit in range(8 * len(sealed))]
    for changed in (*flipped, b"", sealed[:1], sealed[:12], sealed[:13], sealed[:20]):
        with pytest.raises(error):
            unseal(changed)


def test_what_is_sealed_opens_in_its_place_only():
    for elsewhere in (place(4, bytes(16)), place(3, b"1" * 16)):
        with pytest.raises(TamperedError):
            ROWS.decrypt(ROWS.encrypt(b"text", HERE), elsewhere)
    wrapped = MASTER.wrap(SECRET, 7)
    for other, number in ((MASTER, 8), (MasterKey(b"n" * 32), 7)):
        with pytest.raises(WrongKeyError):
            other.unwrap(wrapped, number)
    assert len(wrapped) == 93
    assert "eee" not in repr(SECRET)


SECRETS = ("Wolpertinger", "unit-of-ann", "gelb")


def _stored_bytes(engine: sa.Engine) -> bytes:
    if engine.dialect.name == "sqlite":
        file = Path(engine.url.database or "")
        return b"".join(path.read_bytes() for path in sorted(file.parent.glob(f"{file.name}*")))
    with engine.connect() as connection:
        rows = [row for table in metadata.sorted_tables for row in connection.execute(sa.select(table))]
    return b"\n".join(value if isinstance(value, bytes) else str(value).encode() for row in rows for value in row)


def test_nothing_private_is_stored_in_clear(store, engine, tickets, embed):
    text, unit, label = SECRETS
    store.ingest("tickets", [Row(1, unit, {"text": text, "label": label})], embed)
    stored = _stored_bytes(engine)
    assert b"tickets" in stored  # the right bytes were read
    for secret in SECRETS:
        assert secret.encode() not in stored
        assert secret.encode().hex().encode() not in stored
    vector = embed([text])
    for kind in ("<f2", "<f4", "<f8"):
        assert vector.astype(kind).tobytes()[:8] not in stored
    ((exemplar,),) = store.sample_slots("tickets", probability=1, ensemble=1, max_exemplars=1)
    assert exemplar.fields == {"text": text, "label": label}
    np.testing.assert_allclose(exemplar.embedding, vector[0], atol=1e-3)


def test_the_temporary_file_of_an_upload_is_unreadable():
    with Spool() as spool:
        records = [Record(b"u" * 16, b"c" * 16, f"Wolpertinger {number}".encode()) for number in range(3)]
        for record in records:
            spool.append(record)
        assert list(spool) == records
        spool._file.seek(0)
        raw = spool._file.read()
    assert len(raw) > 3 * len("Wolpertinger")
    assert b"Wolpertinger" not in raw


def test_another_key_is_refused_before_anything_is_read_or_written(store, engine, tickets, rows):
    store.ingest("tickets", rows(3))
    with pytest.raises(WrongKeyError):
        ExemplarStore(engine, os.urandom(32))
    with engine.begin() as connection:
        connection.execute(sa.update(knowledge_bases).values(key_check=bytes(16)))
    for action in (
        lambda: store.get("tickets"),
        store.list,
        lambda: store.ingest("tickets", rows(4)),
        lambda: store.forget("tickets", "u1"),
        lambda: store.reencrypt(lambda _done, _of: None),
        lambda: store.sample_slots("tickets", probability=1, ensemble=1, max_exemplars=9),
        lambda: store.sample_blocks("tickets", probability=1, blocks=1, max_exemplars=9),
    ):
        with pytest.raises(WrongKeyError, match="'tickets'"):
            action()
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count()).select_from(exemplars)) == 3


ATTACKS = ["swap payloads", "move to another unit", "move to another knowledge base", "flip", "empty", "another type"]


@pytest.mark.parametrize("attack", ATTACKS)
def test_a_row_changed_or_moved_behind_the_stores_back_is_left_out_alone(
    store, another, engine, tickets, rows, embed, attack, caplog, capfd
):
    store.ingest("tickets", rows(3), embed)
    another("other")
    store.ingest("other", rows(1, prefix="o"), embed)
    with engine.begin() as connection:
        name = {row.name: row.id for row in connection.execute(sa.select(knowledge_bases))}
        mine = exemplars.c.kb_id == name["tickets"]
        first, second, _ = connection.execute(sa.select(exemplars).where(mine).order_by(exemplars.c.position)).all()
        at_first = sa.update(exemplars).where(mine, exemplars.c.position == first.position)
        match attack:
            case "swap payloads":
                connection.execute(at_first.values(payload=second.payload))
            case "move to another unit":
                connection.execute(at_first.values(position=second.position))
            case "move to another knowledge base":
                connection.execute(at_first.values(kb_id=name["other"]))
            case "flip":
                connection.execute(at_first.values(payload=first.payload[:-1] + bytes([first.payload[-1] ^ 1])))
            case "empty":
                connection.execute(at_first.values(payload=b""))
            case "another type" if engine.dialect.name == "sqlite":  # PostgreSQL refuses it
                connection.exec_driver_sql("UPDATE exemplars SET payload = 'text' WHERE kb_id = 1 AND position = 0")
                connection.exec_driver_sql("UPDATE exemplars SET content_tag = 7.5 WHERE kb_id = 1 AND position = 0")
            case "another type":
                return
    capfd.readouterr()
    for ensemble in (1, 3):
        slots = store.sample_slots("tickets", probability=1, ensemble=ensemble, max_exemplars=9)
        assert len(slots) == ensemble
        assert sorted(e.fields["text"] for slot in slots for e in slot) == ["text 0 of u1", "text 0 of u2"]
        for exemplar in (exemplar for slot in slots for exemplar in slot):
            np.testing.assert_allclose(exemplar.embedding, embed([exemplar.fields["text"]])[0], atol=1e-3)
    for blocks in (1, 3):
        slots = store.sample_blocks("tickets", probability=1, blocks=blocks, max_exemplars=9)
        assert len(slots) == blocks
        assert sorted(e.fields["text"] for slot in slots for e in slot) == ["text 0 of u1", "text 0 of u2"]
    ((exemplar,),) = store.sample_slots("other", probability=1, ensemble=1, max_exemplars=9)
    assert exemplar.fields["text"] == "text 0 of o0"
    assert caplog.records == []
    assert capfd.readouterr() == ("", "")


def test_the_stored_tags_are_not_guessable_hashes(store, another, engine, tickets):
    """An attacker who guesses a unit id cannot confirm it without the key: two knowledge bases tag it differently.

    Nor do tags show that two units have equal exemplars.
    """
    another("other")
    for name in ("tickets", "other"):
        store.ingest(name, [Row(1, unit, {"text": "t", "label": "l"}) for unit in ("ann", "bo")])
    with engine.connect() as connection:
        assert connection.scalar(sa.select(sa.func.count(units.c.unit_tag.distinct()))) == 4
        assert connection.scalar(sa.select(sa.func.count(exemplars.c.content_tag.distinct()))) == 4
