"""Imported by vLLM's workers on a CPU, for what they need before they compute.

vLLM's attention uses the registers of AMX where there are any, and leaves it to oneDNN to ask Linux for them; oneDNN
without AMX does not, and the worker would die of an illegal instruction.

oneDNN multiplies one row by another kernel than several, and sums it in another order. So a prompt that is alone in its
batch would have other log-probabilities than beside others, and its output would depend on them. One row is therefore
multiplied as two.

vLLM's attention cuts a long prompt where its tiles end, and sums the parts one after another. Tiles' sizes depend
on how many of the prompt's tokens are new, and on what else is in the batch. Where few are new it cuts none, up to
:attr:`.isolation.Isolation.longest` tokens. So new tokens are shown to it a few at a time, in the same pass.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from vllm import _custom_ops as ops
from vllm.v1.attention.backend import CommonAttentionMetadata
from vllm.v1.attention.backends.cpu_attn import CPUAttentionMetadataBuilder

# The rows (tokens times heads that share their keys) that each of vLLM's CPU kernels has in its registers, at least.
_ROWS = 8
Build = Callable[..., Any]
Multiply = Callable[[Any, torch.Tensor, torch.Tensor | None], torch.Tensor]


def never_one_row(multiply: Multiply) -> Multiply:
    """A product of rows (n, k) with weights, in which one row is computed as it is among others."""

    def product(weights: Any, rows: torch.Tensor, bias: torch.Tensor | None) -> torch.Tensor:
        if rows.shape[:-1].numel() != 1:
            return multiply(weights, rows, bias)
        alone = rows.reshape(1, -1)
        return multiply(weights, torch.cat([alone, alone]), bias)[:1].reshape(*rows.shape[:-1], -1)

    return product


def a_few_at_a_time(batch: CommonAttentionMetadata, tokens: int) -> CommonAttentionMetadata:
    """The same new tokens as if each request brought ``tokens`` of them at most, and came again for its next ones."""
    starts, ends = batch.query_start_loc[:-1], batch.query_start_loc[1:]
    parts = (ends - starts + tokens - 1) // tokens
    request = torch.repeat_interleave(parts)
    begin = starts[request] + tokens * (torch.arange(len(request)) - (parts.cumsum(0) - parts)[request])
    later = (ends[request] - begin - tokens).clamp(min=0)
    return replace(
        batch,
        num_reqs=len(request),
        query_start_loc=torch.cat([begin, ends[-1:]]).int(),
        seq_lens=(batch.seq_lens[request] - later).int(),
        block_table_tensor=batch.block_table_tensor[request],
    )


def whole(build: Build) -> Build:
    """Metadata of a batch for attention that cuts no prompt."""

    def built(
        builder: CPUAttentionMetadataBuilder, common_prefix_len: int, common_attn_metadata: Any, *rest: Any
    ) -> Any:
        few = max(1, _ROWS * builder.num_kv_heads // builder.num_heads)
        return build(builder, common_prefix_len, a_few_at_a_time(common_attn_metadata, few), *rest)

    return built


torch.cpu._init_amx()  # changes nothing where there are none
ops.onednn_mm = never_one_row(ops.onednn_mm)
CPUAttentionMetadataBuilder.build = whole(CPUAttentionMetadataBuilder.build)


class Extension:
    """Adds nothing to a worker; vLLM imports this module for its sake."""
