"""The root of RFC 6962 as section 2.1 defines it, written from that text and sharing no code with ours."""

import hashlib
from collections.abc import Sequence


def root(leaves: Sequence[bytes]) -> bytes:
    """The Merkle tree hash (MTH) of a list of leaves."""
    if len(leaves) < 2:
        return hashlib.sha256(b"\x00" + leaves[0] if leaves else b"").digest()
    split = 1
    while 2 * split < len(leaves):
        split *= 2
    return hashlib.sha256(b"\x01" + root(leaves[:split]) + root(leaves[split:])).digest()


def root_of_export(export: str) -> bytes:
    """The root over the events of an export, which are all its lines but the last."""
    return root(export.encode().splitlines()[:-1])
