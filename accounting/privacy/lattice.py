"""The cost of drawing Gaussian noise on a lattice and accounting for it as if it were continuous.

The noise is a discrete Gaussian on the multiples of 2^-40 (:mod:`aggregation.noise`), of deviation s in lattice steps.
Round a *continuous* Gaussian of variance ``s^2 - 1/12`` to whole steps instead (1/12 is the variance of rounding, so
the first terms cancel): post-processing, so it costs what a continuous Gaussian costs. The two laws on the integers
agree up to a factor ``exp(LARGEST_RATIO)`` within 64 deviations, and leave less than e^-2000 outside. So does every
transcript, coordinate by coordinate: with c coordinates of noise in all, the lattice costs ``2 c LARGEST_RATIO`` of ε
and some ``c e^-2000`` of δ. That is proved in ``docs/privacy/numerics.md`` (Theorem 19) and counted by these constants.
"""

LARGEST_RATIO = 1e-35
"""Bound of both laws' log-ratio within 64 deviations, for s of at least 0.01 · 2^40; (64² + 2)² / (150 s⁴) at most."""
MOST_COORDINATES = 2**60
"""Far more than plans allow: 100 tasks of 10^8 answers with some thousand coordinates each."""
LATTICE = 1 - 2.0**-50
"""The part of a deviation that counts, below sqrt(1 - 1/12s²) and the rounding of s; and the part of δ that is used."""
LATTICE_LOSS = 1e-12
"""Added to every upper bound of ε; far above ``2 MOST_COORDINATES LARGEST_RATIO``."""
