"""Uniform whole numbers from the operating system's generator, many at a time."""

import os

import numpy as np

from sanitization.vocabulary import IntArray

LARGEST = 1 << 62


def below(limit: int, count: int) -> IntArray:
    """Independent uniform numbers 0..limit-1, exactly (by rejection).

    Args:
        limit: 1 to 2⁶².
        count: number of draws.
    """
    if not 1 <= limit <= LARGEST:
        raise ValueError(f"a limit is from 1 to 2**62, not {limit}")
    mask = np.uint64((1 << (limit - 1).bit_length()) - 1)
    drawn = np.empty(0, dtype=np.int64)
    while len(drawn) < count:
        fresh = np.frombuffer(os.urandom(16 * (count - len(drawn)) + 64), dtype=np.uint64) & mask
        drawn = np.concatenate([drawn, fresh[fresh < limit].astype(np.int64)])
    return drawn[:count]
