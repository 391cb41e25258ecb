"""How fast vLLM writes with steered heads, against vLLM without: tokens a second, as ratios (PrivacyRestore, Table 16).

Two engines stand side by side, vLLM's own worker and the one that steers, and take turns with the same prompts: the
plain engine, the steering one asked for nothing, and the steering one with a row of its own for each request. Vectors
are random: their values make no difference to the time.

    python benchmarks/steering.py                        # a tiny model, here
    python benchmarks/steering.py --quick                # asked less
    python benchmarks/steering.py --model smollm2        # real weights
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[1]))

import numpy as np
import safetensors.numpy

from examples.tiny_model import make_tiny_model
from sanitization.restore.steering import BEGIN, ROW, TABLE

ROWS = 17
"""Profiles, and the row that steers nothing."""
PROMPT = "Known: smoker. Reports: ___. The parcel never came, please refund my invoice. Illness number {number}:"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--model", help="folder, or smollm2; a tiny model unless given")
    parser.add_argument("--requests", type=int, default=16)
    parser.add_argument("--tokens", type=int, default=64, help="written for each request")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--heads", type=int, default=12, help="number of heads that are steered")
    parser.add_argument("--quick", action="store_true")
    arguments = parser.parse_args()
    if arguments.quick:
        arguments.requests, arguments.tokens, arguments.rounds = 4, 8, 3
    os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn", "VLLM_LOGGING_LEVEL": "ERROR"}
    os.environ.setdefault("VLLM_CPU_KVCACHE_SPACE", "1")
    with tempfile.TemporaryDirectory() as temporary:
        measure(arguments, Path(temporary))


def measure(arguments: argparse.Namespace, folder: Path) -> None:
    """Print tokens a second of each way, and ratios to the plain engine's."""
    model = folder_of(arguments.model, folder)
    table = folder / "table.safetensors"
    safetensors.numpy.save_file(random_table(model, arguments.heads), table)
    steering = {
        "worker_cls": "sanitization.restore.engine_worker.SteeringWorker",
        "additional_config": {TABLE: str(table)},
    }
    engines = {"plain": opened(model), "steering": opened(model, **steering)}
    try:
        ways = {"plain": ("plain", False), "not steered": ("steering", False), "steered": ("steering", True)}
        speeds: dict[str, list[float]] = {name: [] for name in ways}
        for lap in range(1 + arguments.rounds):  # the first one warms up
            for name, (engine, steered) in ways.items():
                speed = written(engines[engine], arguments.requests, arguments.tokens, steered)
                if lap:
                    speeds[name].append(speed)
    finally:
        for engine in engines.values():
            engine.llm_engine.engine_core.shutdown()
    print(f"{arguments.requests} requests together, {arguments.tokens} tokens each, {arguments.rounds} rounds")
    plain = np.array(speeds["plain"])
    for name, found in speeds.items():
        ratios = np.array(found) / plain
        error = ratios.std(ddof=1) / np.sqrt(len(ratios))
        print(f"{name:12} {np.median(found):8.1f} tokens/s   ratio {ratios.mean():.3f} ± {error:.3f}")


def folder_of(model: str | None, folder: Path) -> str:
    if model is None:
        return str(make_tiny_model(folder / "model"))
    from service.engines.vllm.model_folder import model_folder

    return model_folder(model, exact=True)


def random_table(model: str, count: int) -> dict[str, np.ndarray]:
    """Vectors of some heads, one in each layer in turn, of a tenth of the norm of what they are added to."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model).get_text_config()
    heads = int(config.num_attention_heads)
    size = int(getattr(config, "head_dim", None) or config.hidden_size // heads)
    layers = int(config.num_hidden_layers)
    generator = np.random.default_rng(0)
    table: dict[str, np.ndarray] = {}
    for at in range(min(count, layers * heads)):
        rows = table.setdefault(f"layer.{at % layers}", np.zeros((ROWS, heads * size), np.float32))
        head = at // layers
        drawn = generator.standard_normal((ROWS - 1, size)).astype(np.float32)
        rows[1:, head * size : (head + 1) * size] = 0.1 * drawn / np.linalg.norm(drawn, axis=1, keepdims=True)
    return table


def opened(model: str, **other: Any) -> Any:
    from vllm import LLM

    return LLM(
        model,
        dtype="float32",
        max_model_len=512,
        enable_prefix_caching=False,
        enforce_eager=True,
        disable_log_stats=True,
        **other,
    )


def written(llm: Any, requests: int, tokens: int, steered: bool) -> float:
    """Tokens a second."""
    from vllm import SamplingParams

    parameters = [
        SamplingParams(
            temperature=0,
            max_tokens=tokens,
            ignore_eos=True,
            extra_args={ROW: 1 + number % (ROWS - 1), BEGIN: 10} if steered else None,
        )
        for number in range(requests)
    ]
    prompts = [PROMPT.format(number=number) for number in range(requests)]
    begun = time.perf_counter()
    results = llm.generate(prompts, parameters, use_tqdm=False)
    seconds = time.perf_counter() - begun
    return sum(len(result.outputs[0].token_ids) for result in results) / seconds


if __name__ == "__main__":
    main()
