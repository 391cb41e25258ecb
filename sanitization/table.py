"""Channels as tables of whole numbers: what is audited is what is drawn, to the last bit.

A row holds the running sums of whole-number weights that add up to 2⁶². A draw is one uniform whole number below 2⁶²
and a binary search in the row. The file is mapped into memory, so a draw reads a few pages of it. Beside it lies the
audit of these very numbers.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import numpy as np

from sanitization import cache, uniform
from sanitization.audit import Audit, Extremes, audit
from sanitization.channel import Channel
from sanitization.digests import file_digest
from sanitization.mixing import least_mixing
from sanitization.vocabulary import LARGEST_BYTES, FloatArray, IntArray, blocks

TOTAL = 1 << 62


class TableError(ValueError):
    """A table that cannot be made, or whose file does not hold the table it should."""


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
        """The laws of the outputs for the inputs x, (len(x), len(outputs))."""
        return np.diff(self.sums[x], axis=1, prepend=0) / TOTAL

    def draw(self, x: IntArray) -> IntArray:
        """One output for each input of x, independently; (len(x),)."""
        points = uniform.below(TOTAL, len(x))
        drawn = (np.searchsorted(self.sums[at], point, side="right") for at, point in zip(x, points, strict=True))
        return np.fromiter(drawn, dtype=np.int64, count=len(x))


def whole(law: FloatArray) -> IntArray:
    """Running sums of whole weights in the ratios of probabilities, (len(law), m).

    A weight is rounded down, but no possible output becomes impossible; the most likely one takes what is left.
    """
    weights = np.floor(law * TOTAL).astype(np.int64)
    weights[(law > 0) & (weights == 0)] = 1
    rows = np.arange(len(law))
    weights[rows, law.argmax(axis=1)] += TOTAL - weights.sum(axis=1)
    return np.cumsum(weights, axis=1)


def open_table(
    make: Callable[[], tuple[Channel, str]], key: str, folder: Path, *, epsilon: float
) -> tuple[Table, Audit, str]:
    """The table of a channel, mixed as little as a true ε takes: from the folder if it is there, else made.

    Args:
        make: returns the channel to mix, and what to remember of it; called only if there is no table yet.
        key: text that names all that the channel's rows depend on: another vocabulary or parameter has another file.
        folder: folder of the cache.
        epsilon: true ε of the table, above 0.

    Raises:
        TableError: the table would be too large, or a file is damaged.
    """
    key = f"table {key} mixed to {epsilon!r}"
    file = cache.path(folder, key).with_suffix(".npy")

    def made() -> cache.Kept:
        channel, remark = make()
        table = _make(channel, epsilon, file)
        names = {"inputs": list(table.inputs), "outputs": list(table.outputs)}
        return {}, {**names, "sha256": file_digest(file), "audit": asdict(audit(table)), "remark": remark}

    _, about = cache.remember(folder, key, made)
    if not file.exists() or file_digest(file) != about["sha256"]:
        raise TableError(f"{file} is damaged: delete it and the .npz beside it")
    os.utime(file)
    return Table(about["inputs"], about["outputs"], _mapped(file)), Audit(**about["audit"]), about["remark"]


def forget_oldest(folder: Path, most_bytes: int) -> None:
    """Delete the tables that were opened longest ago, until the others take at most that many bytes.

    A process that has one open goes on with it; :func:`open_table` makes it again, with the same rows.
    """
    tables = [(file, file.stat()) for file in folder.glob("*.npy")]
    size = sum(stat.st_size for _, stat in tables)
    for file, stat in sorted(tables, key=lambda table: table[1].st_mtime_ns):
        if size <= most_bytes:
            break
        file.with_suffix(".npz").unlink(missing_ok=True)  # first: without it, the table is made again
        file.unlink(missing_ok=True)
        size -= stat.st_size


def _make(channel: Channel, epsilon: float, file: Path) -> Table:
    """Each row is computed once: a first pass stores probabilities, a second one mixes them, in the same file."""
    shape = (len(channel.inputs), len(channel.outputs))
    if (size := 8 * math.prod(shape)) > LARGEST_BYTES:
        raise TableError(f"the table would take {size / 1e9:.1f} GB, more than 2: use fewer words")
    file.parent.mkdir(parents=True, exist_ok=True)
    partial = file.with_suffix(f".{os.getpid()}.partial")
    sums = np.lib.format.open_memmap(partial, mode="w+", dtype=np.int64, shape=shape)  # type: ignore[no-untyped-call]
    laws = sums.view(np.float64)
    extremes = Extremes(shape[1])
    for x in blocks(shape[0]):
        laws[x] = law = channel.rows(x)
        extremes.add(x, law)
    beta, base = least_mixing(extremes.highest, extremes.lowest, epsilon)
    for x in blocks(shape[0]):
        sums[x] = whole((1 - beta) * laws[x] + beta * base)
    sums.flush()
    os.replace(partial, file)
    return Table(channel.inputs, channel.outputs, _mapped(file))


def _mapped(file: Path) -> IntArray:
    return np.load(file, mmap_mode="r").view(np.ndarray)
