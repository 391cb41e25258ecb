"""Imported by vLLM's workers on a CPU, for what they need before they compute.

vLLM's attention uses the registers of AMX where there are any, and leaves it to oneDNN to ask Linux for them; oneDNN
without AMX does not, and the worker would die of an illegal instruction.

oneDNN multiplies one row by another kernel than several, and sums it in another order. So a prompt that is alone in its
batch would have other log-probabilities than beside others, and what it says would depend on them. One row is therefore
multiplied as two.
"""

from collections.abc import Callable
from typing import Any

import torch
from vllm import _custom_ops as ops

Multiply = Callable[[Any, torch.Tensor, torch.Tensor | None], torch.Tensor]


def never_one_row(multiply: Multiply) -> Multiply:
    """A product of rows (n, k) with weights, in which one row is computed as it is among others."""

    def product(weights: Any, rows: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if rows.shape[:-1].numel() != 1:
            return multiply(weights, rows, bias)
        alone = rows.reshape(1, -1)
        return multiply(weights, torch.cat([alone, alone]), bias)[:1].reshape(*rows.shape[:-1], -1)

    return product


torch.cpu._init_amx()  # changes nothing where there are none
ops.onednn_mm = never_one_row(ops.onednn_mm)


class Extension:
    """Adds nothing to a worker; vLLM imports this module for its sake."""
