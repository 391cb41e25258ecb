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
from dataclasses import dataclass

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


@dataclass(frozen=True)
class Power:
    """The spectrum of a power of a distribution, on a cycle.

    Attributes:
        spectrum: half of it, as the transform of real numbers has it.
        log_envelope: logarithms of what neither the true nor the computed spectrum exceeds.
        relative: bounds of the errors of the spectrum over the envelope.
    """

    spectrum: npt.NDArray[np.complex128]
    log_envelope: Array
    relative: Array


def power_of(low: int, masses: Array, input_error: float, count: int, size: int) -> Power:
    """The spectrum of a convolution power.

    Args:
        low: index of the first point.
        masses: the distribution.
        input_error: a bound of the masses' relative errors, weighted by the masses.
        count: the power.
        size: length of the cycle; a power of two.
    """
    wrapped = np.bincount(np.arange(low, low + masses.size) % size, masses, size)
    total = float(masses.sum())
    error = _SLACK * (rounding(size) + UNIT * (masses.size // size + 1)) * total + input_error
    spectrum = np.fft.rfft(wrapped)
    log_envelope, relative = np.empty(spectrum.size), np.empty(spectrum.size)
    # A power of the spectrum errs by at most count * error * envelope^(count - 1).
    for start in range(0, spectrum.size, _BLOCK):
        block = slice(start, start + _BLOCK)
        envelope = np.abs(spectrum[block]) * (1 + 4 * UNIT) + error
        log_envelope[block] = count * np.log(envelope)
        relative[block] = count * error / envelope + _PRODUCT * (count + 1)
        spectrum[block] = _power(spectrum[block], count)
    return Power(spectrum, log_envelope, relative)


class Product:
    """The cyclic convolution of powers of distributions, as the product of their spectra.

    Args:
        size: length of the cycle; a power of two.
    """

    def __init__(self, size: int) -> None:
        self._size = size
        self._spectrum = np.ones(size // 2 + 1, dtype=np.complex128)
        self._log_envelope, self._relative = np.zeros(self._spectrum.size), np.zeros(self._spectrum.size)

    def times(self, power: Power) -> None:
        """Take a further one, on a cycle of the same length."""
        self._spectrum *= power.spectrum
        self._log_envelope += power.log_envelope
        self._relative += power.relative

    def masses(self) -> tuple[Array, float]:
        """(size,) masses, the first that of index 0; and a bound of the Euclidean norm of their error."""
        spectral = float(np.linalg.norm(np.exp(self._log_envelope) * self._relative))
        back = rounding(self._size) * float(np.linalg.norm(self._spectrum))
        # Half a spectrum has at least half of the squares; Parseval divides by the root of the size.
        norm = _SLACK * math.sqrt(2 / self._size) * (spectral + back) + _UNDERFLOW
        return np.fft.irfft(self._spectrum, self._size), norm


def _power(base: npt.NDArray[np.complex128], exponent: int) -> npt.NDArray[np.complex128]:
    """A power by repeated squaring: ``exponent - 1`` relative errors of a product at most."""
    result = base if exponent & 1 else np.ones_like(base)
    while exponent := exponent >> 1:
        base = base * base
        if exponent & 1:
            result = result * base
    return result
