"""Bundles of random vectors for a real model, and what transformers answers when it is steered by them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import torch

from research.restore.model import SteeredModel
from sanitization.digests import model_digest
from sanitization.restore import bundle as bundles
from sanitization.restore.bundle import Bundle
from tests.sanitization.restore.made_up import KEY, MANIFEST, made

HEADS = [(0, 1), (1, 0)]
SCALE = 3.0
PROFILES = 4


def publish(root: Path, folder: Path, seed: int = 5, **other: Any) -> tuple[Bundle, np.ndarray]:
    """A bundle for the model in a folder, and its vectors, float32 (4, 2 heads, 32); profile 0 steers nothing."""
    vectors = np.random.default_rng(seed).standard_normal((PROFILES, len(HEADS), 32)).astype(np.float32) / 8
    vectors[0] = 0
    about = {
        **MANIFEST,
        "model": {"name": "tiny", "sha256": model_digest(folder)},
        "steering": {"scale": SCALE, "heads": HEADS, "head_size": 32},
        **other,
    }
    return bundles.load(bundles.publish(root, about, made(PROFILES).book, {"table": vectors}, KEY)), vectors


def greedy(reference: SteeredModel, text: str, vectors: np.ndarray | None, count: int) -> list[int]:
    """The likeliest tokens after a text, each steered by a profile's vectors, without a cache."""
    prompt = reference._tokens([text])[0]
    steering = None if vectors is None else torch.tensor(SCALE * vectors)[None]
    tokens = list(prompt)
    for _ in range(count):
        with torch.inference_mode(), reference._steered(steering, HEADS, torch.tensor([len(prompt) - 1])):
            tokens.append(int(reference._forward([tokens], torch.tensor([[len(tokens) - 1]]))[0, 0].argmax()))
    return tokens[len(prompt) :]


def right(reference: SteeredModel, text: str, vectors: np.ndarray | None) -> np.ndarray:
    """The probabilities of the options' first tokens, which differ, steered by a profile's vectors."""
    prompt = reference._tokens([text])[0]
    steering = None if vectors is None else torch.tensor(SCALE * vectors)[None]
    with torch.inference_mode(), reference._steered(steering, HEADS, (end := torch.tensor([len(prompt) - 1]))):
        logits = reference._forward([prompt], end[None])[0, 0].double()
    first = [option[0] for option in reference._options]
    assert len(set(first)) == len(first)
    return torch.softmax(logits[first], 0).numpy()
