"""Restoration vectors by ORPO (Hong, Lee, Thorne, arXiv 2403.07691), the language model frozen.

For a redacted query steered by its meta vector Z: -log P(a) - λ·log σ(log odds(a)/odds(â)), a the model's answer to
the intact query, â that to the redacted one, P the mean per token. The second term only where a ≠ â. The scale
α is learnt, from √K: with Z of norm 1 over all heads, the paper's α = 1 leaves each head next to nothing.

Training stores its state as it goes, and which rows a step sees depends on its number alone: a job that was stopped
goes on as if it had not been.
"""

import math
import os
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from research.restore.data import TrainConfig
from research.restore.model import Head, SteeredModel
from sanitization.vocabulary import FloatArray

STORED_EVERY = 25


@dataclass(frozen=True, eq=False)
class Vectors:
    """The trained vectors.

    Attributes:
        types: r_c, one for each type, (t, K, d).
        scale: α.
    """

    types: Tensor
    scale: float

    @property
    def flat(self) -> FloatArray:
        """(t, K·d)."""
        return self.types.flatten(1).double().numpy()

    def steering(self, weights: FloatArray) -> Tensor:
        """α·Z of queries with these weights of types, (N, K, d); 0 for one without."""
        return self.scale * meta(self.types, torch.tensor(weights, dtype=torch.float32))


def meta(types: Tensor, weights: Tensor) -> Tensor:
    """Z = Σw_c·r_c/‖·‖ of each row, (N, K, d)."""
    sums = torch.einsum("nt,tkd->nkd", weights, types)
    return sums / sums.flatten(1).norm(dim=1).clamp(min=1e-12)[:, None, None]


@dataclass(frozen=True, eq=False)
class Examples:
    """The texts that vectors are trained on.

    Attributes:
        redacted: redacted texts.
        weights: weights of types, (N, t).
        wanted: answers of the model to the intact texts, int64 (N,).
        unwanted: answers of the model to the redacted ones.
    """

    redacted: Sequence[str]
    weights: FloatArray
    wanted: Tensor
    unwanted: Tensor


def train(
    model: SteeredModel,
    heads: Sequence[Head],
    examples: Examples,
    config: TrainConfig,
    file: Path,
    progress: Callable[[int, float], None],
) -> Vectors:
    """Train, or continue.

    Args:
        model: model, frozen.
        heads: K of them.
        examples: public examples.
        config: number of steps, batch and rates.
        file: file that the state is stored in.
        progress: called with the number of steps done, and the loss.
    """
    generator = torch.Generator().manual_seed(config.seed)
    size = (examples.weights.shape[1], len(heads), model.head_size)
    vectors = (torch.randn(size, generator=generator) / math.sqrt(math.prod(size[1:]))).requires_grad_()
    log_scale = torch.tensor(math.log(math.sqrt(len(heads)))).requires_grad_()
    # Decay is for vectors; their length changes nothing but how fast they turn.
    groups: list[dict[str, Any]] = [{"params": [vectors]}, {"params": [log_scale], "weight_decay": 0.0}]
    optimizer = torch.optim.AdamW(groups, lr=config.learning_rate, weight_decay=config.decay)
    begun = _restore(file, optimizer, (vectors, log_scale))
    weights = torch.tensor(examples.weights, dtype=torch.float32)
    for step in range(begun, config.steps):
        for group in optimizer.param_groups:
            group["lr"] = config.learning_rate * (0.5 + 0.5 * math.cos(math.pi * step / config.steps))
        rows = np.random.default_rng([config.seed, step]).integers(len(weights), size=config.batch)
        steering = log_scale.exp() * meta(vectors, weights[rows])
        said = torch.stack([examples.wanted[rows], examples.unwanted[rows]], dim=1)
        sums = model.log_probabilities([examples.redacted[at] for at in rows], steering, heads, said)
        loss = orpo_loss(sums, sums / model.option_lengths[said], said[:, 0] != said[:, 1], config.odds)
        optimizer.zero_grad()
        loss.backward()  # type: ignore[no-untyped-call]
        optimizer.step()
        if (step + 1) % STORED_EVERY == 0 or step + 1 == config.steps:
            _store(file, optimizer, (vectors, log_scale), step + 1)
            progress(step + 1, loss.item())
    return Vectors(vectors.detach(), float(log_scale.detach().exp()))


def orpo_loss(sums: Tensor, means: Tensor, differ: Tensor, odds: float) -> Tensor:
    """The mean loss.

    Args:
        sums: log P of what is wanted and of what is not, (N, 2).
        means: the same per token.
        differ: whether they are different answers, (N,).
        odds: λ.
    """
    # ln(P/(1-P)); the largest P that has one in floating point is far above what matters.
    log_odds = means - torch.log(-torch.expm1(means.clamp(max=-1e-6)))
    preferred = torch.nn.functional.logsigmoid(log_odds[:, 0] - log_odds[:, 1])
    return (-sums[:, 0] - odds * torch.where(differ, preferred, 0.0)).mean()


def _store(file: Path, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor], step: int) -> None:
    partial = file.with_suffix(".partial")
    torch.save((step, [parameter.detach() for parameter in parameters], optimizer.state_dict()), partial)
    os.replace(partial, file)


def _restore(file: Path, optimizer: torch.optim.Optimizer, parameters: Sequence[Tensor]) -> int:
    """Number of steps done; sets parameters and moments as they were after them."""
    if not file.exists():
        return 0
    # Tensors and numbers only, which nothing in the file can make more of.
    step, stored, state = torch.load(file, weights_only=True)
    with torch.no_grad():
        for parameter, value in zip(parameters, stored, strict=True):
            parameter.copy_(value)
    optimizer.load_state_dict(state)
    return int(step)
