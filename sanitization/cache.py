"""A folder of results that are computed only once: files named by all that their content depends on."""

import hashlib
import json
import os
import zipfile
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np

Kept = tuple[Mapping[str, np.ndarray], Mapping[str, Any]]
"""Arrays, and values that JSON can express, both by name."""

_LAYOUT = 3
_ABOUT = "about"


class DamagedFileError(OSError):
    """A file that is not what was stored there."""

    def __init__(self, file: Path) -> None:
        super().__init__(f"{file} is damaged: delete it, and what it holds is computed again")


def path(folder: Path, key: str) -> Path:
    """The path of the content with this key, without a suffix. Another key is another file."""
    return folder / hashlib.sha256(f"{_LAYOUT}\0{key}".encode()).hexdigest()[:32]


def remember(folder: Path, key: str, make: Callable[[], Kept]) -> Kept:
    """The value that ``make`` returned when it was first called with this key.

    Raises:
        DamagedFileError: the file is no longer what was stored.
        OSError: it cannot be read or written.
    """
    file = path(folder, key).with_suffix(".npz")
    if not file.exists():
        arrays, about = make()
        folder.mkdir(parents=True, exist_ok=True)
        partial = file.with_suffix(f".{os.getpid()}.npz")
        np.savez(partial, **{**arrays, _ABOUT: np.array(json.dumps(about))})  # type: ignore[arg-type]
        os.replace(partial, file)
    try:
        with file.open("rb") as content, np.load(content, allow_pickle=False) as stored:
            return {name: stored[name] for name in stored.files if name != _ABOUT}, json.loads(str(stored[_ABOUT]))
    except (zipfile.BadZipFile, EOFError, LookupError, ValueError) as error:
        raise DamagedFileError(file) from error
