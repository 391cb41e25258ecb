"""Counts of rows and notices about them, for the person who uploads them."""

import pytest

from exemplar_store import Row
from service.sources.counts import LONGEST_VALUE, MOST_VALUES, ONE_UNIT, UNIT_A_ROW, LabelCounts, RowCounts


def counted(rows: list[Row]) -> RowCounts:
    counts = RowCounts()
    assert list(counts.counting(rows)) == rows
    return counts


def rows(units: str, **fields: list[str]) -> list[Row]:
    return [
        Row(number, unit, {name: values[number] for name, values in fields.items()})
        for number, unit in enumerate(units)
    ]


def test_values_of_fields_with_few_and_short_ones_are_counted() -> None:
    texts, labels = [f"text {i}" for i in range(6)], ["Billing", "Keys", "Billing", "billing", "Billing", "Keys"]
    counts = counted(rows("abcdef", text=texts, label=labels))
    assert counts.rows == 6
    assert counts.values == {"label": {"Billing": 3, "Keys": 2, "billing": 1}}
    assert list(counts.values["label"]) == ["Billing", "Keys", "billing"]


def test_long_or_varied_texts_are_not_counted() -> None:
    long = ["x" * (LONGEST_VALUE + 1)] * 4
    assert counted(rows("abcd", text=long)).values == {}
    many = [str(i // 4) for i in range(4 * MOST_VALUES + 1)]
    assert counted(rows("a" * len(many), number=many)).values == {}
    assert "number" in counted(rows("a" * len(many[:-1]), number=many[:-1])).values
    assert counted(rows("abc", text=["a", "a", "b"])).values == {}, "hardly anything occurs twice"


@pytest.mark.parametrize(
    ("units", "notice"),
    [("", None), ("a", None), ("aa", ONE_UNIT), ("aaaa", ONE_UNIT), ("ab", UNIT_A_ROW), ("abcd", UNIT_A_ROW)]
    + [(units, None) for units in ("aab", "aba", "abcb", "abca", "aaab")],
)
def test_odd_numbers_of_units_are_noted(units: str, notice: str | None) -> None:
    assert counted(rows(units)).notice == notice


def test_later_rows_may_be_one_persons() -> None:
    for units, notice in (("aaaa", None), ("abcd", UNIT_A_ROW)):
        counts = RowCounts(first=False)
        list(counts.counting(rows(units)))
        assert counts.notice == notice


def test_labels_are_compared_as_answers_count_them() -> None:
    found = LabelCounts.of(("Billing", "Keys", "Lamp"), ["Billing", "billing ", "KEYS", "keyz", "keyz", "?"])
    assert found.labels == {"Billing": 2, "Keys": 1, "Lamp": 0}
    assert found.others == {"keyz": 2, "?": 1}
