"""vLLM with steered heads against transformers with equation 4: every log-probability, in every kind of batch."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch
from safetensors.torch import save_file

from examples.tiny_model import make_tiny_model
from research.restore.model import SteeredModel
from sanitization.restore.steering import BEGIN, ROW, TABLE

pytestmark = [pytest.mark.vllm, pytest.mark.lengthy]

ROWS, TOKENS = 6, 30
LAYERS = (0, 1)
WORDS = ("the", "parcel", "never", "came", "please", "refund", "my", "invoice", "lamp", "basil", "courier", "today")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"))


@pytest.fixture(scope="module")
def table() -> torch.Tensor:
    """Vectors of each layer, (2, 6, 2 heads, 32); row 0 is zeros, and only some heads are steered."""
    drawn = 0.7 * torch.randn(len(LAYERS), ROWS, 2, 32, generator=torch.Generator().manual_seed(2))
    drawn[:, 0] = 0
    drawn[0, :, 1] = 0
    return drawn


@pytest.fixture(scope="module")
def llm(folder: Path, table: torch.Tensor, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """Compiled; prompts are cut in pieces of 48 tokens, and memory is too short for all of them at once."""
    os.environ |= {"VLLM_NO_USAGE_STATS": "1", "VLLM_CPU_KVCACHE_SPACE": "1", "VLLM_WORKER_MULTIPROC_METHOD": "spawn"}
    from vllm import LLM

    file = tmp_path_factory.mktemp("table") / "table.safetensors"
    save_file({f"layer.{layer}": table[layer].flatten(1).contiguous() for layer in LAYERS}, file)
    one = LLM(
        str(folder),
        dtype="float32",
        max_model_len=256,
        enable_prefix_caching=False,
        worker_cls="sanitization.restore.engine_worker.SteeringWorker",
        additional_config={TABLE: str(file)},
        enable_chunked_prefill=True,
        max_num_batched_tokens=48,
        max_num_seqs=16,
        block_size=32,
        num_gpu_blocks_override=10,
        disable_log_stats=False,
    )
    yield one
    one.llm_engine.engine_core.shutdown()


def prompts() -> list[str]:
    """Short prompts, and some longer than a piece."""
    return [" ".join(WORDS[(i * 5 + j) % len(WORDS)] for j in range(3 + 9 * (i % 8))) for i in range(24)]


def extras() -> list[dict[str, Any] | None]:
    """Requests of which two in three are steered, by different rows."""
    return [None if i % 3 == 0 else {ROW: 1 + i % (ROWS - 1)} for i in range(24)]


def ask(llm: Any, texts: list[str], extras: list[dict[str, Any] | None]) -> list[tuple[list[int], list[float]]]:
    """Greedy tokens of each prompt, and their log-probabilities."""
    from vllm import SamplingParams

    tokenizer = llm.get_tokenizer()
    parameters = []
    for text, extra in zip(texts, extras, strict=True):
        begin = len(tokenizer(text).input_ids) - 1
        carried = extra and ({BEGIN: begin} | extra)
        parameters.append(
            SamplingParams(temperature=0, max_tokens=TOKENS, logprobs=1, ignore_eos=True, extra_args=carried)
        )
    said = [result.outputs[0] for result in llm.generate(texts, parameters, use_tqdm=False)]
    return [
        (list(one.token_ids), [place[token].logprob for place, token in zip(one.logprobs, one.token_ids, strict=True)])
        for one in said
    ]


def expected(folder: Path, text: str, row: torch.Tensor | None, tokens: list[int]) -> list[float]:
    """Log-probabilities of the tokens after the text, by transformers, from one forward pass without a cache."""
    model = SteeredModel(folder, "{text}", ["a", "b"])
    prompt = model._tokens([text])[0]
    heads = [(layer, head) for layer in LAYERS for head in range(2)]
    vectors = None if row is None else row.reshape(1, 4, 32)
    with torch.inference_mode(), model._steered(vectors, heads, torch.tensor([len(prompt) - 1])):
        said = model._forward([prompt + tokens], len(prompt) - 1 + torch.arange(len(tokens))[None])[0].log_softmax(-1)
    return said[range(len(tokens)), tokens].tolist()


def test_mixed_batches_equal_transformers(llm: Any, folder: Path, table: torch.Tensor) -> None:
    worst, moved = 0.0, 0
    for text, extra, (tokens, found) in zip(prompts(), extras(), ask(llm, prompts(), extras()), strict=True):
        row = table[:, extra[ROW]] if extra else None
        right = expected(folder, text, row, tokens)
        worst = max(worst, *(abs(a - b) for a, b in zip(found, right, strict=True)))
        plain = expected(folder, text, None, tokens)
        moved += row is not None and max(abs(a - b) for a, b in zip(found, plain, strict=True)) > 1e-2
    assert worst < 2e-5
    assert moved == 16  # steering changes every request that asks for it
    (preempted,) = [one.value for one in llm.get_metrics() if one.name == "vllm:num_preemptions"]
    assert preempted > 0  # and prompts that were computed twice are among them


def test_nonsense_steers_nothing_and_harms_no_other_request(llm: Any) -> None:
    text, good = prompts()[4], {ROW: 3}
    before = ask(llm, [text, text], [None, good])
    poison: list[dict[str, Any] | None] = [
        {ROW: value} for value in (ROWS, -1, 2**40, "3", b"7 bytes", 1.0, None, [1], True)
    ] + [{ROW: 3, BEGIN: value} for value in (-1, "0", None, 2.0)]
    after = ask(llm, [text] * (2 + len(poison)), [None, good, *poison])
    for (tokens, found), (right, numbers) in zip(after, [*before, *([before[0]] * len(poison))], strict=True):
        assert tokens == right
        assert found == pytest.approx(numbers, abs=1e-5)
    assert before[0][1] != before[1][1]


def test_the_second_turn_is_as_if_nothing_came_before(llm: Any, folder: Path, table: torch.Tensor) -> None:
    """A longer prompt that begins with a steered one and its answer: nothing of it was kept."""
    text, extra = " ".join(WORDS * 3), {ROW: 2}
    ((tokens, _),) = ask(llm, [text], [extra])
    longer = f"{text} {llm.get_tokenizer().decode(tokens)} {text}"
    ((more, found),) = ask(llm, [longer], [extra])
    assert found == pytest.approx(expected(folder, longer, table[:, 2], more), abs=1e-5)
    ((more, found),) = ask(llm, [longer], [{ROW: 4}])
    assert found == pytest.approx(expected(folder, longer, table[:, 4], more), abs=1e-5)


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"use_v2_model_runner": True}, "runner"),
        ({"parallel_config.tensor_parallel_size": 2}, "several processes"),
        ({"parallel_config.pipeline_parallel_size": 2}, "several processes"),
        ({"speculative_config": object()}, "speculates"),
        ({"lora_config": object()}, "LoRA"),
        ({"cache_config.enable_prefix_caching": True}, "caches prefixes"),
    ],
)
def test_what_is_not_supported_is_refused(changed: dict[str, Any], why: str) -> None:
    from sanitization.restore.engine_worker import SteeringNotSupportedError, _check_projection, _refuse_unsupported

    supported = {
        "use_v2_model_runner": False,
        "parallel_config.tensor_parallel_size": 1,
        "parallel_config.pipeline_parallel_size": 1,
        "speculative_config": None,
        "lora_config": None,
        "cache_config.enable_prefix_caching": False,
    }
    _refuse_unsupported(Mock(**supported), Mock())
    with pytest.raises(SteeringNotSupportedError, match=why):
        _refuse_unsupported(Mock(**supported | changed), Mock())
    with pytest.raises(SteeringNotSupportedError, match="quantised"):
        _check_projection(torch.nn.Linear(4, 4), 0, 4)
