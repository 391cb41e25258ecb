"""The promises of every source of exemplars, as tests that the tests of each source inherit."""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from exemplar_store import BadRowError, Layout, Row
from service.sources.files import Source, open_file

Record = dict[str, str]
Write = Callable[[Sequence[Record]], Callable[[], AbstractContextManager[Source]]]
"""A function that puts records where a source finds them, and returns a function that opens the source."""
Rows = Callable[[Sequence[Record], Layout], Iterator[Row]]
"""A function that writes records, and reads them as rows by a layout."""

TICKETS = [
    {"unit_id": "ana", "text": "Wo bleibt mein Päckchen? Es hieß: „morgen“; jetzt ist Juni", "label": "Mail"},
    {"unit_id": "bo", "text": "Die Rechnung über 20 € ist, wie gesagt, längst bezahlt\nsagt die Bank", "label": "Geld"},
]
LAYOUT = Layout(("text", "label"))


class RowsContract:
    """Tests of the rows of any upload. A subclass has the fixture ``rows``.

    Attributes:
        first: number of the first row in errors.
    """

    first = 1

    def test_all_rows_are_read_in_order(self, rows: Rows) -> None:
        read = [{"unit_id": row.unit_id, **row.fields} for row in rows(TICKETS, LAYOUT)]
        assert read == TICKETS
        many = [{"unit_id": f"u{n}", "text": f"100% of {n}", "label": "Mail"} for n in range(2500)]
        assert [row.fields["text"] for row in rows(many, LAYOUT)] == [one["text"] for one in many]

    def test_columns_may_have_other_names_and_the_rest_is_named_but_not_kept(self, rows: Rows) -> None:
        for row, ticket in zip(rows(TICKETS, Layout(("body",), "label", {"body": "text"})), TICKETS, strict=True):
            assert (row.unit_id, row.fields, row.ignored) == (ticket["label"], {"body": ticket["text"]}, ("unit_id",))

    @pytest.mark.parametrize("column", ["unit_id", "label"])
    def test_a_value_that_is_missing_is_named_by_row_and_field(self, rows: Rows, column: str) -> None:
        """The rows before it are read, and the error repeats no value."""
        records = [{"unit_id": f"secret {n}", "text": "secret", "label": "secret"} for n in range(4)]
        records[2][column] = " "
        read = rows(records, LAYOUT)
        assert [next(read).unit_id for _ in range(2)] == ["secret 0", "secret 1"]
        with pytest.raises(BadRowError) as refused:
            next(read)
        assert (refused.value.row, refused.value.field) == (self.first + 2, column)
        assert "secret" not in str(refused.value)

    def test_a_column_that_is_not_there_is_named(self, rows: Rows) -> None:
        with pytest.raises(BadRowError) as refused:
            list(rows(TICKETS, Layout(("text", "colour"))))
        assert refused.value.field == "colour"


class SourceContract(RowsContract):
    """Tests of the rows of a source. A subclass has the fixture ``write``."""

    @pytest.fixture
    def rows(self, write: Write) -> Rows:
        def rows(records: Sequence[Record], layout: Layout) -> Iterator[Row]:
            with write(records)() as source:
                yield from source.rows(layout)

        return rows

    def test_it_is_described_and_read_whole(self, write: Write) -> None:
        with write(TICKETS)() as source:
            assert source.described
            assert [row for _, row in source.records((), whole=True)] == TICKETS

    def test_only_the_needed_columns_are_read_or_all(self, write: Write) -> None:
        numbers = range(self.first, self.first + len(TICKETS))
        with write([{**ticket, "text": "one line"} for ticket in TICKETS])() as source:
            read = list(source.records(["label"]))
        assert [number for number, _ in read] == list(numbers)
        assert [row["label"] for _, row in read] == [ticket["label"] for ticket in TICKETS]
        for needed in (["colour"], ["label", "colour"]):
            with write(TICKETS)() as source, pytest.raises(BadRowError) as refused:
                list(source.records(needed, whole=True))
            assert refused.value.field == "colour"

    def test_it_can_be_opened_again(self, write: Write) -> None:
        opened = write(TICKETS)
        for _ in range(2):
            with opened() as source:
                assert len(list(source.rows(LAYOUT))) == len(TICKETS)


class FileContract(SourceContract, ABC):
    """Tests of a file, or a folder of files, on this machine. A subclass has ``put``.

    Attributes:
        name: name of the file or folder.
    """

    name: str

    @abstractmethod
    def put(self, records: Sequence[Record], path: Path) -> None:
        """Write records to a path."""

    @pytest.fixture
    def write(self, tmp_path: Path) -> Write:
        def write(records: Sequence[Record]) -> Callable[[], AbstractContextManager[Source]]:
            self.put(records, tmp_path / self.name)
            return lambda: open_file(str(tmp_path / self.name))

        return write

    def test_a_file_that_changes_while_it_is_read_is_refused(self, write: Write, tmp_path: Path) -> None:
        """Half of a row that another program still writes may look like a whole one."""
        opened, path = write(TICKETS), tmp_path / self.name

        def read_beside() -> None:
            with opened() as source:
                for _ in source.rows(LAYOUT):
                    for file in [path] if path.is_file() else path.rglob("*.*"):
                        os.utime(file, (0, 0))

        with pytest.raises(ValueError, match="changed"):
            read_beside()
        with opened() as source:
            assert len(list(source.rows(LAYOUT))) == len(TICKETS)
