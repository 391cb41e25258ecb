"""Results as files."""

import csv
from collections.abc import Callable, Sequence
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any, TypeVar, get_args, get_type_hints

Row = TypeVar("Row")


@dataclass(frozen=True)
class Grid:
    """The settings to evaluate, in every combination.

    Attributes:
        epsilons: plan budgets.
        answers: numbers of answers a plan's budget is spread over.
        draws: noise draws per query.
        prior_in_sigmas: weight of the public prior, in standard deviations of the noise; of labels only.
        fit: whether also with a calibration fitted to other rows; of labels only.
    """

    epsilons: Sequence[float]
    answers: Sequence[int]
    draws: int = 20
    prior_in_sigmas: float = 1.0
    fit: bool = False

    @property
    def settings(self) -> int:
        """Number of combinations of budgets and answers."""
        return len(self.epsilons) * len(self.answers)


@dataclass(frozen=True)
class ReportTable:
    """A table for people, with notes below it."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]
    notes: Sequence[str] = ()


def write_csv(results: Sequence[Any], file: Path) -> None:
    """Write the table, a row per result (a dataclass, all of one class), numbers to two decimal places.

    A column that no result has is left out, if it has a default.
    """
    required = {field.name for field in fields(results[0]) if field.default is MISSING}
    names = [field.name for field in fields(results[0])]
    names = [name for name in names if name in required or any(getattr(row, name) is not None for row in results)]
    with file.open("w", newline="") as stream:
        writer = csv.DictWriter(stream, names, lineterminator="\n", extrasaction="ignore")
        writer.writeheader()
        for result in results:
            row = asdict(result)
            writer.writerow({name: round(v, 2) if isinstance(v, float) else v for name, v in row.items()})


def read_csv(file: Path, row: type[Row]) -> list[Row]:
    """Read what :func:`write_csv` wrote.

    Args:
        file: the table.
        row: the results' class, whose fields are texts and numbers.

    Raises:
        ValueError: it has other columns; those with a default may be missing, as from before there were any.
    """
    readers = {name: _reader(kind) for name, kind in get_type_hints(row).items()}
    required = [field.name for field in fields(row) if field.default is MISSING]  # type: ignore[arg-type]
    with file.open(newline="") as stream:
        table = csv.DictReader(stream)
        names = table.fieldnames or []
        if names != [name for name in readers if name in names] or not {*required} <= {*names}:
            raise ValueError(f"{file}: its columns must be {', '.join(readers)}")
        return [row(**{name: readers[name](written[name]) for name in names}) for written in table]


def _reader(kind: Any) -> Callable[[str], Any]:
    """Reads a field: an empty one is None where there may be none."""
    number = next((parse for parse in (float, int) if parse in (kind, *get_args(kind))), None)
    if number is None:
        return str
    return lambda text: number(text) if text else None
