"""Isolation in vLLM: how one prompt is kept from changing another's output, and when it refuses to start without.

A GPU's fastest kernels split their sums by the shape of the whole batch, so a prompt's numbers depend on what shares
its batch, and a person's exemplar would change more contributions than its own slot's. vLLM's batch-invariant kernels
cost speed and remove that. ``benchmarks/isolation.py`` measures whether it holds on a machine.
"""

import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch

from service.engines.configs import VllmConfig
from service.engines.embedding.embedder import cores
from service.engines.errors import EngineUnavailableError
from service.engines.vllm.memory import require_memory

_LOGGING = Path(__file__).with_name("logging.json")
_BATCH_INVARIANT = "VLLM_BATCH_INVARIANT"
_BINDING = "VLLM_CPU_OMP_THREADS_BIND"
_ONE_PROCESS = "vllm.v1.executor.uniproc_executor.UniProcExecutor"
_WORKER = "service.engines.vllm.{}_worker.Extension"


@dataclass(frozen=True)
class Isolation:
    """The mode vLLM runs with.

    Attributes:
        sentence: description for people.
        arguments: further engine arguments of vLLM.
        longest: tokens of a prompt and its answer up to which it holds, if fewer than the model can take.
    """

    sentence: str
    arguments: dict[str, Any] = field(default_factory=dict)
    longest: int = sys.maxsize


def isolate(config: VllmConfig) -> Isolation:
    """Choose the mode, and set the environment that vLLM reads when it is imported.

    Raises:
        service.engines.errors.EngineUnavailableError: strict isolation was requested and is impossible here.
    """
    os.environ["VLLM_NO_USAGE_STATS"] = "1"
    # At a crash vLLM would log every running prompt's length.
    os.environ["VLLM_LOGGING_CONFIG_PATH"] = str(_LOGGING)
    # A replica has threads, and a forked child would inherit their locks.
    os.environ["VLLM_WORKER_MULTIPROC_METHOD"] = "spawn"
    if not torch.cuda.is_available():
        return _on_cpu(config)
    os.environ["VLLM_USE_V2_MODEL_RUNNER"] = "0"  # CPUs have the first one, on which all of this is tested
    if config.isolation == "best_effort":
        return Isolation(
            "best effort: what shares a prompt's batch on the GPU may change its output in the last digits, and now "
            "and then a token; the guarantee assumes that it does not"
        )
    capability = torch.cuda.get_device_capability()
    if capability < (8, 0):
        raise EngineUnavailableError(
            f"this GPU (compute capability {capability[0]}.{capability[1]}) has no batch-invariant kernels, so slots "
            "could influence each other: use one of compute capability 8.0 or more, or write `isolation: best_effort` "
            "into the engine's config to accept that"
        )
    os.environ[_BATCH_INVARIANT] = "1"
    # FlashInfer's sampler gives other log-probabilities at some batch sizes (vLLM issue 51187, seen on 0.26).
    os.environ["VLLM_USE_FLASHINFER_SAMPLER"] = "0"
    # FlashAttention 3, the default on Hopper, was seen to break the invariance.
    attention = {"attention_config": {"flash_attn_version": 2}} if capability[0] == 9 else {}
    return Isolation(
        "strict: batch-invariant kernels compute each prompt the same whatever shares its batch",
        {"worker_extension_cls": _WORKER.format("gpu"), **attention},
    )


def _on_cpu(config: VllmConfig) -> Isolation:
    if os.environ.get(_BATCH_INVARIANT, "0") != "0":
        raise EngineUnavailableError(f"unset {_BATCH_INVARIANT}: vLLM on a CPU dies of it at its first prompt")
    has = torch.cpu.get_capabilities()
    # Without AVX512 oneDNN has no products of 16 bits: with 32 SmolLM2 answered five times as fast.
    wide = has.get("avx2") and not has.get("avx512_f") and config.dtype == "auto"
    weights = sum(file.stat().st_size for file in Path(config.model).glob("*.safetensors"))
    needed = (config.kv_cache_gib << 30) + weights * (2 if wide else 1)
    require_memory(needed, f"load {config.model} with kv_cache_gib: {config.kv_cache_gib}")
    os.environ["VLLM_CPU_KVCACHE_SPACE"] = str(config.kv_cache_gib)
    # Left alone, vLLM keeps a core of each x86 machine idle: half of a machine with two. An operator's choice wins; the
    # number of threads alone would not show it, since Ray sets that in every replica.
    if _BINDING not in os.environ:
        os.environ[_BINDING] = "nobind"
        os.environ["OMP_NUM_THREADS"] = str(max(1, cores() // config.tensor_parallel_size))
    # Threads that wait for each other would spin, and whatever else runs on their cores would hold them up twice.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    eager = config.enforce_eager is not False
    if eager:  # vLLM would still compile a few small functions at its first prompts, and die where there is no compiler
        os.environ["TORCH_COMPILE_DISABLE"] = "1"
    one_process = config.tensor_parallel_size == 1 and os.environ[_BINDING] == "nobind"  # it would bind no threads
    # Attention over a long prompt would be split among threads that a small batch leaves idle: seen with two threads.
    os.environ["VLLM_CPU_ATTN_SPLIT_KV"] = "0"
    # oneDNN's AMX kernels sum one row otherwise than many: log-probabilities were seen to depend on the batch.
    os.environ["ONEDNN_MAX_CPU_ISA"] = "AVX512_CORE_BF16"
    return Isolation(
        "on the CPU each prompt was measured to give the same bits whatever shares its batch",
        # A prompt cut in pieces to fill a batch up depends on the others' lengths; and a sampled one kills the engine.
        # And the cache keeps beginnings of prompts in whole pieces: of its usual 128 tokens too few are whole. vLLM's
        # own choice, a process for the scheduler and one for the model, makes each spin while it waits for the other,
        # on cores that the model needs.
        {
            "enable_chunked_prefill": False,
            "block_size": 32,
            "worker_extension_cls": _WORKER.format("cpu"),
            "enforce_eager": eager,
            **({"dtype": "float32"} if wide else {}),
            **({"distributed_executor_backend": _ONE_PROCESS} if one_process else {}),
        },
        longest=_longest_whole(has),
    )


def _longest_whole(has: Mapping[str, Any]) -> int:
    """Tokens that vLLM's attention on a CPU never cuts, as :mod:`.cpu_worker` has it compute.

    Its tile for a few rows fits into half of a core's second-level cache: 8 bytes for each of a head's numbers, at most
    256 of them, and 4 for each token (csrc/cpu/cpu_attn_impl.hpp, ``calcu_tile_size_with_constant_q``).
    """
    rows = 32 if has.get("amx_tile") else 16
    cache = (has.get("l2_cache_size") or 256 * 1024) // 2
    return (cache - rows * 256 * 8) // (rows * 4) // 32 * 32
