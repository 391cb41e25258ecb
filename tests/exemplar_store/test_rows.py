"""Uploads: what is read, and what the error names when an upload cannot be read."""

import io
import json
import uuid
from datetime import date, datetime, time, timedelta
from decimal import Decimal

import pytest

from exemplar_store import BadRowError, Layout, Row, read_csv, read_json_lines
from exemplar_store.encryption import KnowledgeBaseKeys
from exemplar_store.rows import MAX_LINE_CHARACTERS

LAYOUT = Layout(fields=("text", "label"))
GOOD = {"unit_id": "ann", "text": "hello", "label": "yes"}


def json_rows(data: bytes, layout: Layout = LAYOUT) -> list[Row]:
    return list(read_json_lines(io.BytesIO(data), layout))


def csv_rows(data: bytes, layout: Layout = LAYOUT) -> list[Row]:
    return list(read_csv(io.BytesIO(data), layout))


def line(**changes: object) -> bytes:
    return json.dumps({**GOOD, **changes}).encode()


def test_json_lines():
    data = line() + b"\n\n" + line(unit_id=7, text="zwölf\nZeilen 🎉", source="web") + b"\r\n" + line(unit_id="bo")
    assert json_rows(data) == [
        Row(1, "ann", {"text": "hello", "label": "yes"}),
        Row(3, "7", {"text": "zwölf\nZeilen 🎉", "label": "yes"}, ("source",)),
        Row(4, "bo", {"text": "hello", "label": "yes"}),
    ]
    assert json_rows(b"") == []


def test_csv_with_quotes_line_breaks_and_columns_in_any_order():
    data = b'label,extra,unit_id,text\r\nyes,1,ann,"a, ""b""\r\nc"\r\n\r\nno,2,7,d\r\n'
    assert csv_rows(data) == [
        Row(2, "ann", {"text": 'a, "b"\r\nc', "label": "yes"}, ("extra",)),
        Row(4, "7", {"text": "d", "label": "no"}, ("extra",)),
    ]


@pytest.mark.parametrize("read", [json_rows, csv_rows])
def test_a_byte_order_mark_is_not_part_of_the_first_name(read):
    data = line() if read is json_rows else b"unit_id,text,label\nann,hello,yes\n"
    assert read(b"\xef\xbb\xbf" + data) == read(data)


def test_the_unit_column_may_have_another_name_and_be_a_field_too():
    layout = Layout(fields=("text", "shop"), unit_id="shop")
    assert json_rows(b'{"shop": "s1", "text": "t"}', layout) == [Row(1, "s1", {"text": "t", "shop": "s1"})]


def test_fields_may_be_taken_from_columns_of_other_names_and_from_numbers():
    layout = Layout(("text", "label"), "owner", {"text": "body", "label": "code"}, numbers_as_text=True)
    data = b'{"owner": 7, "body": "hello", "code": 1.5, "text": "other"}'
    assert json_rows(data, layout) == [Row(1, "7", {"text": "hello", "label": "1.5"}, ("text",))]
    for wrong, kind in ((b"NaN", "empty"), (b"true", "true or false")):
        with pytest.raises(BadRowError, match=kind) as caught:
            json_rows(data.replace(b"1.5", wrong), layout)
        assert caught.value.field == "code"


SAME = [
    [17, Decimal(17), Decimal("17.00"), Decimal("1.7E1"), "17", "17.0", "17.00"],
    [uuid.UUID(int=171), str(uuid.UUID(int=171)).upper(), f"{{{uuid.UUID(int=171)}}}", uuid.UUID(int=171).hex.upper()],
    [uuid.UUID(int=171), uuid.UUID(int=171).urn, uuid.UUID(int=171).hex],
    ["ann7", "ａｎｎ７"],
    ["ガム", "ｶﾞﾑ"],
    ["Zo\u00e9", "Zoe\u0301"],
    ["Anne-Marie", "Anne\u2011Marie", "Anne\u2010Marie", "Anne\u2013Marie", "Anne\u2212Marie", "Anne\xad\u2011Marie"],
    ["O'Brien", "O\u2019Brien", "O\u02bcBrien", "O`Brien", "O\xb4Brien"],
    ["ann lee", "ann  lee", " ann lee ", "ann\xa0lee", "ann\u2003lee", "ann\u3000lee", "ann\tlee", "ann\n lee"],
    ["ann", *(f"a{one}nn" for one in "\x07\x7f\xad\u034f\u200d\u200b\u200e\u202a\u2060\u3164\ufeff\ufe0f\U000e0041")],
    ["Griffith", "Gri\ufb03th"],
    ["\u9577", "\u2ed1"],
    ["A-17", "\u0410-17", "\u0391-17"],
    ["17", "\u0661\u0667", "\uff11\uff17"],
]
OTHERS = [
    "7",
    "07",
    "7.5",
    "7.50",
    "1.1",
    "1.10",
    "+7",
    "Ann",
    "ann",
    "a b",
    "ab",
    "Zoe",
    "Zo\u00e9",
    "l",
    "1",
    "\u043d",
    "\u041d",
    uuid.UUID(int=7).hex[1:],
]


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize("same", SAME)
def test_a_unit_is_one_text_whatever_type_its_id_has(same: list[object], as_text: bool) -> None:
    layout = Layout(("text",), numbers_as_text=as_text)
    assert len({layout.row(1, {"unit_id": one, "text": "hello"}).unit_id for one in same}) == 1
    keys = KnowledgeBaseKeys(bytes(32), bytes(16))
    # A client that asks to forget the unit may spell its id in any of these ways.
    assert len({keys.unit_tag(str(one)) for one in same if not isinstance(one, Decimal)}) == 1


def test_what_is_not_the_same_id_is_another_unit() -> None:
    layout = Layout(("text",))
    assert len({layout.row(1, {"unit_id": one, "text": "hello"}).unit_id for one in OTHERS}) == len(OTHERS)


@pytest.mark.parametrize("as_text", [False, True])
@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (float(17), "with a point"),
        (float("inf"), "with a point"),
        (float("nan"), "empty"),
        (Decimal("17.5"), "with a point"),
        (Decimal("1E+999999"), "with a point"),
        (Decimal("Infinity"), "with a point"),
        (Decimal("NaN"), "empty"),
        (True, "true or false"),
        (b"ann", "bytes"),
        (date(2026, 1, 1), "date or a time"),
        (datetime(2026, 1, 1), "date or a time"),
        (time(9), "date or a time"),
    ],
)
def test_a_value_that_is_not_an_id_is_refused(wrong: object, message: str, as_text: bool) -> None:
    with pytest.raises(BadRowError, match=message):
        Layout(("text",), numbers_as_text=as_text).row(1, {"unit_id": wrong, "text": "hello"})


@pytest.mark.parametrize("unit", ["ann lee", "Ünal-7", "佐藤", "นที", "a.b@example.org", "👤"])
def test_other_ids_are_taken(unit: str) -> None:
    (row,) = json_rows(line(unit_id=unit))
    assert row.unit_id == unit


BAD_LINES = [
    (line(text=""), "text", "empty"),
    (line(text=None), "text", "empty"),
    (b'{"unit_id": "ann", "text": "t"}', "label", "missing"),
    (line(label=3), "label", "a number"),
    (line(label=True), "label", "true or false"),
    (line(unit_id=""), "unit_id", "empty"),
    (line(unit_id=None), "unit_id", "empty"),
    (line(unit_id="\u200b\xad"), "unit_id", "no character that is shown"),
    (line(unit_id=17.0), "unit_id", "with a point"),
    (line(unit_id=["ann"]), "unit_id", "a list"),
    (line(unit_id="x" * 1001), "unit_id", "1,001 .* 1,000"),
    (line(text="x" * 16_380), None, "16,390 .* 16,384"),
    (line(text="a\x00b"), "text", "NUL"),
    (line(text="a\ud800b"), "text", "surrogate"),
    (b'{"unit_id": "ann", "text": "t", "text": "u", "label": "l"}', "text", "twice"),
    (b'["ann"]', None, "JSON object"),
    (b"{'unit_id': 'ann'}", None, "at character 2"),
    (b"[" * 100_000, None, "levels"),
    (b'{"unit_id": "ann", "label": "l", "text": ' + b"9" * 10_000 + b"}", "text", "a number"),
    (b'{"unit_id": "ann", "label": "l", "text": "caf\xe9"}', None, "UTF-8 at byte 4"),
    (b'{"unit_id": "ann", "label": "l", "text": "caf\xe9}', None, "UTF-8 at byte 4"),
]


@pytest.mark.parametrize(("bad", "field", "message"), BAD_LINES)
def test_a_bad_line_is_named(bad, field, message):
    with pytest.raises(BadRowError, match=message) as caught:
        json_rows(line() + b"\n" + bad.replace(b"ann", b"SECRET") + b"\n" + line())
    assert (caught.value.row, caught.value.field) == (2, field)
    assert str(caught.value).startswith("row 2" + (f", field {field!r}: " if field else ": "))
    str(caught.value).encode()
    assert "SECRET" not in str(caught.value), "private text is not repeated"


BAD_TABLES = [
    (b"", 1, None, "empty"),
    (b"unit_id,text\nann,t\n", 1, "label", "'unit_id', 'text'"),
    (b"unit_id,text,label,text\n", 1, "text", "twice"),
    (b"ann,SECRET,l\n", 1, "unit_id", "is not among the 3 cells of this row"),
    (b"unit_id,Text,label\n", 1, "text", "'Text'"),
    (b"unit_id,te\xe9xt,label\n", 1, None, "UTF-8 at byte 11"),
    (b'unit_id,text,label\nann,"a\xe9,l\n', 2, None, "UTF-8"),
    (b"unit_id,text,label\nann,a,l,\xe9\n", 2, None, "UTF-8"),
    (b"unit_id,text,label\nann,t,l\nbo,t\n", 3, None, "2 cells .* 3"),
    (b"unit_id,text,label\nann,t,l,m\n", 2, None, "4 cells .* 3"),
    (b'unit_id,text,label\nann,"a\nb",l\nbo,,l\n', 3, "text", "empty"),
    (b'unit_id,text,label\nann,"a"b,l\n', 2, None, "CSV"),
    (b'unit_id,text,label\nann,"a\nb",l\nbo,"a\nbo,t,l\n', 3, None, "CSV from line 4 on"),
    (b'unit_id,text,label\nann,"a\nbo,t,l\n', 2, None, "CSV"),
    (b"unit_id,text,label\nann,t\xff,l\n", 2, None, "UTF-8"),
    ("unit_id,text,label\n".encode("utf-16"), 1, None, "UTF-8"),
]


@pytest.mark.parametrize(("data", "row", "field", "message"), BAD_TABLES)
def test_a_bad_table_is_named(data, row, field, message):
    with pytest.raises(BadRowError, match=message) as caught:
        csv_rows(data)
    assert (caught.value.row, caught.value.field) == (row, field)
    assert "SECRET" not in str(caught.value), "private text is not repeated"


@pytest.mark.parametrize(
    ("member", "name"),
    [
        (b'"a\\u0000b": "c"', "a\\x00b"),
        (b'"a\\udfffb": "c"', "a\\udfffb"),
        (b'"a\xe9b": "c"', "a\\udce9b"),
        (b'"note": "c\\u0000"', "note"),
        (b'"note": "c\xe9"', "note"),
        (b'"note": 1, "note": 2', "note"),
        (b'"note": {"a": 1, "a": 2}', "note"),
        (b'"note": [NaN, -Infinity]', "note"),
        (b'"note": ' + b"9" * 10_000, "note"),
        (b'"Text": "c"', "Text"),
        (b'" text": "c"', " text"),
    ],
)
def test_a_member_that_is_not_needed_may_be_anything(member: bytes, name: str) -> None:
    (row,) = json_rows(b'{"unit_id": 17, ' + member + b', "text": "hello", "label": "yes"}')
    assert row == Row(1, "17", {"text": "hello", "label": "yes"}, (name,))
    "".join(row.ignored).encode()


@pytest.mark.parametrize(
    ("names", "cells", "ignored"),
    [
        (b"a\x00b", b"c", ("a\\x00b",)),
        (b"a\xe9b", b"c", ("a\\udce9b",)),
        (b"note", b"c\xe9", ("note",)),
        (b"note", b'"c\xe9\nc"', ("note",)),
        (b",", b"c,d", ("",)),
        (b"note,note", b"c,d", ("note",)),
        (b"Text, text", b"c,d", ("Text", " text")),
    ],
)
def test_a_column_that_is_not_needed_may_be_anything(names: bytes, cells: bytes, ignored: tuple[str, ...]) -> None:
    rows = csv_rows(b"unit_id,%s,text,label\nann,%s,hello,yes\nbo,%s,caf\xc3\xa9,no\n" % (names, cells, cells))
    assert [row.fields for row in rows] == [{"text": "hello", "label": "yes"}, {"text": "café", "label": "no"}]
    assert [row.ignored for row in rows] == [ignored] * 2


@pytest.mark.parametrize("value", [Decimal("sNaN"), Decimal("NaN"), float("nan"), None])
def test_nan_is_empty(value: object) -> None:
    for column in ("unit_id", "text"):
        with pytest.raises(BadRowError, match="empty"):
            LAYOUT.row(1, {**GOOD, column: value})


@pytest.mark.parametrize(
    ("value", "kind"),
    [
        (timedelta(1), "a date or a time"),
        (date(2026, 1, 1), "a date or a time;"),
        (memoryview(b"x"), "bytes"),
        (Decimal(1), "a number;"),
        (uuid.UUID(int=7), "a UUID;"),
        ({1}, "a list"),
        (object(), "a value of another type"),
    ],
)
def test_a_value_of_another_type_is_named_by_its_kind(value: object, kind: str) -> None:
    with pytest.raises(BadRowError, match=f"must be a string, not {kind}"):
        LAYOUT.row(1, {**GOOD, "text": value})


@pytest.mark.parametrize(
    ("value", "text"),
    [(7, "7"), (7.5, "7.5"), (Decimal("7.50"), "7.50"), (Decimal("0E-10"), "0.0000000000"), (Decimal("1E+3"), "1000")],
)
def test_a_number_is_taken_as_text_as_it_is_written(value: object, text: str) -> None:
    layout = Layout(("text",), numbers_as_text=True)
    assert layout.row(1, {"unit_id": "ann", "text": value}).fields == {"text": text}


@pytest.mark.parametrize("number", [b"1e999", b"-Infinity", b"9" * 10_000])
def test_a_number_that_cannot_be_read_is_not_taken_as_text(number: bytes) -> None:
    with pytest.raises(BadRowError, match="too large"):
        json_rows(b'{"unit_id": "ann", "text": ' + number + b"}", Layout(("text",), numbers_as_text=True))


@pytest.mark.parametrize("size", [131_073, 1_000_000])
def test_a_column_that_is_ignored_may_be_long(size):
    (row,) = csv_rows(b"unit_id,text,label,page\nann,hello,yes,%s\n" % (b"h" * size))
    assert (row.fields, row.ignored) == ({"text": "hello", "label": "yes"}, ("page",))


@pytest.mark.slow
def test_a_quote_that_is_not_closed_is_refused_before_the_file_ends():
    with pytest.raises(BadRowError, match="CSV") as caught:
        csv_rows(b'unit_id,text,label\nann,hello,"yes\n' + b"x\n" * MAX_LINE_CHARACTERS)
    assert caught.value.row == 2


@pytest.mark.parametrize("read", [json_rows, csv_rows])
def test_a_line_too_long_to_hold_is_refused(read):
    with pytest.raises(BadRowError, match="4,194,304") as caught:
        read(b"x" * (MAX_LINE_CHARACTERS + 1))
    assert caught.value.row == 1


NESTED = Layout(("text", "label"), "owner.id", {"text": "call.note", "label": "label"})


def test_a_name_with_dots_leads_into_objects():
    """A column of that very name has precedence, and what is given twice is refused there, too."""
    (row,) = json_rows(
        b'{"owner": {"id": 7}, "call": {"note": "it hurts", "by": "x"}, "label": "a", "more": 1}', NESTED
    )
    assert row == Row(1, "7", {"text": "it hurts", "label": "a"}, ("more",))
    (row,) = json_rows(b'{"owner.id": "ann", "owner": {"id": 7}, "call": {"note": "t"}, "label": "a"}', NESTED)
    assert row.unit_id == "ann"
    for owner, problem in (
        ("{}", "is missing"),
        ("7", "is missing"),
        ('{"id": null}', "is empty"),
        ('{"id": "a", "id": "b"}', "is given twice"),
        ('{"id": {"SECRET": 1}}', "an object; to take one of its members, name it behind a dot, as in owner.id.member"),
        ('{"id": ["SECRET"]}', "a list; make one text of it, or a row of each part"),
    ):
        with pytest.raises(BadRowError, match=f"row 1, field 'owner.id': .*{problem}") as refused:
            json_rows(b'{"owner": %b, "call": {"note": "t"}, "label": "a"}' % owner.encode(), NESTED)
        assert "SECRET" not in str(refused.value)


def test_incomplete_rows_are_left_out_and_counted():
    layout = Layout(("text", "label"), skip_incomplete=True)
    lines = [line(), line(text=""), line(label=None), line(unit_id=" "), b'{"unit_id": "ann", "text": "t"}', line()]
    assert [row.number for row in json_rows(b"\n".join(lines), layout)] == [1, 6]
    assert layout.left_out == {
        ("text", "empty"): 1,
        ("label", "empty"): 1,
        ("label", "missing"): 1,
        ("unit_id", "empty"): 1,
    }
    with pytest.raises(BadRowError, match="must be a string, not true or false"):
        json_rows(line(text=True), layout)
