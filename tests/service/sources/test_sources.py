"""Sources of every kind and format give the same rows."""

import codecs
import datetime
import decimal
import gzip
import json
import re
import threading
import uuid
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pyarrow as pa
import pyarrow.feather
import pyarrow.parquet
import pytest
import sqlalchemy as sa

from exemplar_store import BadRowError, ExemplarStore, Layout
from exemplar_store.rows import Unreadable
from exemplar_store.tables import metadata
from service.records.database import open_database
from service.sources.cursor import Cursor
from service.sources.files import Source, open_file
from service.sources.reading import Reading
from service.sources.sql import open_query
from tests.service.sources.contract import LAYOUT, TICKETS, FileContract, Record, SourceContract, Write


def read(where: object, layout: Layout = LAYOUT, **options: str) -> tuple[str, list[dict[str, str]]]:
    with open_file(str(where), Reading(**options)) as source:
        return source.described, [{"unit_id": row.unit_id, **row.fields} for row in source.rows(layout)]


def table(mark: str, records: Sequence[Record] = TICKETS) -> str:
    lines = [list(records[0]), *(list(one.values()) for one in records)]
    return "".join(mark.join(f'"{cell}"' for cell in line) + "\r\n" for line in lines)


@pytest.mark.parametrize(
    ("name", "data", "described"),
    [
        ("t.csv", table(",").encode(), "CSV in utf-8 with ',' between cells"),
        ("t.csv", table(";").encode(), "CSV in utf-8 with ';' between cells"),
        ("t.csv", table("|").encode("utf-16"), "CSV in utf-16 with '|' between cells"),
        ("t.csv", codecs.BOM_UTF16_BE + table("|").encode("utf-16-be"), "CSV in utf-16 with '|' between cells"),
        ("t.csv", table("|").encode("utf-32"), "CSV in utf-32 with '|' between cells"),
        ("t.csv", table(";").replace("\r\n", "\r").encode(), "CSV in utf-8 with ';' between cells"),
        ("t.csv", table("\t").encode("utf-8-sig"), r"CSV in utf-8 with '\t' between cells"),
        ("t.csv", b"sep=;\r\n" + table(";").encode(), "CSV in utf-8 with ';' between cells"),
        ("t.csv", ("sep=~\n" + table("~")).encode("utf-8-sig"), "CSV in utf-8 with '~' between cells"),
        ("t.TSV", table("\t").encode(), r"CSV in utf-8 with '\t' between cells"),
        ("t.csv.gz", gzip.compress(table(";").encode(), mtime=0), "CSV in utf-8 with ';' between cells"),
    ],
)
def test_text_is_read_as_what_it_looks_like(tmp_path: Path, name: str, data: bytes, described: str) -> None:
    (tmp_path / name).write_bytes(data)
    assert read(tmp_path / name) == (described, TICKETS)


def test_a_given_encoding_and_delimiter_are_used(tmp_path: Path) -> None:
    file = tmp_path / "t.csv"
    file.write_bytes(table("|").encode("cp850", "replace"))
    described, rows = read(file, encoding="cp850", delimiter="|")
    assert (described, rows[1]["label"]) == ("CSV in cp850 with '|' between cells", "Geld")
    with pytest.raises(BadRowError):
        read(file, encoding="cp850", delimiter=";")
    file.write_text(table("\t"))
    assert read(file, delimiter=r"\t") == ("CSV in utf-8 with '\\t' between cells", TICKETS)
    for mark in ("", "||", "\n"):
        with pytest.raises(ValueError, match="delimiter"):
            read(file, encoding="cp850", delimiter=mark or '"')


class TestCsv(FileContract):
    name, first = "t.csv", 2  # the header is line 1

    def put(self, records: Sequence[Record], path: Path) -> None:
        path.write_text(table(";", records))


class TestJsonLines(FileContract):
    name = "t.jsonl"

    def put(self, records: Sequence[Record], path: Path) -> None:
        path.write_text("".join(f"{json.dumps(row)}\n" for row in records))


class TestParquet(FileContract):
    name = "t.parquet"

    def put(self, records: Sequence[Record], path: Path) -> None:
        pyarrow.parquet.write_table(pa.Table.from_pylist(records), path)


class TestFeather(FileContract):
    name = "t.feather"

    def put(self, records: Sequence[Record], path: Path) -> None:
        pyarrow.feather.write_feather(pa.Table.from_pylist(records), path)


class TestArrowStream(FileContract):
    name = "t.arrow"

    def put(self, records: Sequence[Record], path: Path) -> None:
        found = pa.Table.from_pylist(records)
        with pa.OSFile(str(path), "wb") as sink, pa.ipc.new_stream(sink, found.schema) as writer:
            writer.write_table(found)


class TestAddress(SourceContract):
    first = 2

    @pytest.fixture
    def write(self, tmp_path: Path, web: str) -> Write:
        def write(records: Sequence[Record]) -> Callable[[], AbstractContextManager[Source]]:
            (tmp_path / "t.csv").write_text(table(",", records))
            return lambda: open_file(f"{web}/t.csv")

        return write


class TestSql(SourceContract):
    @pytest.fixture
    def write(self, tmp_path: Path) -> Write:
        url = f"sqlite:///{tmp_path / 'tickets.sqlite'}"

        def write(records: Sequence[Record]) -> Callable[[], AbstractContextManager[Source]]:
            engine, tables = sa.create_engine(url), sa.MetaData()
            tickets = sa.Table("tickets", tables, *(sa.Column(name, sa.Text) for name in records[0]))
            tables.drop_all(engine)
            tables.create_all(engine)
            with engine.begin() as connection:
                connection.execute(sa.insert(tickets), records)
            engine.dispose()
            return lambda: open_query(url, "SELECT * FROM tickets ORDER BY rowid")

        return write


@pytest.fixture
def web(tmp_path: Path) -> Iterator[str]:
    class Quiet(SimpleHTTPRequestHandler):
        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=tmp_path)) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("{}/none.csv", "none.csv"),
        ("{}/none", "none"),
        ("{}/empty", "empty"),
        ("{}/notes.txt", ".jsonl, .ndjson, .csv, .tsv, .xlsx"),
        ("{}/not.parquet", "not.parquet: .*Parquet"),
        ("{}/shop.db", "shop.db: .*--from-sql and --query"),
        ("-", "standard input"),
        ("s3://bucket/t.parquet", "s3://bucket/t.parquet: .*s3fs"),
        ("carrier-pigeon://loft/t.csv", "carrier-pigeon"),
    ],
)
def test_a_source_that_cannot_be_read_is_named(tmp_path: Path, where: str, message: str) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "notes.txt").touch()
    (tmp_path / "not.parquet").write_text("text")
    (tmp_path / "shop.db").write_bytes(b"SQLite format 3\0")
    with pytest.raises(ValueError, match=message):
        read(where.format(tmp_path))


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_a_column_that_is_not_needed_may_hold_anything(tmp_path: Path, ending: str) -> None:
    """If it is needed, the error repeats no value, although the library's own message may."""
    unreadable = {
        "far": pa.array([None, 316_500_000_000], pa.timestamp("s")),
        "nanoseconds": pa.array([None, 1_700_000_000_000_000_001], pa.timestamp("ns")),
        "zone": pa.array([None, 0], pa.timestamp("us", tz="Mars/Phobos")),
        "nested": pa.array([None, {"a": 1_700_000_000_000_000_001}], pa.struct([("a", pa.timestamp("ns"))])),
    }
    write = pyarrow.parquet.write_table if ending == "parquet" else pyarrow.feather.write_feather
    write(pa.table({"unit_id": ["a", "b"], "text": ["x", "y"], **unreadable}), file := str(tmp_path / f"t.{ending}"))
    with open_file(file) as source:
        assert [row.ignored for row in source.rows(Layout(("text",)))] == [tuple(unreadable)] * 2
    with open_file(file) as source:
        rows = [row for _, row in source.records(["text"], whole=True)]
    assert [[isinstance(row[name], Unreadable) for name in unreadable] for row in rows] == [[False] * 4, [True] * 4]
    for name in unreadable:
        with open_file(file) as source, pytest.raises(BadRowError) as caught:
            list(source.rows(Layout((name,), columns={}, numbers_as_text=True)))
        assert (caught.value.row, caught.value.field) == (1, name), "it is missing there"
        with open_file(file) as source, pytest.raises(BadRowError) as caught:
            list(source.rows(Layout(("text",), name)))
        assert not re.search(r"\d{6}", str(caught.value).partition(ending)[2])


@pytest.mark.parametrize("ending", ["parquet", "feather"])
def test_columns_that_share_a_name_matter_where_it_is_needed(tmp_path: Path, ending: str) -> None:
    columns = [pa.array([value]) for value in ("ann", "hello", "one", "two")]
    write = pyarrow.parquet.write_table if ending == "parquet" else pyarrow.feather.write_feather
    write(pa.table(columns, ["unit_id", "text", "note", "note"]), file := str(tmp_path / f"t.{ending}"))
    assert read(file, Layout(("text",)))[1] == [{"unit_id": "ann", "text": "hello"}]
    with pytest.raises(BadRowError, match="'note': is named twice"):
        read(file, Layout(("note",)))


def test_only_the_columns_that_are_needed_are_read_and_the_others_are_named(tmp_path: Path) -> None:
    file = tmp_path / "t.parquet"
    columns = {"patient": [uuid.UUID(int=1).bytes], "note": ["a"], "icd": [1.5], "on": [datetime.date(2025, 3, 1)]}
    pyarrow.parquet.write_table(pa.table(columns), file)
    layout = Layout(("text", "code"), "patient", {"text": "note", "code": "icd"})
    with open_file(str(file)) as source, pytest.raises(BadRowError) as caught:
        list(source.rows(layout))
    assert caught.value.field == "patient"
    pyarrow.parquet.write_table(pa.table(columns | {"patient": [17]}), file)
    with open_file(str(file)) as source, pytest.raises(BadRowError) as caught:
        list(source.rows(layout))
    assert caught.value.field == "icd"
    layout = Layout(("text", "code", "day"), "patient", {"text": "note", "code": "icd", "day": "on"}, True)
    with open_file(str(file)) as source:
        (row,) = source.rows(layout)
    assert (row.unit_id, row.fields, row.ignored) == ("17", {"text": "a", "code": "1.5", "day": "2025-03-01"}, ())
    with open_file(str(file)) as source:
        (row,) = source.rows(Layout(("note",), "patient"))
    assert row.ignored == ("icd", "on")


@pytest.fixture
def shop(database_url: str) -> str:
    """A database of another program, with a table of tickets."""
    engine = sa.create_engine(database_url)
    tickets = sa.Table(
        "tickets",
        sa.MetaData(),
        sa.Column("customer", sa.Uuid),
        sa.Column("body", sa.Text),
        sa.Column("price", sa.Numeric(8, 2)),
    )
    tickets.create(engine)
    with engine.begin() as connection:
        rows = [
            {"customer": uuid.UUID(int=n), "body": f"100% of {n}", "price": decimal.Decimal(n)} for n in range(2500)
        ]
        connection.execute(sa.insert(tickets), rows)
    engine.dispose()
    return database_url


def test_a_query_is_read(shop: str) -> None:
    query = "SELECT customer, body AS text, price FROM tickets WHERE body LIKE '100% of %' ORDER BY price"
    layout = Layout(("text", "price"), "customer", numbers_as_text=True)
    with open_query(shop, query) as source:
        rows = list(source.rows(layout))
    assert len(rows) == 2500
    assert rows[7].fields["text"] == "100% of 7"
    assert decimal.Decimal(rows[7].fields["price"]) == 7
    assert uuid.UUID(rows[7].unit_id) == uuid.UUID(int=7)


def test_one_person_is_one_unit_wherever_they_come_from(database_url: str, tmp_path: Path) -> None:
    """The unit's id is a number or a UUID, and the unit is forgotten by any spelling of it."""
    who, stored = uuid.UUID("0a1b2c3d-0000-4000-8000-00000000abcd"), open_database(f"sqlite:///{tmp_path}/store")
    metadata.create_all(stored)
    store = ExemplarStore(stored, bytes(32))
    with stored.begin() as connection:
        store.create(connection, "kb", public_size=9, fields=["text"], embedded_field="text")
    shop = sa.create_engine(database_url)
    columns = [sa.Column("n", sa.Numeric(8, 2)), sa.Column("who", sa.Uuid), sa.Column("text", sa.Text)]
    people = sa.Table("people", sa.MetaData(), *columns)
    people.create(shop)
    with shop.begin() as connection:
        connection.execute(sa.insert(people), {"n": 17, "who": who, "text": "from a database"})
    shop.dispose()
    fits = [pa.array([17]), pa.array([decimal.Decimal("17.00")]), pa.array(["17.0"])]
    for number, column in enumerate(fits):
        columns = {"n": column, "who": pa.array([str(who).upper()]), "text": [f"from table {number}"]}
        pyarrow.parquet.write_table(pa.table(columns), tmp_path / f"{number}.parquet")
    (tmp_path / "t.csv").write_text(f"n,who,text\n17.00,{{{who}}},from a file\n")
    (tmp_path / "t.jsonl").write_text(f'{{"n": 17, "who": "{who.urn}", "text": "from lines"}}\n')
    sources = [
        partial(open_query, database_url, "SELECT n, who, text FROM people"),
        *(partial(open_file, str(file)) for file in sorted(tmp_path.glob("*.*[lvt]"))),
    ]
    for as_text in (False, True):
        for column, spelt in (("n", "17.0"), ("who", str(who).upper())):
            units = []
            for source in sources:
                with source() as found:
                    rows = found.rows(Layout(("text",), column, numbers_as_text=as_text))
                    units.append(store.ingest("kb", rows).units)
            assert (units[1:], len(units)) == ([0] * 5, 6)
            assert store.forget("kb", spelt) == 6


def test_a_query_goes_on_where_it_ended(shop: str, tmp_path: Path) -> None:
    file, layout = tmp_path / "shop.cursor", Layout(("body",), "customer")
    query = "SELECT customer, body, price FROM tickets WHERE price > :since AND price < {} ORDER BY body"

    def read(below: int) -> int:
        cursor = Cursor.open("price", file, "-1")
        with open_query(shop, query.format(below), cursor) as source:
            found = len(list(source.rows(layout)))
        cursor.save()
        return found

    assert [read(100), read(100), read(2500), read(2500)] == [100, 0, 2400, 0]
    with pytest.raises(ValueError, match="--since"):
        Cursor.open("price", tmp_path / "other.cursor", None)
    for broken in ("", "[]", '{"price": true}', '{"body": 1}'):
        file.write_text(broken)
        with pytest.raises(ValueError, match=re.escape(str(file))):
            Cursor.open("price", file, "0")


def test_an_overlap_finds_rows_that_are_committed_late(database_url: str, tmp_path: Path) -> None:
    file, sqlite = tmp_path / "shop.cursor", database_url.startswith("sqlite")
    engine = sa.create_engine(database_url)
    columns = [sa.Column("customer", sa.Text), sa.Column("updated_at", sa.DateTime)]
    tickets = sa.Table("tickets", sa.MetaData(), *columns)
    tickets.create(engine)
    after = "datetime(:since, '-1 hour')" if sqlite else "CAST(:since AS timestamp) - INTERVAL '1 hour'"

    def read(*changes: tuple[str, int]) -> set[str]:
        rows = [{"customer": who, "updated_at": datetime.datetime(2026, 2, 1, 10, at)} for who, at in changes]
        with engine.begin() as connection:
            connection.execute(sa.insert(tickets), rows)
        cursor = Cursor.open("updated_at", file, "2026-01-01")
        query = "SELECT customer, customer AS text, updated_at FROM tickets WHERE updated_at > "
        with open_query(database_url, query + after, cursor) as source:
            found = {row.unit_id for row in source.rows(Layout(("text",), "customer"))}
        cursor.save()
        return found

    assert read(("ana", 30)) == {"ana"}
    assert read(("bo", 30), ("cy", 29)) >= {"bo", "cy"}
    with engine.begin() as connection:
        connection.execute(sa.delete(tickets).where(tickets.c.updated_at == datetime.datetime(2026, 2, 1, 10, 30)))
    noted = file.read_text()
    assert read(("dee", 20)) == {"cy", "dee"}
    assert file.read_text() == noted  # it does not go back
    engine.dispose()


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("9e999", "row 2, field 'at': is infinite"),
        ("'inf'", "row 2, field 'at': is infinite"),
        ("'later'", "row 2, field 'at': is of another type"),
        ("x'00'", "row 2, field 'at': is neither a number"),
        ("cast(x'e9' AS text)", "row 2, field 'at': is text that is not UTF-8"),
    ],
)
def test_a_cursor_goes_on_after_a_time_or_a_number(shop: str, tmp_path: Path, value: str, message: str) -> None:
    """An infinite one would be the last: no row comes after it."""
    cursor = Cursor.open("at", tmp_path / "shop.cursor", "2497")
    query = "SELECT customer, body, iif(price = 2499, {}, price) AS at FROM tickets WHERE price > :since"
    with open_query(shop, query.format(value), cursor) as source, pytest.raises(BadRowError, match=message) as caught:
        list(source.rows(Layout(("body",), "customer")))
    assert "later" not in str(caught.value).partition("of another type")[0]
    assert cursor.since == "2497"


@pytest.mark.parametrize(
    ("since", "newest"),
    [
        ("7.5", 7),
        (7, 5.5),
        ("7.50", decimal.Decimal("7.4")),
        ("2026-01-02", datetime.date(2026, 1, 1)),
        ("2026-01-02 00:00:00+02:00", datetime.datetime(2026, 1, 1, 21, tzinfo=datetime.UTC)),
        ("2026-01-02", "2026-01-01 10:00:00"),
    ],
)
def test_a_cursor_does_not_go_back(tmp_path: Path, since: str | float, newest: object) -> None:
    cursor = Cursor("at", tmp_path / "shop.cursor", since)
    assert list(cursor.noting(iter([{"at": newest}]))) == [{"at": newest}]
    assert cursor.since == since


@pytest.mark.parametrize("since", ["January 1 2026", 7])
def test_a_cursor_goes_on_from_what_was_written_in_another_way(tmp_path: Path, since: str | int) -> None:
    cursor = Cursor("at", tmp_path / "shop.cursor", since)
    list(cursor.noting(iter([{"at": datetime.datetime(2026, 2, 1)}])))
    assert cursor.since == "2026-02-01 00:00:00"


def test_a_cursor_whose_file_cannot_be_written_is_refused_before_anything_is_read(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="its folder does not exist"):
        Cursor.open("at", tmp_path / "nowhere" / "shop.cursor", "2026-01-01")


def test_a_cursor_that_nothing_comes_after_is_refused(tmp_path: Path) -> None:
    for start in ("inf", "-Infinity", "nan"):
        with pytest.raises(ValueError, match="--since"):
            Cursor.open("at", tmp_path / "none.cursor", start)
    (tmp_path / "shop.cursor").write_text('{"at": Infinity}')
    with pytest.raises(ValueError, match=r"shop\.cursor"):
        Cursor.open("at", tmp_path / "shop.cursor", None)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
def test_values_of_a_database_that_cannot_be_read_matter_where_they_are_needed(shop: str) -> None:
    def read(query: str) -> list[str]:
        with open_query(shop, query) as source:
            return [row.fields["text"] for row in source.rows(Layout(("text",)))]

    broken = "cast(x'436166e9' AS text)"
    assert read(f"SELECT 'ann' AS unit_id, 'hello' AS text, {broken} AS note, 1 AS n, 2 AS n") == ["hello"]
    for needed in (f"'ann' AS unit_id, {broken} AS text", f"{broken} AS unit_id, 'hello' AS text"):
        with pytest.raises(BadRowError, match=r"row 1, field '\w+': is text that is not UTF-8") as caught:
            read(f"SELECT {needed}")
        assert "Caf" not in str(caught.value)
    with pytest.raises(BadRowError, match="'text': is named twice"):
        read("SELECT 'ann' AS unit_id, 'hello' AS text, 'x' AS text")


POSTGRES_VALUES = """SELECT 'ann' AS unit_id, 'hello' AS text, 'infinity'::timestamptz AS a, '0044-03-15 BC'::date AS b,
ARRAY['infinity'::timestamp] AS c, '[2020-01-01,infinity)'::daterange AS d, 'NaN'::numeric AS e, '\x00'::bytea AS f,
point(1, 2) AS g, '{"a": 1}'::jsonb AS h, '24:00'::time AS i, row(1, 'a') AS j, 1 AS k, 2 AS k"""


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_values_of_postgresql_that_cannot_be_read_matter_where_they_are_needed(database_url: str) -> None:
    def read(query: str, layout: Layout) -> list[str]:
        with open_query(database_url, query) as source:
            return [row.fields["text"] for row in source.rows(layout)]

    assert read(POSTGRES_VALUES, Layout(("text",))) == ["hello"]
    with pytest.raises(BadRowError, match="row 1, field 'b': is a value of the type date that cannot be read"):
        read(POSTGRES_VALUES, Layout(("text",), "b"))
    for query in ("SELECT 'Jane' AS unit_id, text::int AS text FROM (VALUES ('Doe')) AS t (text)", "SELECT 'Doe'::int"):
        with pytest.raises(ValueError, match="22P02") as caught:
            read(query, Layout(("text",)))
        assert "Doe" not in str(caught.value)


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize("with_cursor", [False, True])
@pytest.mark.parametrize(
    "condition",
    [
        """json_extract('{"a":1}', '$.a') = 1""",
        "body <> ' :x'",
        "body <> 'it''s :since'",
        """body <> ':x' /* :y "' */ -- :z""",
        'body <> ":x"',
        r"body <> 'a\:b' AND '50%' LIKE '50%'",
    ],
)
def test_a_colon_in_a_literal_or_a_comment_begins_no_parameter(
    shop: str, tmp_path: Path, condition: str, with_cursor: bool
) -> None:
    cursor = Cursor.open("price", tmp_path / "shop.cursor", "2397") if with_cursor else None
    bound = ":since" if with_cursor else "2397"
    query = "SELECT customer, body, price FROM tickets WHERE price > {} AND "
    with open_query(shop, query.format(bound) + condition, cursor) as source:
        assert len(list(source.rows(Layout(("body",), "customer")))) == 102


def test_the_database_is_released_with_the_last_row(shop: str) -> None:
    """The work on the rows may take an hour, and servers end transactions that are idle."""
    options = {"connect_args": {"options": "-c lock_timeout=1s"}} if shop.startswith("postgresql") else {}
    other = sa.create_engine(shop, **options)
    with open_query(shop, "SELECT customer, body FROM tickets") as source:
        assert len(list(source.rows(Layout(("body",), "customer")))) == 2500
        with other.begin() as connection:  # waits for transactions that still read
            connection.execute(sa.text("DROP TABLE tickets"))
    other.dispose()


ENDED = """SELECT pg_terminate_backend(pid) FROM pg_stat_activity
WHERE pid <> pg_backend_pid() AND datname = current_database()"""


@pytest.mark.slow
@pytest.mark.parametrize("database_url", ["postgresql"], indirect=True)
def test_a_database_that_goes_away_is_named(shop: str) -> None:
    other = sa.create_engine(shop)

    def read() -> None:
        with open_query(shop, "SELECT customer, body FROM tickets") as source:
            rows = source.rows(Layout(("body",), "customer"))
            next(rows)
            with other.begin() as connection:
                connection.execute(sa.text(ENDED))
            list(rows)

    with pytest.raises(ValueError, match="database to read") as caught:
        read()
    other.dispose()
    assert "\n" not in str(caught.value)


def test_a_mistyped_database_is_not_created(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"shop\.db"), open_query(f"sqlite:///{tmp_path}/shop.db", "SELECT 1"):
        pass
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("database_url", ["sqlite"], indirect=True)
@pytest.mark.parametrize(
    ("column", "query", "message"),
    [
        ("price", "SELECT customer, body, price FROM tickets", "--cursor"),
        ("price", "SELECT customer, body, price FROM tickets WHERE price > :since + :more", "--cursor"),
        (None, "SELECT customer, body, price FROM tickets WHERE price > :since", "--cursor"),
        ("price", "SELECT customer, body FROM tickets WHERE price > :since", "'price'"),
        ("price", "SELECT customer, body, price, price FROM tickets WHERE price > :since", "several columns 'price'"),
        ("price", "SELECT customer, body, price FROM tickets WHERE body <> ':since'", "--cursor"),
    ],
)
def test_a_query_and_a_cursor_that_do_not_fit(
    shop: str, tmp_path: Path, column: str | None, query: str, message: str
) -> None:
    cursor = None if column is None else Cursor.open(column, tmp_path / "shop.cursor", "0")
    with pytest.raises(ValueError, match=message), open_query(shop, query, cursor) as source:
        list(source.rows(Layout(("body",), "customer")))


@pytest.mark.parametrize(
    ("query", "message"),
    [
        ("SELECT body FROM nowhere", "nowhere"),
        ("DELETE FROM tickets", "returns no rows|syntax error"),
        ("SELECT body FROM tickets", "'customer': .*'body'"),
        ("SELECT customer, customer, body FROM tickets", "'customer'"),
    ],
)
def test_a_query_that_does_not_fit_changes_nothing(shop: str, query: str, message: str) -> None:
    def read(query: str) -> list[object]:
        with open_query(shop, query) as source:
            return [row.fields["body"] for row in source.rows(Layout(("body",), "customer"))]

    with pytest.raises((ValueError, BadRowError), match=message):
        read(query)
    assert len(read("SELECT customer, body FROM tickets")) == 2500


PASSWORD = "hunter2"  # pragma: allowlist secret


@pytest.mark.parametrize(
    "url",
    [
        "shop",
        f"postgresql+no_such_driver://ana:{PASSWORD}@localhost/shop",
        f"postgresql://ana:{PASSWORD}/7@localhost/shop",
        f"postgresql://ana:7@{PASSWORD}@localhost/shop",
        f"postgresql://ana:7/{PASSWORD}@localhost:port/shop",
    ],
)
def test_an_error_about_a_database_shows_no_password(url: str) -> None:
    with pytest.raises(ValueError, match="database to read") as caught, open_query(url, "SELECT 1"):
        pass
    assert PASSWORD not in str(caught.value)


def test_lines_before_the_header_are_skipped_and_the_header_proposed(tmp_path: Path) -> None:
    """Rows keep the numbers that a spreadsheet gives them, and the delimiter is the header's."""
    file = tmp_path / "calls.csv"
    file.write_text('Calls, of March\n\n"Owner";text;label\nann;"two\nlines";a\n\nbo;;b\ncy;t;\ncy;u;a\n')
    layout = Layout(("text", "label"), "Owner")
    with open_file(str(file)) as source, pytest.raises(BadRowError, match="row 3 has 3 of the columns") as refused:
        list(source.rows(layout))
    assert refused.value.remedy == ("skip_lines", 2)
    with open_file(str(file), Reading(skip_lines=2)) as source, pytest.raises(BadRowError, match="row 6, field 'text'"):
        list(source.rows(layout))
    with open_file(str(file), Reading(skip_lines=2, skip_incomplete=True)) as source:
        assert [(row.number, row.unit_id) for row in source.rows(layout)] == [(4, "ann"), (8, "cy")]
    assert layout.left_out == {("text", "empty"): 1, ("label", "empty"): 1}
    with open_file(str(file), Reading(skip_lines=2, skip_incomplete=True)) as source:
        assert [number for number, _ in source.records(["text"], whole=True)] == [4, 7, 8]
        assert source.left_out == {("text", "empty"): 1}
    with open_file(str(file), Reading(skip_lines=20)) as source, pytest.raises(BadRowError, match="row 21: is empty"):
        list(source.rows(layout))


def test_members_of_tables_are_named_with_dots(tmp_path: Path) -> None:
    rows = [{"owner": {"id": "ann", "age": 7}, "text": "a", "more": 1}, {"owner": {"id": None}, "text": "b", "more": 1}]
    pyarrow.parquet.write_table(pa.Table.from_pylist(rows), tmp_path / "calls.parquet")
    layout = Layout(("text",), "owner.id", skip_incomplete=True)
    with open_file(str(tmp_path / "calls.parquet")) as source:
        assert [(row.unit_id, row.ignored) for row in source.rows(layout)] == [("ann", ("more",))]
    assert layout.left_out == {("owner.id", "empty"): 1}
