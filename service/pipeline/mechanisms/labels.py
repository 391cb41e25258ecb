"""What mechanisms that release a label with its probability have in common."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from service.pipeline.mechanisms.adapter import Answer

_DIGITS = 4
"""Decimal places of a probability that leaves."""


def believed(labels: Sequence[str], probabilities: np.ndarray) -> Answer:
    """An answer of the likeliest label.

    Args:
        labels: the task's.
        probabilities: of each to be right, shape (labels,).
    """
    likeliest = int(probabilities.argmax())
    rounded = [round(float(probability), _DIGITS) for probability in probabilities]
    return {
        "label": labels[likeliest],
        "probability": rounded[likeliest],
        "probabilities": dict(zip(labels, rounded, strict=True)),
    }
