"""Books of profiles."""

import numpy as np
import pytest

from sanitization.restore.profiles import Book, make_book, meta_products
from tests.sanitization.restore.made_up import TYPES, made, vectors


def test_a_profile_is_the_centroid_nearest_to_the_meta_vector() -> None:
    """It is found by the products that a client has, and by the vectors themselves."""
    one = made()
    centroids = one.mixture @ vectors()
    np.testing.assert_allclose(np.linalg.norm(centroids[1:], axis=1), 1)
    np.testing.assert_allclose(one.book.affinity, vectors() @ centroids.T, atol=1e-9)
    generator = np.random.default_rng(0)
    for _ in range(50):
        chosen = dict(zip(generator.permutation(TYPES)[:3], generator.random(3), strict=True))
        meta = sum(weight * vectors()[TYPES.index(name)] for name, weight in chosen.items())
        assert one.book.nearest(chosen) == 1 + int((centroids[1:] @ meta).argmax())


def test_types_near_each_other_share_a_profile() -> None:
    book = made().book
    assert book.k == 4
    assert len({book.nearest({name: 1.0}) for name in ("fever", "thirst", "cough")}) == 3
    for pair in (("fever", "rash"), ("thirst", "cramp"), ("cough", "vertigo")):
        assert book.nearest({pair[0]: 1.0}) == book.nearest({pair[1]: 1.0})
        assert set(book.medoids[book.nearest({pair[0]: 1.0})]) <= set(pair)


def test_no_spans_are_profile_0() -> None:
    one = made()
    assert one.book.nearest({}) == 0
    assert one.book.medoids[0] == ()
    assert not one.mixture[0].any()


def test_products_of_queries() -> None:
    one = made()
    weights = np.abs(np.random.default_rng(1).standard_normal((7, len(TYPES))))
    meta = weights @ vectors()
    meta /= np.linalg.norm(meta, axis=1, keepdims=True)
    found = meta_products(vectors() @ vectors().T, weights, one.mixture)
    np.testing.assert_allclose(found, meta @ (one.mixture @ vectors()).T, atol=1e-9)


def test_more_profiles_than_kinds_of_queries() -> None:
    with pytest.raises(ValueError, match="alike"):
        make_book(TYPES, np.eye(6), np.repeat(np.eye(6)[:2], 9, axis=0), [["fever"]] * 18, 4)


@pytest.mark.parametrize(
    ("affinity", "medoids"),
    [
        (np.ones((1, 2)), ((), ("a",))),
        (np.zeros((1, 1)), ((),)),
        (np.zeros((2, 2)), ((), ("a",))),
        (np.array([[0, np.nan]]), ((), ("a",))),
        (np.zeros((1, 2)), (("a",), ())),
    ],
)
def test_no_book(affinity: np.ndarray, medoids: tuple[tuple[str, ...], ...]) -> None:
    with pytest.raises(ValueError, match="book"):
        Book(("fever",), affinity, medoids)
