"""Counts of the values in rows, for their owner alone, before the rows become private exemplars."""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from accounting.plans.labels import spellings
from exemplar_store import Row

MOST_VALUES = 50
"""Greatest number of different values of a field that is counted; a field with more is left out."""
LONGEST_VALUE = 100
"""Greatest number of characters of a value; a field with a longer one is left out."""

ONE_UNIT = (
    "All rows have the same unit id. They are protected as one person's, so hardly any answer depends on them, and "
    "forgetting that unit deletes them all. Check which column names the person or customer."
)
UNIT_A_ROW = (
    "Every row has a unit id of its own, so each is protected by itself. A person with several rows would be protected "
    "less: check that the column names the person or customer, not the row."
)


class RowCounts:
    """Counts rows as they pass.

    Args:
        first: whether these are the first rows of their knowledge base.

    Attributes:
        rows: number of rows that have passed.
    """

    def __init__(self, *, first: bool = True) -> None:
        self.rows = 0
        self._first = first
        self._values: dict[str, Counter[str] | None] = {}
        self._units: set[str] | None = set()  # None: there are several, and one of them has several rows

    def counting(self, rows: Iterable[Row]) -> Iterator[Row]:
        """The same rows, counted as they pass."""
        for row in rows:
            self._count(row)
            yield row

    @property
    def values(self) -> dict[str, dict[str, int]]:
        """The number of rows with each value of a field, most frequent first; only fields with few, short values."""
        return {
            name: dict(counted.most_common())
            for name, counted in self._values.items()
            if counted and 2 * len(counted) <= self.rows
        }

    @property
    def notice(self) -> str | None:
        """A notice of what the number of units means for privacy, where it is odd; None where it is not."""
        if self.rows < 2 or self._units is None:
            return None
        if len(self._units) > 1:
            return UNIT_A_ROW
        return ONE_UNIT if self._first else None  # further rows may well be one person's

    def _count(self, row: Row) -> None:
        self.rows += 1
        for name, value in row.fields.items():
            counted = self._values.setdefault(name, Counter())
            if counted is not None:
                counted[value] += 1
                if len(value) > LONGEST_VALUE or len(counted) > MOST_VALUES:
                    self._values[name] = None
        if self._units is not None:
            self._units.add(row.unit_id)
            if 1 < len(self._units) < self.rows:
                self._units = None


@dataclass(frozen=True)
class LabelCounts:
    """The comparison of a plan's labels with rows.

    Attributes:
        labels: number of rows with each label of the plan, however they spell it.
        others: number of rows with each other value.
    """

    labels: dict[str, int]
    others: Counter[str] = field(default_factory=Counter)

    @classmethod
    def of(cls, labels: Sequence[str], values: Iterable[str]) -> "LabelCounts":
        """The counts of the values that rows have in the field of the label."""
        known, counts = spellings(tuple(labels)), cls(dict.fromkeys(labels, 0))
        for value in values:
            number = known.number(value)
            if number is None:
                counts.others[value] += 1
            else:
                counts.labels[labels[number]] += 1
        return counts
