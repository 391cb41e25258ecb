"""A few rows that people paste."""

import pytest

from exemplar_store import BadRowError
from service.sources.typed import read_rows


@pytest.mark.parametrize(
    "rows",
    [
        'text,label\n"lamp, big",A\n',
        "text;label\r\nlamp, big;A\r\n",
        "text\tlabel\nlamp, big\tA\n",
        '{"text": "lamp, big", "label": "A"}',
        '\ufeff\n {"text": "lamp, big", "label": "A"}\n',
    ],
)
def test_rows_are_read_as_what_they_look_like(rows: str) -> None:
    assert read_rows(rows) == [{"text": "lamp, big", "label": "A"}]


def test_a_list_is_not_taken_for_a_header() -> None:
    with pytest.raises(BadRowError, match="one like"):
        read_rows('[{"text": "lamp", "label": "A"}]')
