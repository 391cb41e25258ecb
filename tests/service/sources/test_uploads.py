"""A file that a client uploads is read like a file on disk."""

import json
from collections.abc import Callable, Iterator, Sequence

import pytest

from exemplar_store import Layout, Row
from service.sources.uploads import rows_of
from tests.service.sources.contract import Record, Rows, RowsContract
from tests.service.sources.test_sources import table


def reader(body: Callable[[Sequence[Record]], str], json_lines: bool) -> Rows:
    def rows(records: Sequence[Record], layout: Layout) -> Iterator[Row]:
        return rows_of(body(records).encode(), json_lines=json_lines, advice="save it as UTF-8")(layout)

    return rows


class TestCsv(RowsContract):
    first = 2

    @pytest.fixture
    def rows(self) -> Rows:
        return reader(lambda records: table(";", records), json_lines=False)


class TestJsonLines(RowsContract):
    @pytest.fixture
    def rows(self) -> Rows:
        return reader(lambda records: "".join(f"{json.dumps(row)}\n" for row in records), json_lines=True)
