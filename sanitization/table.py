"""Channels as tables of whole numbers: what is audited is what is drawn, to the last bit.

A row holds the running sums of whole-number weights that add up to 2⁶². A draw is one uniform whole number below 2⁶² and
a binary search in the row. The file is mapped into memory, so a draw reads a few pages of it. Beside it lies the audit
of these very numbers.
"""

from __future__ import annotations

import hashlib
import json
import os
import tempfile
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from sanitization import uniform
from sanitization.audit import Audit, audit
from sanitization.channel import Channel
from sanitization.vocabulary import LARGEST_BYTES, FloatArray, IntArray, blocks

TOTAL = 1 << 62
_LAYOUT = 1


class TableError(ValueError):
    """A table that cannot be made, or is not the one it says it is."""


@dataclass(frozen=True, eq=False)
class Table:
    """A channel that can be drawn from.

    Args:
        inputs: n names.
        outputs: m names.
        sums: running sums of the weights, int64 (n, m); each row ends with 2⁶².
    """

    inputs: Sequence[str]
    outputs: Sequence[str]
    sums: IntArray

    def rows(self, x: IntArray) -> FloatArray:
        """See :class:`sanitization.channel.Channel`."""
        return np.diff(self.sums[x], axis=1, prepend=0) / TOTAL

    def draw(self, x: IntArray) -> IntArray:
        """See :class:`sanitization.channel.Sampler`."""
        points = uniform.below(TOTAL, len(x))
        found = (np.searchsorted(self.sums[at], point, side="right") for at, point in zip(x, points, strict=True))
        return np.fromiter(found, dtype=np.int64, count=len(x))


def whole(law: FloatArray) -> IntArray:
    """Running sums of whole weights in the ratios of probabilities, (len(law), m).

    A weight is rounded down, but no possible output becomes impossible; the most likely one takes what is left.
    """
    weights = np.floor(law * TOTAL).astype(np.int64)
    weights[(law > 0) & (weights == 0)] = 1
    rows = np.arange(len(law))
    weights[rows, law.argmax(axis=1)] += TOTAL - weights.sum(axis=1)
    sums: IntArray = np.cumsum(weights, axis=1)
    return sums


def open_table(channel: Channel, key: str, folder: Path) -> tuple[Table, Audit]:
    """The table of a channel and its audit: from the folder if they are there, else made and put there.

    Args:
        channel: what the table is made from; its rows are computed only if there is no table yet.
        key: says all that the rows depend on, so another vocabulary or parameter has another file.
        folder: the cache.

    Raises:
        TableError: the table would be too large, or a file is damaged.
    """
    size = len(channel.inputs) * len(channel.outputs) * 8
    if size > LARGEST_BYTES:
        raise TableError(f"the table would take {size / 1e9:.1f} GB, more than 2: use fewer words")
    name = hashlib.sha256(f"{_LAYOUT}\0{key}".encode()).hexdigest()[:32]
    numbers, about = folder / f"{name}.npy", folder / f"{name}.json"
    if not about.exists():
        folder.mkdir(parents=True, exist_ok=True)
        table = Table(channel.inputs, channel.outputs, _made(channel, numbers))
        _write(about, {"key": key, "sha256": _digest(numbers), "audit": asdict(audit(table))})
    stored = json.loads(about.read_text())
    if _digest(numbers) != stored["sha256"]:
        raise TableError(f"{numbers} is damaged: delete it and {about.name}")
    table = Table(channel.inputs, channel.outputs, _mapped(numbers))
    found = {**stored["audit"], "worst_pair": tuple(stored["audit"]["worst_pair"])}
    return table, Audit(**{**found, "per_output": tuple(found["per_output"])})


def _made(channel: Channel, file: Path) -> IntArray:
    with tempfile.NamedTemporaryFile(dir=file.parent, delete=False) as partial:
        shape = (len(channel.inputs), len(channel.outputs))
        header = {"descr": "<i8", "fortran_order": False, "shape": shape}
        np.lib.format.write_array_header_1_0(partial, header)
        for x in blocks(shape[0]):
            whole(channel.rows(x)).astype("<i8").tofile(partial)
    os.replace(partial.name, file)
    return _mapped(file)


def _mapped(file: Path) -> IntArray:
    return np.load(file, mmap_mode="r").view(np.ndarray)


def _write(file: Path, content: object) -> None:
    with tempfile.NamedTemporaryFile("w", dir=file.parent, delete=False) as partial:
        json.dump(content, partial)
    os.replace(partial.name, file)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
