"""The answers of a batch on disk, one a line. Each belongs to its row, wherever that stands in the input."""

from __future__ import annotations

import csv
import json
import os
from collections import defaultdict, deque
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic_core import to_jsonable_python


def as_json(row: Mapping[str, object]) -> tuple[dict[str, Any], set[str]]:
    """A row that can be written as JSON, and the names of the columns that cannot, which are null in it.

    Neither can numbers that are infinite, or none. Dates and times are in ISO 8601, bytes in URL-safe base64.
    """
    from exemplar_store.rows import Unreadable, printed  # which takes a second, and `dpicl ask` does without

    written: dict[str, Any] = {}
    lost = set()
    for name, value in row.items():
        shown, told = printed(name), None
        if isinstance(value, Unreadable):
            lost.add(shown)
        else:
            try:
                told = to_jsonable_python(value, inf_nan_mode="null", bytes_mode="base64", serialize_unknown=True)
            except ValueError:  # names that are not text, or too many levels
                lost.add(shown)
        written[shown] = told
    return written, lost


class BatchAnswers:
    """The answers in a file, of this run and earlier ones.

    Args:
        file: the file; it need not exist.
        rows: the input's rows, as they can be written as JSON.
        names: names of the members that an answer adds to its row, by what they hold; each has a release and a task.
        task: the task that answers, perhaps with its version.

    Raises:
        ValueError: the file holds something else, an answer of another task, or an answer to a row that is not in the
            input. It is not changed.
        OSError: the file cannot be written.
    """

    def __init__(self, file: Path, rows: Sequence[Mapping[str, Any]], names: Mapping[str, str], task: str) -> None:
        self._file = file
        self._rows = rows
        self._places: list[int] = []
        self._lines: dict[int, bytes] = {}
        written = file.read_bytes() if file.exists() else b""
        with file.open("ab") as stream:  # before anything is asked
            if file.is_file():  # not a pipe
                os.fchmod(stream.fileno(), 0o600)  # the one that was there may be open to others
        *whole, half = written.split(b"\n")
        cut = bool(half) and _object(half) is None
        if cut and not half.startswith(b"{"):
            raise self._other()
        at = defaultdict[str, deque[int]](deque)
        for place, row in enumerate(rows):
            at[_key(row)].append(place)
        for line in whole if cut or not half else [*whole, half]:
            answer = _object(line)
            if answer is None or not answer.keys() >= {names["release"], names["task"]}:
                raise self._other()
            answered_by = str(answer[names["task"]]).partition("#")[0]
            if not f"{answered_by}@".startswith(f"{task}@"):
                raise ValueError(f"{file} has answers of {answered_by}: choose another --out for those of {task}")
            row = {name: value for name, value in answer.items() if name not in names.values()}
            if not (places := at[_key(row)]):
                raise ValueError(
                    f"{file} has an answer to a row that is not in the input, or is not the same there: choose another "
                    "--out. Questions that were answered are free"
                )
            self._note(places.popleft(), line)
        if half:
            with file.open("r+b") as stream:  # a crash cut its last line
                stream.truncate(len(written) - len(half))
                stream.seek(0, os.SEEK_END)
                stream.write(b"" if cut else half + b"\n")

    def __len__(self) -> int:
        return len(self._lines)

    @property
    def open_places(self) -> list[int]:
        """The places of the rows without an answer."""
        return [place for place in range(len(self._rows)) if place not in self._lines]

    def add(self, place: int, answer: Mapping[str, Any]) -> None:
        """Add an answer to the row at a place; it is on disk when this returns."""
        line = _line({**self._rows[place], **answer})
        with self._file.open("ab") as stream:
            stream.write(line + b"\n")
        self._note(place, line)

    def sort(self) -> None:
        """Put the answers into the order of the input; a crash leaves the old file or the new one."""
        if self._places == sorted(self._places):
            return
        new = self._file.with_name(f".{self._file.name}.new")
        new.write_bytes(b"".join(self._lines[place] + b"\n" for place in sorted(self._lines)))
        os.replace(new, self._file)

    def write_csv(self, file: Path) -> None:
        """Write all answers as CSV with a header, too; a crash leaves the old file or the new one.

        It is UTF-8 with a mark, by which spreadsheet programs know it. The entries of a list are parted by semicolons.
        """
        answers = [json.loads(self._lines[place]) for place in sorted(self._lines)]
        names = {name: None for answer in answers for name in answer}
        new = file.with_name(f".{file.name}.new")
        with new.open("w", newline="", encoding="utf-8-sig", errors="backslashreplace") as stream:
            writer = csv.DictWriter(stream, names)
            writer.writeheader()
            writer.writerows({name: _cell(value) for name, value in answer.items()} for answer in answers)
        os.replace(new, file)

    def _note(self, place: int, line: bytes) -> None:
        self._places.append(place)
        self._lines[place] = line

    def _other(self) -> ValueError:
        return ValueError(f"{self._file} holds other lines than answers of `dpicl batch`: choose another --out")


def _line(answer: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(answer, default=str, ensure_ascii=False).encode()
    except UnicodeEncodeError:  # half of a surrogate pair
        return json.dumps(answer, default=str).encode()


def _cell(value: object) -> object:
    if isinstance(value, list) and all(isinstance(entry, str) for entry in value):
        return "; ".join(value)
    return value if value is None or isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _key(row: Mapping[str, Any]) -> str:
    return json.dumps(row, sort_keys=True)


def _object(line: bytes) -> dict[str, Any] | None:
    try:
        found = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None
