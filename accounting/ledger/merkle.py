"""The Merkle tree of RFC 6962 (section 2.1): a root over a list of leaves, and proofs that a leaf is in it.

``hash of a leaf = SHA-256(0x00 || leaf)``, ``hash of a node = SHA-256(0x01 || left || right)``; a tree of n leaves has
the largest power of two below n on its left.
"""

import hashlib
from collections.abc import Callable, Sequence

EMPTY = hashlib.sha256().digest()
"""The root over no leaves."""


def leaf_hash(leaf: bytes) -> bytes:
    """Hash of a leaf, 32 bytes."""
    return hashlib.sha256(b"\x00" + leaf).digest()


def node_hash(left: bytes, right: bytes) -> bytes:
    """Hash of a node over those of its children, 32 bytes."""
    return hashlib.sha256(b"\x01" + left + right).digest()


class RootOf:
    """The root over leaves that are added one after another, or as whole subtrees. It keeps a hash for each power of 2.

    Attributes:
        size: number of leaves so far.
    """

    def __init__(self) -> None:
        self.size = 0
        self._subtrees: list[tuple[int, bytes]] = []  # number of leaves and hash, the largest first

    def add(self, hashed: bytes, leaves: int = 1) -> None:
        """Add a leaf by its hash, or a whole subtree by its root.

        Args:
            hashed: the hash, 32 bytes.
            leaves: number of the subtree's leaves, a power of two that divides the number of leaves so far.
        """
        self.size += leaves
        while self._subtrees and self._subtrees[-1][0] == leaves:
            hashed = node_hash(self._subtrees.pop()[1], hashed)
            leaves *= 2
        self._subtrees.append((leaves, hashed))

    def root(self) -> bytes:
        """The root over all leaves so far, 32 bytes."""
        if not self._subtrees:
            return EMPTY
        *larger, (_, root) = self._subtrees
        for _, hashed in reversed(larger):
            root = node_hash(hashed, root)
        return root


def audit_path(index: int, size: int, root: Callable[[int, int], bytes]) -> list[bytes]:
    """The hashes that lead from a leaf to the root (RFC 6962, section 2.1.1), from the leaf's sibling upwards.

    Args:
        index: number of the leaf, from 0.
        size: number of leaves of the tree.
        root: a function that returns the root over the leaves from one number up to, but without, another.
    """
    path: list[bytes] = []
    start, end = 0, size
    while end - start > 1:
        middle = start + (1 << (end - start - 1).bit_length() - 1)
        if index < middle:
            path.append(root(middle, end))
            end = middle
        else:
            path.append(root(start, middle))
            start = middle
    return path[::-1]


def root_from(path: Sequence[bytes], index: int, size: int, leaf: bytes) -> bytes | None:
    """The root that a leaf and its path lead to (RFC 9162, section 2.1.3.2); None if the path has another length.

    Args:
        path: hashes from :func:`audit_path`.
        index: number of the leaf, from 0.
        size: number of leaves of the tree.
        leaf: hash of the leaf.
    """
    if not 0 <= index < size:
        return None
    place, last, root = index, size - 1, leaf
    for hashed in path:
        if last == 0:
            return None
        if place & 1 or place == last:
            root = node_hash(hashed, root)
            while not place & 1 and place:  # levels at which the leaf's subtree has no sibling
                place, last = place >> 1, last >> 1
        else:
            root = node_hash(root, hashed)
        place, last = place >> 1, last >> 1
    return root if last == 0 else None
