"""Imported by vLLM's workers on a GPU, for what its batch-invariant kernels leave out.

vLLM 0.26 adds a residual and normalises the sum in one kernel, which sums a row with 1,024 threads in a batch of fewer
than 256 tokens, and with 256 in a larger one. So a prompt's log-probabilities depended on how many tokens were computed
beside it, and seldom a token (SmolLM2 on an H200). Here the sum is normalised as what has no residual is.
"""

import torch
from vllm import _custom_ops as ops
from vllm.model_executor.layers.batch_invariant import rms_norm_batch_invariant


def fused_add_rms_norm(rows: torch.Tensor, residual: torch.Tensor, weight: torch.Tensor | None, epsilon: float) -> None:
    """In place, as vLLM's: ``residual`` becomes its sum with ``rows``, and these what it is normalised, both (n, k)."""
    residual.add_(rows)
    rows.copy_(rms_norm_batch_invariant(residual, weight, epsilon))


ops.fused_add_rms_norm = fused_add_rms_norm


class Extension:
    """Adds nothing to a worker; vLLM imports this module for its sake."""
