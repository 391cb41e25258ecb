"""The change to vLLM's workers on a CPU: a row is multiplied the same alone as among others."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = [pytest.mark.model, pytest.mark.lengthy]

ROWS = """
import torch
from vllm import _custom_ops as ops
from service.engines.vllm.cpu_worker import never_one_row

torch.manual_seed(1)
dtype = torch.bfloat16 if torch.cpu.get_capabilities()["avx512_f"] else torch.float32  # as vLLM has it there
plain, rows = torch.randn(576, 1536, dtype=dtype), torch.randn(400, 1536, dtype=dtype)
multiply = ops.onednn_mm.__closure__[0].cell_contents  # vLLM's own
weights = ops.create_onednn_mm(plain.t(), 32)
together = multiply(weights, rows, None)
for product in (multiply, never_one_row(multiply)):
    print(sum(not torch.equal(product(weights, rows[i : i + 1], None)[0], together[i]) for i in range(400)))
assert torch.equal(ops.onednn_mm(weights, rows[0], None), together[0])  # of any shape
assert torch.equal(ops.onednn_mm(weights, rows[None, :3], None), together[None, :3])
"""


# Counts the rows that differ when the first tokens of a prompt are kept, or when another prompt is beside it.
ATTENTION = """
import torch
from vllm import _custom_ops as ops
from vllm.v1.attention.backend import CommonAttentionMetadata
from service.engines.vllm.cpu_worker import a_few_at_a_time

torch.manual_seed(1)
HEADS, KEYS, SIZE, BLOCK, TOKENS = 9, 3, 64, 32, 3200  # SmolLM2's heads
queries, keys, values = (torch.randn(TOKENS, heads, SIZE) for heads in (HEADS, KEYS, KEYS))
cache = torch.zeros(TOKENS // BLOCK, KEYS, 2 * BLOCK, SIZE).chunk(2, dim=2)
ops.cpu_attn_reshape_and_cache(keys, values, *cache, torch.arange(TOKENS), "vec")
table = torch.arange(TOKENS // BLOCK, dtype=torch.int32)
same = {"alibi_slopes": None, "softcap": 0, "s_aux": None, "scale": 0.1, "sliding_window": -1, "causal": True}


def attend(few, *spans):
    starts = torch.tensor([0, *map(len, spans)]).cumsum(0).int()
    ends = torch.tensor([span.stop for span in spans], dtype=torch.int32)
    new = torch.cat([queries[span.start : span.stop] for span in spans])
    batch = CommonAttentionMetadata(
        starts, starts, ends, len(spans), len(new), len(new), TOKENS, table.repeat(len(spans), 1), starts)
    batch = a_few_at_a_time(batch, 2) if few else batch
    parts = {"query_start_loc": batch.query_start_loc, "seq_lens": batch.seq_lens}
    planned = ops.cpu_attn_get_scheduler_metadata(
        batch.num_reqs, HEADS, KEYS, SIZE, dtype=new.dtype, causal=True, sliding_window_size=-1, isa="vec",
        enable_kv_split=False, **parts)
    ops.cpu_attention_with_kv_cache(
        new, *cache, output := torch.empty_like(new), scheduler_metadata=planned, block_table=batch.block_table_tensor,
        **parts, **same)
    return output


for few in (False, True):
    prompt = attend(few, range(TOKENS))
    kept = attend(few, range(TOKENS - 33, TOKENS))
    batched = attend(few, range(500), range(TOKENS))
    print(sum(int((~(a == b).all(-1)).sum()) for a, b in ((kept, prompt[-33:]), (batched[500:], prompt))))
"""


@pytest.fixture(scope="module")
def differing() -> list[int]:
    """The numbers of rows that differ, from a process of its own: oneDNN reads its limit once in a process."""
    environment = {**os.environ, "ONEDNN_MAX_CPU_ISA": "AVX512_CORE_BF16"}
    printed = subprocess.check_output([sys.executable, "-c", ROWS + ATTENTION], env=environment, text=True, timeout=600)
    return [int(line) for line in printed.splitlines() if line.isdigit()]


def test_a_row_alone_is_multiplied_as_it_is_among_others(differing: list[int]) -> None:
    assert differing[1] == 0  # without our change it is 46 on one machine, perhaps 0 on others


def test_attention_over_a_long_prompt_is_the_same_whatever_is_kept_and_beside_it(differing: list[int]) -> None:
    assert differing[2] > differing[3] == 0
