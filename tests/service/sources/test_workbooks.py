"""Workbooks: as a spreadsheet program shows them, row by row, and refused where that is not clear."""

from collections.abc import Sequence
from pathlib import Path

import pytest

from exemplar_store import BadRowError, Layout
from service.operations.uploads import SentFile
from service.sources import uploads
from service.sources.files import open_file
from service.sources.reading import AS_IT_IS, Reading
from tests.service.sources.workbook import workbook

LAYOUT = Layout(("text", "code"), "id")
CALLS = [
    ["id", "text", "code", None, "length"],
    [1001, "it hurts", "K21", None, 4],
    [None, None, None, None, None],
    ["ann", " two\nlines ", "J45", "unnamed", True],
]


def saved(folder: Path, rows: Sequence[Sequence[object]], **others: Sequence[Sequence[object]]) -> str:
    file = folder / "calls.xlsx"
    file.write_bytes(workbook({"calls": rows, **others}))
    return str(file)


def read(file: str, layout: Layout = LAYOUT, **options: object) -> list[tuple[int, str, str, str]]:
    with open_file(file, Reading(**options)) as source:
        assert source.described == "a workbook"
        return [(row.number, row.unit_id, row.fields["text"], row.fields["code"]) for row in source.rows(layout)]


def test_rows_have_the_numbers_of_the_program_and_empty_ones_do_not_count(tmp_path: Path) -> None:
    found = [(2, "1001", "it hurts", "K21"), (4, "ann", " two\nlines ", "J45")]
    assert read(saved(tmp_path, CALLS, empty=[])) == found
    file = saved(tmp_path, [["Calls of March"], [], *CALLS], notes=[["of nobody"]])
    assert read(file, skip_lines=1, sheet="calls") == [(number + 2, *row) for number, *row in found]


def test_a_header_further_down_is_proposed(tmp_path: Path) -> None:
    with pytest.raises(BadRowError, match=r"row 1, field 'id': .*; row 3 has 3 of the columns: skip those") as refused:
        read(saved(tmp_path, [["Calls of March"], [], *CALLS]))
    assert refused.value.remedy == ("skip_lines", 2)


def test_several_sheets_are_not_guessed_from(tmp_path: Path) -> None:
    file = saved(tmp_path, CALLS, notes=[["of nobody"]])
    with pytest.raises(ValueError, match="several sheets: 'calls', 'notes'; name one"):
        read(file)
    with pytest.raises(ValueError, match="no sheet 'Calls'; its sheets are 'calls', 'notes'"):
        read(file, sheet="Calls")


@pytest.mark.parametrize(
    ("cell", "problem"),
    [
        (7, "must be a string, not a number; it can be taken as text"),
        (True, "must be a string, not true or false"),
        (None, "is empty"),
        (1234567890123456789, "more than 15 digits"),
    ],
)
def test_what_is_not_text_is_named(tmp_path: Path, cell: object, problem: str) -> None:
    with pytest.raises(BadRowError, match=f"row 2, field 'code': .*{problem}") as refused:
        read(saved(tmp_path, [["id", "text", "code"], ["ann", "SECRET", cell]]))
    assert "SECRET" not in str(refused.value)


def test_numbers_are_taken_as_the_program_shows_them(tmp_path: Path) -> None:
    file = saved(tmp_path, [["id", "text", "code"], [7, "a", 7], [8.0, "b", 7.5]])
    assert read(file, numbers_as_text=True) == [(2, "7", "a", "7"), (3, "8", "b", "7.5")]


def test_what_is_not_a_workbook_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "calls.xlsx"
    for content in (b"id,text,code\n", workbook({"calls": CALLS})[:200], b""):
        file.write_bytes(content)
        with pytest.raises(ValueError, match="it is not a workbook, or it is cut off or damaged"):
            read(str(file))
    with pytest.raises(BadRowError, match="row 1: is empty, or not there; it must name the columns"):
        read(saved(tmp_path, []))
    monkeypatch.setattr(uploads, "MOST_SENT_BYTES", 100)
    with pytest.raises(ValueError, match=r"unpacked, it has .* bytes, of which 100 can be read"):
        SentFile(workbook({"calls": CALLS}), None, None, "").rows(AS_IT_IS)


@pytest.mark.parametrize("name", ["t.csv", "t.jsonl", "t.xlsx", "t.parquet"])
def test_options_that_mean_nothing_are_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(workbook({"calls": CALLS}) if name == "t.xlsx" else b"id,text,code\n")
    for option, has in (("sheet", ("t.xlsx",)), ("delimiter", ("t.csv",)), ("skip_lines", ("t.csv", "t.xlsx"))):
        if name not in has:
            with pytest.raises(ValueError, match=f"{option} means nothing for .*: leave it out"):
                read(str(tmp_path / name), **{option: 1 if option == "skip_lines" else ";"})


def test_it_can_be_sent(tmp_path: Path) -> None:
    file = SentFile(workbook({"calls": [["of March"], *CALLS]}), None, None, "save it as UTF-8")
    rows = list(file.rows(Reading(skip_lines=1))(LAYOUT))
    assert [(row.number, row.unit_id) for row in rows] == [(3, "1001"), (5, "ann")]
    with pytest.raises(BadRowError, match="row 2 has 3 of the columns") as refused:
        list(file.rows(AS_IT_IS)(LAYOUT))
    assert refused.value.remedy == ("skip_lines", 1)
