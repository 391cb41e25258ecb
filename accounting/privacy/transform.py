"""Convolution powers by one Fourier transform, with a proved bound of the rounding error.

Transforms have powers of two as sizes, for which numpy's pocketfft uses additions, and products with roots of unity,
only. Let u = 2^-53. A complex sum errs by a factor of 1 + u at most, a complex product by 1 + √5 u (Brent, Percival and
Zimmermann, Math. Comp. 76, 2007), and a root of unity, itself a product of two entries of tables of sines and
cosines, by 10 u. So each of the log2(n) halvings multiplies what was there by at most 1 + 16 u. Two bounds follow, with
``tau = (1 + 16 u)^log2(n) - 1`` (as in Higham, Accuracy and Stability of Numerical Algorithms, theorem 24.2):

- every output is a sum over paths, one from each input, so it errs by at most tau times the sum of |inputs|;
- a halving is √2 times a unitary map, so the vector of outputs errs by at most tau times its Euclidean norm.

The first bounds the spectra, whose powers multiply their errors by the number of answers; the second the way back.
Powers are taken by repeated squaring, in which every product counts with 3 u. See ``docs/privacy/numerics.md``.
"""

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from accounting.privacy.profiles import Array

UNIT = 2.0**-53
"""Half the distance from 1 to the next double."""
_HALVING = 16 * UNIT
_PRODUCT = 3 * UNIT
_UNDERFLOW = 1e-290  # what all underflows of one transform add up to is far below
_BLOCK = 1 << 13  # of a spectrum: small enough for a processor's cache, which is ten times as fast
_SLACK = 1.01  # for the rounding of the bounds themselves


def rounding(size: int) -> float:
    """The tau of a transform of ``size``, a power of two."""
    return math.expm1(size.bit_length() * math.log1p(_HALVING))


def convolve_powers(parts: Sequence[tuple[int, Array, float]], counts: Sequence[int], size: int) -> tuple[Array, float]:
    """The cyclic convolution of powers of distributions.

    Args:
        parts: index of the first point of each distribution, its masses, and a bound of their relative errors,
            weighted by the masses.
        counts: power of each distribution.
        size: length of the cycle; a power of two.

    Returns:
        (size,) masses, the first that of index 0; and a bound of the Euclidean norm of their error.
    """
    tau = rounding(size)
    product = np.ones(size // 2 + 1, dtype=np.complex128)
    log_envelope, relative = np.zeros(size // 2 + 1), np.full(size // 2 + 1, _PRODUCT * (sum(counts) + len(counts)))
    for (low, masses, input_error), count in zip(parts, counts, strict=True):
        wrapped = np.bincount(np.arange(low, low + masses.size) % size, masses, size)
        total = float(masses.sum())
        error = _SLACK * (tau + UNIT * (masses.size // size + 1)) * total + input_error
        spectrum = np.fft.rfft(wrapped)
        # Neither the true nor the computed spectrum exceeds the envelope, so a power of it errs by at most
        # count * error * envelope^(count - 1).
        for start in range(0, product.size, _BLOCK):
            block = slice(start, start + _BLOCK)
            envelope = np.abs(spectrum[block]) * (1 + 4 * UNIT) + error
            log_envelope[block] += count * np.log(envelope)
            relative[block] += count * error / envelope
            product[block] *= _power(spectrum[block], count)
    spectral = float(np.linalg.norm(np.exp(log_envelope) * relative))
    back = rounding(size) * float(np.linalg.norm(product))
    # Half a spectrum has at least half of the squares; Parseval divides by the root of the size.
    norm = _SLACK * math.sqrt(2 / size) * (spectral + back) + _UNDERFLOW
    return np.fft.irfft(product, size), norm


def _power(base: npt.NDArray[np.complex128], exponent: int) -> npt.NDArray[np.complex128]:
    """A power by repeated squaring: ``exponent - 1`` relative errors of a product at most."""
    result = base if exponent & 1 else np.ones_like(base)
    while exponent := exponent >> 1:
        base = base * base
        if exponent & 1:
            result = result * base
    return result
