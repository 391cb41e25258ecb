"""Folders of tables: the files in them that count.

A table format such as Delta keeps files whose rows were deleted or replaced, and lists elsewhere the files that count.
Its folders are refused: otherwise people who were deleted there would come back.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import PurePosixPath
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from fsspec import AbstractFileSystem

_DELTA, _HUDI, _ICEBERG = "_delta_log", ".hoodie", "metadata"
_ICEBERG_FILE = ".metadata.json"
_INSTEAD = "export its current rows to a file, or read them by SQL with --from-sql and --query"


def hidden(path: str) -> bool:
    """Whether a path, relative to a folder, is one that programs keep for themselves, such as ``_temporary/``.

    The rule is Spark's: a partition may well be named ``_year=2025``.
    """
    return any(part.startswith(".") or (part.startswith("_") and "=" not in part) for part in PurePosixPath(path).parts)


def parquet_files(files: AbstractFileSystem, folder: str) -> list[str]:
    """A folder's Parquet files at any depth, in the order of their names.

    Raises:
        ValueError: the folder is, holds, or is part of a table of a format that keeps deleted rows.
    """
    check_no_table(files, folder)
    # Neither a glob nor a pattern: the folder's name may hold brackets.
    paths = {path[len(folder) :].strip("/"): path for path in sorted(files.find(folder, withdirs=True))}
    for path in paths:
        for part in PurePosixPath(path).parts:
            if part in (_DELTA, _HUDI):
                raise ValueError(_refusal(part))
        if path.endswith(_ICEBERG_FILE) and PurePosixPath(path).parent.name == _ICEBERG:
            raise ValueError(_refusal(_ICEBERG))
    return [path for name, path in paths.items() if name.lower().endswith(".parquet") and not hidden(name)]


def check_no_table(files: AbstractFileSystem, path: str) -> None:
    """Refuse a path in the folder of a table of a format that keeps deleted rows, at whatever depth.

    Args:
        files: the file system.
        path: path of a file or a folder.

    Raises:
        ValueError: the path is in such a folder; the message names the remedy.
    """
    for parent in (PurePosixPath(path), *PurePosixPath(path).parents):
        if not parent.name:  # there is no bucket without a name
            return
        try:
            for mark in (_DELTA, _HUDI):
                if files.exists(f"{parent}/{mark}"):
                    raise ValueError(_refusal(mark))
            if any(found.endswith(_ICEBERG_FILE) for found in _listed(files, f"{parent}/{_ICEBERG}")):
                raise ValueError(_refusal(_ICEBERG))
        except PermissionError:  # what lies there cannot be seen
            return


def saved_dataset(files: AbstractFileSystem, folder: str) -> list[str]:
    """The Arrow files of a Hugging Face dataset that was saved to disk.

    Its state names them: the folder may also hold files of an earlier save, or files that were cached before a filter.

    Raises:
        ValueError: the folder is not such a dataset, or the dataset lists in another file which of its rows count.
    """
    if files.exists(state := f"{folder}/state.json"):
        with files.open(state, "rb") as stream:
            try:
                said = json.load(stream)
                names = [file["filename"] for file in said["_data_files"]]
            except (ValueError, KeyError, TypeError):
                raise ValueError("its state.json does not name the dataset's files; save the dataset again") from None
        if said.get("_indices_data_files"):
            raise ValueError("some of its rows were left out by an old version of `datasets`; save it with a newer one")
        return [f"{folder}/{name}" for name in names]
    splits = [path for path in _listed(files, folder) if files.exists(f"{path}/state.json")]
    named = f": it is one of {', '.join(sorted(splits))} that does" if splits else ""
    raise ValueError(f"it holds neither Parquet files nor a dataset saved to disk{named}")


def _listed(files: AbstractFileSystem, folder: str) -> Iterator[str]:
    try:
        yield from files.ls(folder, detail=False)
    except (FileNotFoundError, NotADirectoryError):
        return


def _refusal(mark: str) -> str:
    name = {_DELTA: "a Delta table", _HUDI: "a Hudi table", _ICEBERG: "an Iceberg table"}[mark]
    return f"it is {name} or part of one ({mark} is there), whose files hold rows that were deleted, too: {_INSTEAD}"
