"""Which isolation vLLM gets on which hardware. There is no GPU here, so a test makes torch report one."""

from __future__ import annotations

import os

import pytest
import torch

from service.engines.configs import VllmConfig
from service.engines.errors import EngineUnavailableError
from service.engines.vllm.isolation import isolate

pytestmark = pytest.mark.model

STRICT = VllmConfig(name="vllm", model="m")
BEST_EFFORT = VllmConfig(name="vllm", model="m", isolation="best_effort")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "environ", {name: os.environ[name] for name in os.environ if "VLLM" not in name})


def gpu(monkeypatch: pytest.MonkeyPatch, capability: tuple[int, int]) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: capability)


@pytest.mark.parametrize("capability", [(8, 0), (8, 9), (9, 0), (10, 0)])
def test_strict_on_a_gpu_is_batch_invariant(monkeypatch, capability) -> None:
    gpu(monkeypatch, capability)
    isolation = isolate(STRICT)
    worker = {"worker_extension_cls": "service.engines.vllm.gpu_worker.Extension"}
    on_hopper = {"attention_config": {"flash_attn_version": 2}}
    assert isolation.arguments == (worker | on_hopper if capability == (9, 0) else worker)
    assert isolation.sentence.startswith("strict")
    assert os.environ["VLLM_BATCH_INVARIANT"] == "1"
    assert os.environ["VLLM_USE_FLASHINFER_SAMPLER"] == "0"


def test_strict_is_refused_where_it_cannot_be_had(monkeypatch) -> None:
    gpu(monkeypatch, (7, 5))
    with pytest.raises(EngineUnavailableError, match=r"7\.5.*isolation: best_effort"):
        isolate(STRICT)


def test_best_effort_must_be_written_and_is_described_as_such(monkeypatch) -> None:
    gpu(monkeypatch, (7, 5))
    isolation = isolate(BEST_EFFORT)
    assert isolation.sentence.startswith("best effort")
    assert isolation.arguments == {}
    assert "VLLM_BATCH_INVARIANT" not in os.environ


def test_on_a_cpu_prompts_are_computed_whole() -> None:
    assert isolate(STRICT).arguments["enable_chunked_prefill"] is False
    assert "VLLM_BATCH_INVARIANT" not in os.environ
    assert os.environ["ONEDNN_MAX_CPU_ISA"] == "AVX512_CORE_BF16"
    assert os.environ["VLLM_CPU_ATTN_SPLIT_KV"] == "0"
    assert os.environ["VLLM_NO_USAGE_STATS"] == "1"


def test_on_a_cpu_every_core_works(monkeypatch) -> None:
    """Alone, vLLM would leave one core idle, and Ray allows each replica one thread."""
    monkeypatch.setattr(os, "sched_getaffinity", lambda _: range(6))
    for parallel, threads in ((1, "6"), (4, "1"), (8, "1")):
        monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "1")
        arguments = isolate(STRICT.model_copy(update={"tensor_parallel_size": parallel})).arguments
        assert ("distributed_executor_backend" in arguments) == (parallel == 1)
        assert os.environ["OMP_NUM_THREADS"] == threads
        assert os.environ.pop("VLLM_CPU_OMP_THREADS_BIND") == "nobind"


def test_an_operators_binding_of_threads_is_left_alone(monkeypatch) -> None:
    monkeypatch.setitem(os.environ, "VLLM_CPU_OMP_THREADS_BIND", "0-2")
    monkeypatch.setitem(os.environ, "OMP_NUM_THREADS", "3")
    arguments = isolate(STRICT).arguments
    assert "distributed_executor_backend" not in arguments  # one process of vLLM's would not bind them
    assert (os.environ["VLLM_CPU_OMP_THREADS_BIND"], os.environ["OMP_NUM_THREADS"]) == ("0-2", "3")


def test_on_a_cpu_nothing_is_compiled_unless_the_config_allows_it() -> None:
    for given, eager in ((None, True), (True, True), (False, False)):
        config = STRICT.model_copy(update={"enforce_eager": given})
        assert isolate(config).arguments["enforce_eager"] is eager
        assert (os.environ.pop("TORCH_COMPILE_DISABLE", "") == "1") is eager


@pytest.mark.parametrize(("flags", "wide"), [("avx2", True), ("avx2 avx512_f", False), ("neon", False)])
def test_without_avx512_products_are_of_32_bits(monkeypatch, flags, wide) -> None:
    monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: dict.fromkeys(flags.split(), True))
    assert isolate(STRICT).arguments.get("dtype") == ("float32" if wide else None)
    assert "dtype" not in isolate(STRICT.model_copy(update={"dtype": "bfloat16"})).arguments  # the operator's choice


def test_prompts_are_no_longer_than_attention_leaves_whole(monkeypatch) -> None:
    for size, amx, longest in ((512 << 10, False, 3584), (2 << 20, True, 7680), (0, False, 1536)):  # 0: unknown
        monkeypatch.setattr(torch.cpu, "get_capabilities", lambda: {"l2_cache_size": size, "amx_tile": amx})  # noqa: B023
        assert isolate(STRICT).longest == longest


def test_a_cache_larger_than_the_memory_is_refused() -> None:
    with pytest.raises(EngineUnavailableError, match="kv_cache_gib: 1000000"):
        isolate(STRICT.model_copy(update={"kv_cache_gib": 1_000_000}))
