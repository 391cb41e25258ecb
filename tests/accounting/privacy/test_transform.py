"""Convolution powers, against arithmetic in 80 digits and whole numbers: the error stays within its proved bound."""

import numpy as np
import pytest

from accounting.privacy.transform import UNIT, Product, power_of, rounding

SIZE = 1 << 10


def convolved(powers, size):
    product = Product(size)
    for power in powers:
        product.times(power)
    return product.masses()


def integer_power(masses, count, size):
    """The cyclic power of whole numbers, exactly."""
    result, base = [1] + [0] * (size - 1), [int(m) for m in masses]
    for _ in range(count):
        after = [0] * size
        for i, a in enumerate(result):
            if a:
                for j, b in enumerate(base):
                    if b:
                        after[(i + j) % size] += a * b
        result = after
    return result


@pytest.mark.parametrize("size", [1 << 4, 1 << 11, 1 << 17])
def test_every_root_of_unity_is_as_exact_as_assumed(size):
    """The transform of one unit mass is all roots of unity, through all halvings."""
    for place in (1, 3, size // 2 - 1):
        unit = np.zeros(size)
        unit[place] = 1.0
        turns = (np.arange(size // 2 + 1, dtype=np.int64) * place % size).astype(np.longdouble) / size
        angle = 2 * np.longdouble("3.14159265358979323846264338327950288") * turns
        found = np.fft.rfft(unit)
        error = np.hypot((found.real - np.cos(angle)).astype(float), (found.imag + np.sin(angle)).astype(float))
        assert error.max() <= rounding(size)


@pytest.mark.parametrize("count", [1, 2, 7, 40])
def test_the_error_is_within_its_bound_and_the_bound_is_of_use(count):
    whole = np.array([3, 0, 700, 21, 300])  # of 1024, so that masses are exact
    masses, error = convolved([power_of(-2, whole / 1024, 0.0, count, 256)], 256)
    exact = integer_power(whole, count, 256)
    true = np.roll([m / 1024**count for m in exact], -2 * count)
    off = float(np.linalg.norm(masses - true))
    assert off <= error <= 1e-11


def test_an_error_of_the_masses_counts_once_per_answer():
    masses, wrong = np.full(64, 1 / 64), np.full(64, (1 + 1e-9) / 64)
    for count in (1, 50):
        right, _ = convolved([power_of(0, masses, 0.0, count, SIZE * 8)], SIZE * 8)
        found, error = convolved([power_of(0, wrong, 1.01e-9, count, SIZE * 8)], SIZE * 8)
        off = float(np.linalg.norm(found - right))
        assert 0.5 * count * 1e-9 * float(np.linalg.norm(right)) < off <= error


def test_several_distributions():
    rng = np.random.default_rng(5)
    one, two = rng.dirichlet(np.ones(30)), rng.dirichlet(np.ones(50))
    masses, error = convolved([power_of(-5, one, 0.0, 2, SIZE), power_of(3, two, 0.0, 3, SIZE)], SIZE)
    direct = np.convolve(np.convolve(one, one), np.convolve(two, np.convolve(two, two)))
    padded = np.roll(np.pad(direct, (0, SIZE - direct.size)), 2 * -5 + 3 * 3)
    assert float(np.linalg.norm(masses - padded)) <= error + direct.size * 8 * UNIT
