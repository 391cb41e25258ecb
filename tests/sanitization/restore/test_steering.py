"""Vectors of several bundles in one table."""

from pathlib import Path

import numpy as np
import pytest

from sanitization.restore.bundle import BundleError, folder_of, load_steering
from sanitization.restore.steering import table
from tests.sanitization.restore.made_up import SIZE, published


def test_rows_of_two_bundles(tmp_path: Path) -> None:
    one, other = (
        published(tmp_path),
        published(tmp_path, steering={"scale": 3.0, "heads": [(1, 0), (1, 1)], "head_size": 12}),
    )
    vectors = load_steering(folder_of(tmp_path, "clinic@1"), one)["table"].reshape(4, 2, SIZE // 2)
    found, bases = table([(one, vectors), (other, vectors)], heads=3, size=SIZE // 2)
    assert bases == [1, 5]
    assert {layer: rows.shape for layer, rows in found.items()} == {0: (9, 36), 1: (9, 36)}
    for rows in found.values():
        assert not rows[[0, 1, 5]].any()  # nothing, and each bundle's profile of no spans
    np.testing.assert_allclose(found[0][1:5, :12], 2.0 * vectors[:, 0])
    np.testing.assert_allclose(found[1][1:5, 24:], 2.0 * vectors[:, 1])
    np.testing.assert_allclose(found[1][5:, :24], 3.0 * vectors.reshape(4, 24))
    assert not found[0][5:].any()


def test_vectors_that_do_not_fit(tmp_path: Path) -> None:
    one = published(tmp_path)
    vectors = np.ones((4, 2, 12), dtype=np.float32)
    for wrong in (vectors[:3], vectors[:, :1], vectors[:, :, :5], np.full_like(vectors, np.nan)):
        with pytest.raises(BundleError, match="vectors"):
            table([(one, wrong)], heads=3, size=12)
    with pytest.raises(BundleError, match="head 2"):
        table([(one, vectors)], heads=2, size=12)
