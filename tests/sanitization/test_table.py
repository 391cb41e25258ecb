"""Tables: whole numbers that are audited and drawn from, and their cache."""

from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest

from sanitization import table
from sanitization.cache import DamagedFileError, remember
from sanitization.table import TOTAL, Table, TableError, forget_oldest, open_table, whole
from tests.sanitization.made_up import Rows, random_rows


def never() -> tuple[Rows, str]:
    raise AssertionError("the table is in the cache")


def test_whole_weights() -> None:
    law = np.array([[0.5, 0.5, 0.0], [1e-30, 1 - 1e-30, 0.0], [1 / 3, 1 / 3, 1 / 3]])
    weights = np.diff(whole(law), axis=1, prepend=0)
    assert (weights.sum(axis=1) == TOTAL).all()
    assert ((weights > 0) == (law > 0)).all(), "what is possible stays possible, and what is not, not"
    np.testing.assert_allclose(weights / TOTAL, law, atol=2**-60)


def test_each_point_draws_the_output_it_belongs_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """At both ends of every output's part of the randomness."""
    made = Table(["x"], ["a", "b", "c", "d"], whole(np.array([[0.25, 0.0, 0.7, 0.05]])))
    starts = [0, *(int(end) for end in made.sums[0])]
    points = [p for a, b in pairwise(starts) if b > a for p in (a, b - 1)]
    monkeypatch.setattr(table.uniform, "below", lambda limit, count: np.array(points))
    assert list(made.draw(np.zeros(6, dtype=np.int64))) == [0, 0, 2, 2, 3, 3]


def test_a_table_is_made_only_once(tmp_path: Path) -> None:
    first, found, _ = open_table(lambda: (random_rows(5, 6, 2), "chosen"), "law", tmp_path, epsilon=1.0)
    again, audited, remark = open_table(never, "law", tmp_path, epsilon=1.0)
    assert (audited, remark) == (found, "chosen")
    assert list(again.outputs) == list(first.outputs)
    np.testing.assert_array_equal(again.sums, first.sums)


def test_another_key_or_epsilon_is_another_table(tmp_path: Path) -> None:
    one, _, _ = open_table(lambda: (random_rows(5, 6, 2), "chosen"), "words of yesterday", tmp_path, epsilon=1.0)
    other, _, _ = open_table(lambda: (random_rows(5, 6, 3), "chosen"), "words of today", tmp_path, epsilon=1.0)
    third, found, _ = open_table(lambda: (random_rows(5, 6, 2), "chosen"), "words of yesterday", tmp_path, epsilon=2.0)
    assert (one.sums != other.sums).any()
    assert (one.sums != third.sums).any()
    assert found.epsilon > 1.0


def test_a_damaged_table_is_refused(tmp_path: Path) -> None:
    open_table(lambda: (random_rows(5, 6, 2), "chosen"), "law", tmp_path, epsilon=1.0)
    (file,) = tmp_path.glob("*.npy")
    content = bytearray(file.read_bytes())
    content[-9] ^= 1
    file.write_bytes(content)
    with pytest.raises(TableError, match="damaged"):
        open_table(never, "law", tmp_path, epsilon=1.0)


@pytest.mark.parametrize("length", [0, 3, 100, -1])
def test_a_file_that_was_cut_off_is_refused(length: int, tmp_path: Path) -> None:
    kept = {"sums": np.arange(9)}, {"audit": "found"}
    assert remember(tmp_path, "law", lambda: kept)[1] == {"audit": "found"}
    (file,) = tmp_path.iterdir()
    file.write_bytes(file.read_bytes()[:length])
    with pytest.raises(DamagedFileError):
        remember(tmp_path, "law", never)


def test_a_table_that_was_not_finished_is_made_again(tmp_path: Path) -> None:
    first, found, _ = open_table(lambda: (random_rows(5, 6, 2), "chosen"), "law", tmp_path, epsilon=1.0)
    (about,) = tmp_path.glob("*.npz")
    about.unlink()
    again, audited, _ = open_table(lambda: (random_rows(5, 6, 2), "chosen"), "law", tmp_path, epsilon=1.0)
    assert audited == found
    np.testing.assert_array_equal(again.sums, first.sums)


def test_too_large(tmp_path: Path) -> None:
    class Huge(Rows):
        @property
        def outputs(self) -> Sequence[str]:
            return "y" * 200_000_000

    with pytest.raises(TableError, match=r"3\.2 GB"):
        open_table(lambda: (Huge(np.ones((2, 1))), ""), "law", tmp_path, epsilon=1.0)
    assert not list(tmp_path.iterdir())


def test_the_tables_opened_longest_ago_are_forgotten_first(tmp_path: Path) -> None:
    def opened(key: str) -> Table:
        return open_table(lambda: (random_rows(40, 40, 1), ""), key, tmp_path, epsilon=2.0)[0]

    first, second = opened("a"), opened("b")
    rows = first.rows(np.arange(40)), second.rows(np.arange(40))
    opened("c"), opened("a")
    (size,) = {file.stat().st_size for file in tmp_path.glob("*.npy")}
    forget_oldest(tmp_path, 2 * size)
    assert len([*tmp_path.glob("*.npy")]) == len([*tmp_path.glob("*.npz")]) == 2
    open_table(never, "a", tmp_path, epsilon=2.0)
    open_table(never, "c", tmp_path, epsilon=2.0)
    np.testing.assert_array_equal(second.rows(np.arange(40)), rows[1], "it stays open")
    np.testing.assert_array_equal(opened("b").rows(np.arange(40)), rows[1], "it is made again, the same")
    forget_oldest(tmp_path, 0)
    assert not [*tmp_path.iterdir()]
