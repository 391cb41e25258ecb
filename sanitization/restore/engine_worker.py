"""vLLM's worker with steered attention heads: each request may name a row of one table, and the place it begins at.

The table is loaded once. Before each forward pass every token of the batch gets its request's row, or 0, whose vectors
are zeros; so requests with and without a row share batches, prompts may be cut in pieces or computed again after a
preemption, and addresses stay the same for compiled code. A request carries whole numbers only, and nothing that it
carries makes the worker raise: a worker that raises takes its neighbours along.

What is not supported is refused at start: another runner than V1's, several GPUs for one model, speculation, LoRA, and
projections that are quantised or of another kind. Prefix caching must be off: a cached block of a prompt that was
steered from its last token on is another one in a longer prompt.
"""

import re
from typing import Any

import numpy as np
import torch
from safetensors.torch import load_file
from torch import Tensor, nn
from vllm.platforms import current_platform

from sanitization.restore.steering import BEGIN, ROW, TABLE

if current_platform.is_cpu():
    from vllm.v1.worker.cpu_worker import CPUWorker as Worker
else:
    from vllm.v1.worker.gpu_worker import Worker

_ATTENTION = re.compile(r"\.layers\.(\d+)\.self_attn$")


class SteeringNotSupportedError(RuntimeError):
    """This vLLM, model or configuration cannot be steered."""


class Steered(nn.Module):
    """An output projection whose input u_h becomes u_h + ‖u_h‖·v_h, v the table's row of each token.

    Args:
        projection: original output projection.
        table: vectors of all rows, (rows, heads, size).
        rows: each token's row, int64 (most tokens of a batch,); filled in before each forward pass.
    """

    def __init__(self, projection: nn.Module, table: Tensor, rows: Tensor):
        super().__init__()
        self.projection = projection
        self.table: Tensor
        self.rows: Tensor
        self.register_buffer("table", table, persistent=False)
        self.register_buffer("rows", rows, persistent=False)

    def forward(self, states: Tensor) -> Any:
        """The projection of the steered states, (tokens, heads·size)."""
        u = states.view(states.shape[0], *self.table.shape[1:])
        moved = u + torch.linalg.vector_norm(u, dim=-1, keepdim=True) * self.table[self.rows[: states.shape[0]]]
        return self.projection(moved.view(states.shape))


class SteeringWorker(Worker):  # type: ignore[misc]
    """The platform's worker; the model is steered from the moment it is loaded, before it is compiled."""

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """Load the model as vLLM's worker does, and steer it."""
        super().load_model(*args, **kwargs)
        install(self.vllm_config, self.model_runner)


def install(config: Any, runner: Any) -> None:
    """Wrap the projections, and mark tokens before each forward pass.

    Raises:
        SteeringNotSupportedError: something here cannot be steered; the message names it.
    """
    _refuse_unsupported(config, runner)
    tables = {
        int(name.removeprefix("layer.")): table for name, table in load_file(config.additional_config[TABLE]).items()
    }
    model = runner.get_model()
    attention = {int(match[1]): module for name, module in model.named_modules() if (match := _ATTENTION.search(name))}
    device, heads = runner.device, config.model_config.get_num_attention_heads(config.parallel_config)
    rows = torch.zeros(runner.max_num_tokens, dtype=torch.long, device=device)
    for layer, table in tables.items():
        projection: Any = getattr(attention.get(layer), "o_proj", None)
        _check_projection(projection, layer, table.shape[1])
        shaped = table.view(len(table), heads, -1).to(device=device, dtype=config.model_config.dtype)
        attention[layer].o_proj = Steered(projection, shaped, rows)
    _mark_before(runner, rows, len(next(iter(tables.values()))))


def _mark_before(runner: Any, rows: Tensor, count: int) -> None:
    prepare = runner._prepare_inputs
    marks = np.zeros(len(rows), dtype=np.int64)

    def prepare_and_mark(scheduled: Any, tokens: np.ndarray) -> Any:
        batch = runner.input_batch
        marks[:] = 0
        end = 0
        for index, request in enumerate(batch.req_ids[: len(tokens)]):
            start, end = end, end + int(tokens[index])
            row, begin = wanted(runner.requests[request].sampling_params, count)
            marks[min(end, start + max(0, begin - int(batch.num_computed_tokens_cpu[index]))) : end] = row
        rows.copy_(torch.from_numpy(marks))
        return prepare(scheduled, tokens)

    runner._prepare_inputs = prepare_and_mark


def wanted(parameters: Any, count: int) -> tuple[int, int]:
    """A request's row and first token; row 0 of one that names none, or nothing that makes sense."""
    extra = getattr(parameters, "extra_args", None) or {}
    row, begin = extra.get(ROW, 0), extra.get(BEGIN, 0)
    if type(row) is not int or type(begin) is not int or not 0 <= row < count or begin < 0:
        return 0, 0
    return row, begin


def _refuse_unsupported(config: Any, runner: Any) -> None:
    parallel = config.parallel_config
    problems = {
        "its model runner is not V1's": getattr(config, "use_v2_model_runner", False)
        or not callable(getattr(runner, "_prepare_inputs", None)),
        "several processes share the model": parallel.tensor_parallel_size > 1 or parallel.pipeline_parallel_size > 1,
        "it speculates": config.speculative_config is not None,
        "it takes LoRA adapters": config.lora_config is not None,
        "it caches prefixes": config.cache_config.enable_prefix_caching,
    }
    if present := [problem for problem, here in problems.items() if here]:
        raise SteeringNotSupportedError(f"vLLM cannot steer as it is configured: {', '.join(present)}")


def _check_projection(projection: Any, layer: int, width: int) -> None:
    kind = type(getattr(projection, "quant_method", None)).__name__
    if type(projection).__name__ != "RowParallelLinear" or kind != "UnquantizedLinearMethod":
        raise SteeringNotSupportedError(f"layer {layer} has no plain o_proj to steer, or a quantised one")
    if projection.input_size != width:
        raise SteeringNotSupportedError(f"o_proj of layer {layer} takes {projection.input_size} numbers, not {width}")
