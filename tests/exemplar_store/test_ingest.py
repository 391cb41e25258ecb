"""Uploads are stored whole or not at all, once, side by side."""

import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from unittest.mock import Mock

import numpy as np
import pytest
import sqlalchemy as sa

from exemplar_store import (
    MAX_EXEMPLAR_BYTES,
    MAX_EXEMPLARS_PER_UNIT,
    MAX_UNIT_BYTES,
    BadRowError,
    EmbeddingError,
    IngestReport,
    InvalidKnowledgeBaseError,
    Row,
    UnitTooLargeError,
)
from exemplar_store.encryption import OVERHEAD_BYTES
from exemplar_store.exemplar import overhead
from exemplar_store.tables import exemplars, knowledge_bases, units
from tests.exemplar_store.test_keyring import texts


def counts(engine: sa.Engine) -> tuple[int, int, int]:
    """Rows of units, rows of exemplars, next position."""
    with engine.connect() as connection:
        return (
            connection.scalar(sa.select(sa.func.count()).select_from(units)),
            connection.scalar(sa.select(sa.func.count()).select_from(exemplars)),
            connection.scalar(sa.select(knowledge_bases.c.next_position)),
        )


@pytest.mark.parametrize("embedded", [True, False])
def test_what_goes_in_comes_out(store, tickets, rows, embed, embedded):
    upload = [*rows(3, each=2), Row(7, "ünï", {"text": 'Zeile 1\n"Zeile" 2 🎉', "label": "ja"}, ("b", "a"))]
    report = store.ingest("tickets", upload, embed if embedded else None)
    assert report == IngestReport(exemplars=7, units=4, already_there=0, ignored_fields=("a", "b"))
    (slot,) = store.sample_slots("tickets", probability=1, ensemble=1, max_exemplars=100)
    assert sorted(e.fields["text"] for e in slot) == sorted(row.fields["text"] for row in upload)
    assert {exemplar.response_embedding for exemplar in slot} == {None}
    for exemplar in slot if embedded else ():
        assert exemplar.embedding.dtype == np.float32
        assert np.linalg.norm(exemplar.embedding) == pytest.approx(1, abs=1e-6)
        np.testing.assert_allclose(exemplar.embedding, embed([exemplar.fields["text"]])[0], atol=1e-3)
    assert embedded or {exemplar.embedding for exemplar in slot} == {None}
    assert store.get("tickets").embedding_dimension == (16 if embedded else 0)


@pytest.mark.parametrize("embedded", [True, False])
def test_a_dry_run_reports_what_would_be_stored(store, engine, tickets, rows, embed, embedded):
    kind = {"embed": embed} if embedded else {}
    for _ in range(2):  # as nothing is stored, twice the same
        assert store.ingest("tickets", rows(3), **kind, dry_run=True) == IngestReport(3, 3, 0, ())
    assert counts(engine) == (0, 0, 0)
    store.ingest("tickets", rows(2), **kind)
    before = counts(engine)

    kind = {"embed": Mock(side_effect=AssertionError)} if embedded else {}
    assert store.ingest("tickets", rows(3), **kind, dry_run=True) == IngestReport(1, 1, 2, ())
    assert counts(engine) == before
    many = [Row(n, "u0", {"text": f"t{n}", "label": "l"}) for n in range(1000)]
    with pytest.raises(UnitTooLargeError):
        store.ingest("tickets", many, **kind, dry_run=True)


def test_progress_is_reported_batch_by_batch(store, tickets, rows, embed, monkeypatch):
    monkeypatch.setattr("exemplar_store.ingest.EMBED_BATCH", 512)
    told: list[tuple[int, int]] = []
    store.ingest("tickets", rows(1100), embed, lambda done, total: told.append((done, total)))
    assert told == [(0, 1100), (512, 1100), (1024, 1100), (1100, 1100)]


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_what_is_there_is_not_embedded_again(store, engine, tickets, rows, embed, monkeypatch, at_once):
    monkeypatch.setattr("exemplar_store.ingest.BATCH", at_once)
    told, embedded, happened = [], [], []

    def counted(texts):
        embedded.extend(texts)
        return embed(texts)

    def upload(rows, **options):
        embedded.clear()
        told.clear()
        noted = {"before_commit": lambda _: happened.append("stored"), "announce": lambda: happened.append("announced")}
        return store.ingest("tickets", rows, counted, lambda *done: told.append(done), **noted, **options)

    first = rows(20, each=2)
    upload(first)
    assert len(embedded) == 40
    before = counts(engine)
    assert upload(first) == IngestReport(0, 0, 40, ())
    assert embedded == []
    assert told == [(40, 40)]
    assert counts(engine) == before
    assert happened == ["announced", "stored"] * 2, "the audit trail says as before that something was uploaded"
    known = {row.fields["text"] for row in first}
    other = [row for row in rows(21, each=3) if row.fields["text"] not in known]
    assert upload([*other, *first]).exemplars == 23
    assert sorted(embedded) == sorted(row.fields["text"] for row in other)
    assert upload(first, replace=True).exemplars == 40
    assert len(embedded) == 40


def test_what_is_forgotten_while_others_are_embedded_is_stored_again(store, engine, tickets, rows, embed):
    """As if the unit had been forgotten before: an upload is stored whole."""
    store.ingest("tickets", rows(2, each=2), embed)
    announced, meanwhile = Mock(), ["u0"]

    def slowly(texts):
        if meanwhile:
            store.forget("tickets", meanwhile.pop())
        return embed(texts)

    report = store.ingest("tickets", rows(2, each=3), slowly, announce=announced)
    assert report == IngestReport(4, 0, 2, (), returned=1)
    assert counts(engine) == (2, 6, 2)
    announced.assert_called_once_with()


def test_an_exemplar_is_stored_once_for_its_unit(store, engine, tickets):
    """This holds whether it comes twice in one upload or the upload is sent again."""
    same = {"text": "t", "label": "l"}
    upload = [Row(1, "ann", same), Row(2, "ann", same), Row(3, "bo", same)]
    assert store.ingest("tickets", upload) == IngestReport(2, 2, 1, ())
    assert store.ingest("tickets", upload) == IngestReport(0, 0, 3, ())
    assert counts(engine) == (2, 2, 2)


@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize("at_once", [1, 1000])
def test_units_that_come_back_are_counted(store, tickets, rows, embed, monkeypatch, at_once, replace):
    monkeypatch.setattr("exemplar_store.ingest.BATCH", at_once)
    store.ingest("tickets", rows(4, each=2), embed)
    for unit in ("u0", "u2"):
        store.forget("tickets", unit)
    upload = rows(5, each=2)
    assert store.ingest("tickets", upload, embed, replace=replace, dry_run=True).returned == 2
    report = store.ingest("tickets", upload, embed, replace=replace)
    assert (report.units, report.returned) == (1, 2)
    assert store.ingest("tickets", upload, embed, replace=replace).returned == 0


def rows_of(*texts: str, unit: str = "ann") -> list[Row]:
    return [Row(number, unit, {"text": text, "label": "l"}) for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize("at_once", [1, 2, 1000])
def test_an_upload_may_replace_all_there_is_of_its_units(store, engine, tickets, monkeypatch, at_once):
    monkeypatch.setattr("exemplar_store.ingest.BATCH", at_once)
    store.ingest("tickets", [*rows_of("1", "2", "3"), *rows_of("1", unit="bo")])
    mixed = [*rows_of("3", "4"), *rows_of("1", unit="cy"), *rows_of("5", "5")]
    assert store.ingest("tickets", mixed, replace=True, dry_run=True).replaced == 3
    assert counts(engine) == (2, 4, 2)
    assert store.ingest("tickets", mixed, replace=True) == IngestReport(4, 1, 1, (), replaced=3)
    by_unit = [sorted(one.fields["text"] for one in unit) for unit in store.every_unit("tickets")]
    assert by_unit == [["3", "4", "5"], ["1"], ["1"]], "ann is where she was"
    assert store.ingest("tickets", rows_of("6")).replaced == 0
    assert counts(engine) == (3, 6, 3)


def test_what_cannot_be_stored_replaces_nothing(store, engine, tickets):
    store.ingest("tickets", rows_of("1", "2"))
    too_many = rows_of(*(f"t{n}" for n in range(MAX_EXEMPLARS_PER_UNIT + 1)))
    with pytest.raises(UnitTooLargeError):
        store.ingest("tickets", too_many, replace=True)

    with pytest.raises(RuntimeError):
        store.ingest("tickets", rows_of("3"), before_commit=Mock(side_effect=RuntimeError), replace=True)
    assert texts(store) == ["1", "2"]
    full = rows_of(*(f"t{n}" for n in range(MAX_EXEMPLARS_PER_UNIT)))
    for _ in range(2):  # they are not too many together
        assert store.ingest("tickets", full, replace=True).exemplars == MAX_EXEMPLARS_PER_UNIT


def test_an_empty_upload_is_not_an_error(store, engine, tickets):
    assert store.ingest("tickets", []) == IngestReport(0, 0, 0, ())
    assert store.get("tickets").embedding_dimension is None


def test_a_bad_row_leaves_nothing_and_nothing_is_embedded(store, engine, tickets, rows):
    def upload():
        yield from rows(2000)
        raise BadRowError(2001, "text", "is empty")

    never = Mock()
    with pytest.raises(BadRowError) as caught:
        store.ingest("tickets", upload(), never)
    assert (caught.value.row, caught.value.field) == (2001, "text")
    never.assert_not_called()
    assert counts(engine) == (0, 0, 0)


@pytest.mark.parametrize("fields", [{"text": "t"}, {"text": "t", "label": "l", "more": "m"}])
def test_a_row_with_other_fields_is_refused(store, engine, tickets, rows, fields):
    with pytest.raises(BadRowError) as caught:
        store.ingest("tickets", [*rows(1), Row(9, "ann", fields)])
    assert (caught.value.row, {caught.value.field}) == (9, {"text", "label"} ^ set(fields))
    assert counts(engine) == (0, 0, 0)


def of_unit(unit: str, texts: Iterable[int]) -> list[Row]:
    return [Row(number, unit, {"text": f"secret {number}", "label": "l"}) for number in texts]


def test_a_unit_may_have_a_thousand_exemplars_and_no_more(store, engine, tickets, rows):
    assert MAX_EXEMPLARS_PER_UNIT == 1000
    full = [*of_unit("ann", range(1000)), *of_unit("ann", range(500)), *of_unit("bo", range(1000))]
    assert store.ingest("tickets", full) == IngestReport(2000, 2, 500, ())
    assert store.ingest("tickets", [*full, *rows(1)]) == IngestReport(1, 1, 2500, ())
    before = counts(engine)
    with pytest.raises(UnitTooLargeError, match=r"^1 unit .* 1,000 .* 262,144") as caught:
        store.ingest("tickets", [*rows(2000, prefix="v"), *of_unit("ann", range(999, 1001))])
    assert caught.value.units == 1
    assert "ann" not in str(caught.value)
    assert "secret" not in str(caught.value)
    with pytest.raises(UnitTooLargeError, match=r"^2 units ") as caught:
        store.ingest("tickets", [*of_unit("ann", [1000]), *of_unit("bo", [1000])])
    assert caught.value.units == 2
    assert counts(engine) == before
    assert len(texts(store)) == 2001
    store.forget("tickets", "ann")
    assert store.ingest("tickets", of_unit("ann", range(1, 1001))).exemplars == 1000


def of_bytes(unit: str, total: int, rows: int = 16, prefix: str = "") -> list[Row]:
    """``rows`` rows whose contents have ``total`` bytes together, spread as evenly as possible; ä has two bytes."""
    sizes = [total // rows + (number < total % rows) for number in range(rows)]
    frame = len(b'["","l"]')
    texts = [f"{prefix}{number:04}ä" + "x" * (size - frame - len(prefix) - 6) for number, size in enumerate(sizes)]
    return [Row(number, unit, {"text": text, "label": "l"}) for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize("embeddings", [True, False])
def test_a_unit_may_have_256_kib_and_no_more(store, engine, tickets, embed, embeddings):
    embed = embed if embeddings else None
    assert (MAX_EXEMPLAR_BYTES, MAX_UNIT_BYTES) == (16 * 1024, 256 * 1024)
    full = of_bytes("ann", MAX_UNIT_BYTES)
    assert store.ingest("tickets", [*full, *full], embed) == IngestReport(16, 1, 16, ())
    assert store.ingest("tickets", full, embed).already_there == 16
    before = counts(engine)
    for more in (of_bytes("ann", 30, 1, "secret"), [*full, *of_bytes("ann", 30, 1, "secret")]):
        with pytest.raises(UnitTooLargeError) as caught:
            store.ingest("tickets", more, embed)
        assert caught.value.units == 1
        assert "ann" not in str(caught.value)
        assert "secret" not in str(caught.value)
    assert counts(engine) == before
    half = of_bytes("bo", MAX_UNIT_BYTES // 2)
    rest = of_bytes("bo", MAX_UNIT_BYTES // 2, prefix="rest")
    store.ingest("tickets", half, embed)
    with pytest.raises(UnitTooLargeError):
        store.ingest("tickets", [*rest[:-1], *of_bytes("bo", MAX_UNIT_BYTES // 32 + 1, 1, "last")], embed)
    assert store.ingest("tickets", rest, embed).exemplars == 16
    store.forget("tickets", "ann")
    assert store.ingest("tickets", full, embed).exemplars == 16


@pytest.mark.parametrize(("response_field", "dimension"), [(None, 0), (None, 16), ("label", 16)])
def test_the_stored_length_gives_the_bytes_of_an_exemplar(store, engine, embed, response_field, dimension):
    """Bytes are added up without decryption, and embeddings do not count towards the limit of a unit."""
    of = {"public_size": 1, "fields": ["text", "label"], "embedded_field": "text", "response_field": response_field}
    with engine.begin() as connection:
        store.create(connection, "kb", **of)
    embed = embed if dimension else None
    store.ingest("kb", of_bytes("ann", 1234, 1), embed)
    with engine.connect() as connection:
        (length,) = connection.scalars(sa.select(sa.func.length(exemplars.c.payload)))
    assert length == 1234 + OVERHEAD_BYTES + overhead(dimension, response=response_field is not None)
    full = of_bytes("bo", MAX_UNIT_BYTES)
    store.ingest("kb", full[:8], embed)
    assert store.ingest("kb", full, embed).exemplars == 8


def test_an_exemplar_may_have_16_kib_and_no_more(store, engine, tickets):
    store.ingest("tickets", of_bytes("ann", MAX_EXEMPLAR_BYTES, 1))
    with pytest.raises(BadRowError, match="16,385") as caught:
        store.ingest("tickets", of_bytes("bo", MAX_EXEMPLAR_BYTES + 1, 1))
    assert caught.value.row == 1
    assert "another knowledge base" not in str(caught.value)
    assert "ä" not in str(caught.value)
    assert counts(engine) == (1, 1, 1)


def test_a_knowledge_base_may_take_smaller_exemplars_only(store, engine, embed):
    with engine.begin() as connection:
        of = {"public_size": 1, "fields": ["text", "label"], "embedded_field": "text", "max_exemplar_bytes": 300}
        assert store.create(connection, "short", **of).max_exemplar_bytes == 300
    store.ingest("short", of_bytes("ann", 300, 1), embed)
    with pytest.raises(BadRowError, match=r"at most 300 are allowed.* up to 16,384") as caught:
        store.ingest("short", [*of_bytes("bo", 300, 1), *of_bytes("bo", 301, 1)], embed)
    assert "ä" not in str(caught.value)
    assert counts(engine) == (1, 1, 1)


@pytest.mark.parametrize("size", [0, 255, MAX_EXEMPLAR_BYTES + 1, True, 1024.0])
def test_the_largest_exemplar_has_a_size_that_can_be(store, engine, size):
    of = {"public_size": 1, "fields": ["text"], "embedded_field": "text", "max_exemplar_bytes": size}
    with engine.begin() as connection, pytest.raises(InvalidKnowledgeBaseError, match="from 256 to 16384"):
        store.create(connection, "kb", **of)


def test_too_large_a_unit_in_one_upload_is_refused_before_anything_is_embedded(store, engine, tickets, rows):
    never = Mock()
    for uploaded in (
        [*rows(2, each=1001), *rows(1, each=1000, prefix="v")],
        [*of_bytes("ann", 300_000, 20), *of_bytes("bo", 262_145, 17)],
    ):
        with pytest.raises(UnitTooLargeError) as caught:
            store.ingest("tickets", uploaded, never)
        assert caught.value.units == 2
    never.assert_not_called()
    assert counts(engine) == (0, 0, 0)


def test_uploads_side_by_side_cannot_make_a_unit_too_large(store, engine, tickets, embed):
    """The second upload is counted again when it is stored, after the first one, new units included."""

    def overtaken(texts):
        if counts(engine)[0] == 0:
            store.ingest("tickets", of_unit("ann", range(600)), embed)
        return embed(texts)

    with pytest.raises(UnitTooLargeError):
        store.ingest("tickets", of_unit("ann", range(600, 1200)), overtaken)
    assert counts(engine) == (1, 600, 1)


def _ones(count: int, length: int) -> np.ndarray:
    return np.ones((count, length)) / np.sqrt(length)


@pytest.mark.parametrize(
    ("embed_wrongly", "message"),
    [
        (lambda texts: _ones(len(texts) + 1, 4), r"\(3, d\).*\(4, 4\)"),
        (lambda texts: np.ones(len(texts)), "shape"),
        (lambda texts: np.empty((len(texts), 0)), "shape"),
        (lambda texts: 2 * _ones(len(texts), 4), "norm"),
        (lambda texts: np.full((len(texts), 4), np.nan), "norm"),
    ],
)
def test_bad_embeddings_leave_nothing(store, engine, tickets, rows, embed_wrongly, message):
    with pytest.raises(EmbeddingError, match=message):
        store.ingest("tickets", rows(3), embed_wrongly)
    assert counts(engine) == (0, 0, 0)


def test_a_knowledge_base_has_embeddings_of_one_kind(store, engine, tickets, rows, embed):
    store.ingest("tickets", rows(1), embed)
    with pytest.raises(EmbeddingError, match=r"4 .* 16"):
        store.ingest("tickets", rows(2), lambda texts: _ones(len(texts), 4))
    with pytest.raises(EmbeddingError, match="have embeddings"):
        store.ingest("tickets", rows(2))
    with engine.begin() as connection:
        store.create(connection, "plain", public_size=1, fields=["text", "label"], embedded_field="label")
    store.ingest("plain", rows(1))
    with pytest.raises(EmbeddingError, match="without"):
        store.ingest("plain", rows(2), embed)


def test_two_first_uploads_cannot_mix_embeddings(store, engine, tickets, rows, embed):
    """The second upload is checked again when it is stored, after the first one."""

    def overtaken(texts):
        store.ingest("tickets", rows(1), embed)
        return _ones(len(texts), 4)

    with pytest.raises(EmbeddingError, match="Another upload"):
        store.ingest("tickets", rows(2), overtaken)
    assert counts(engine) == (1, 1, 1)


def test_concurrent_uploads_all_succeed(store, engine, tickets, rows, embed):
    together = threading.Barrier(4)

    def upload(number: int) -> IngestReport:
        def embed_together(texts):
            together.wait(timeout=30)
            return embed(texts)

        own = rows(20, prefix=f"own{number}-")
        shared = [Row(100 + i, f"shared{i}", {"text": f"{number}", "label": "l"}) for i in range(20)]
        return store.ingest("tickets", own + shared, embed_together)

    with ThreadPoolExecutor(4) as pool:
        reports = list(pool.map(upload, range(4)))
    assert sum(report.exemplars for report in reports) == 160
    assert sum(report.units for report in reports) == 4 * 20 + 20
    assert counts(engine) == (100, 160, 100)
    assert len(texts(store)) == 160
