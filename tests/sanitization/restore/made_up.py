"""A small book of made-up profiles, published and signed."""

from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from sanitization.restore import bundle
from sanitization.restore.bundle import Bundle
from sanitization.restore.profiles import Made, make_book

TYPES = ("fever", "rash", "thirst", "cramp", "cough", "vertigo")
OPTIONS = ["measles", "diabetes", "flu"]
SIZE = 24
KEY = Ed25519PrivateKey.from_private_bytes(bytes(range(32)))


def vectors() -> np.ndarray:
    """Restoration vectors, (6, 24): two types for each option lie near each other."""
    generator = np.random.default_rng(3)
    centres = np.repeat(generator.standard_normal((3, SIZE)), 2, axis=0)
    return centres + 0.2 * generator.standard_normal((len(TYPES), SIZE))


def made(k: int = 4) -> Made:
    """A book made from forty queries."""
    generator = np.random.default_rng(4)
    weights = np.zeros((40, len(TYPES)))
    for row in range(39):  # the last one has no spans
        weights[row, 2 * (row % 3) + generator.choice(2, generator.integers(1, 3), replace=False)] = 1
    spans = [[name for name, weight in zip(TYPES, row, strict=True) if weight] for row in weights]
    return make_book(TYPES, vectors() @ vectors().T, weights, spans, k)


MANIFEST: dict[str, Any] = {
    "name": "clinic",
    "prompt": "Patient: {text}\nDiagnosis:",
    "options": OPTIONS,
    "placeholder": "___",
    "longest_text": 400,
    "weights": "equal",
    "types": {name: [name, f"strong {name}"] for name in TYPES},
    "model": {"name": "none", "sha256": "0" * 64},
    "steering": {"scale": 2.0, "heads": [(0, 0), (1, 2)], "head_size": SIZE // 2},
    "declared": {"data": "public", "by": "test", "sha256": "0" * 64},
    "report": {},
}


def published(root: Path, **other: Any) -> Bundle:
    """The book as a bundle in a folder."""
    one = made()
    steering = {"table": (one.mixture @ vectors()).astype(np.float32)}
    return bundle.load(bundle.publish(root, {**MANIFEST, **other}, one.book, steering, KEY))
