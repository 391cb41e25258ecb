"""Roots and proofs against the recursion that RFC 6962 defines, for every leaf of every small tree."""

import pytest

from accounting.ledger.merkle import EMPTY, RootOf, audit_path, leaf_hash, root_from
from tests.accounting.ledger import rfc6962

LEAVES = [f"leaf {number}".encode() for number in range(66)]


def root_of(leaves: list[bytes]) -> bytes:
    tree = RootOf()
    for leaf in leaves:
        tree.add(leaf_hash(leaf))
    return tree.root()


@pytest.mark.parametrize("size", range(len(LEAVES)))
def test_roots_and_paths_are_those_of_the_definition(size: int) -> None:
    leaves = LEAVES[:size]
    root = rfc6962.root(leaves)
    assert root_of(leaves) == root
    for index, leaf in enumerate(leaves):
        path = audit_path(index, size, lambda start, end: rfc6962.root(LEAVES[start:end]))
        assert root_from(path, index, size, leaf_hash(leaf)) == root
        assert root_from(path, index, size, leaf_hash(b"another")) != root
        assert root_from([*path, EMPTY], index, size, leaf_hash(leaf)) is None
        if path:
            assert root_from(path[:-1], index, size, leaf_hash(leaf)) is None
            assert root_from([EMPTY, *path[1:]], index, size, leaf_hash(leaf)) != root
        if size > 1:
            assert root_from(path, (index + 1) % size, size, leaf_hash(leaf)) != root


def test_a_place_outside_the_tree_has_no_root() -> None:
    assert root_from([], 1, 1, leaf_hash(b"")) is None
    assert root_from([], -1, 1, leaf_hash(b"")) is None


@pytest.mark.parametrize("size", range(4, 30))
def test_whole_subtrees_may_be_added_by_their_roots(size: int) -> None:
    tree = RootOf()
    for start in range(0, size - size % 4, 4):
        tree.add(rfc6962.root(LEAVES[start : start + 4]), 4)
    for leaf in LEAVES[size - size % 4 : size]:
        tree.add(leaf_hash(leaf))
    assert (tree.size, tree.root()) == (size, rfc6962.root(LEAVES[:size]))
