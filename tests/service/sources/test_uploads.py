"""A file that a client uploads is read like a file on disk."""

import json
from collections.abc import Callable, Iterator, Sequence

import pytest

from exemplar_store import BadRowError, Layout, Row
from service.operations.uploads import SentFile
from service.sources.reading import AS_IT_IS
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


def test_a_list_is_taken_for_json_and_refused() -> None:
    file = SentFile(b'[{"unit_id": "ann", "text": "lamp"}]', None, None, "save it as UTF-8")
    with pytest.raises(BadRowError, match="is not a JSON object; write one like"):
        list(file.rows(AS_IT_IS)(Layout(("text",))))
