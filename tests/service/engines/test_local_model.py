"""A language model in this process: a tiny one with random weights, and SmolLM2."""

from pathlib import Path

import numpy as np
import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast

from sanitization.published.dp_prompt import DpPrompt, clipped_law
from service.engines.local_model import LocalModel, LocalModelError
from tests.laws import ALPHA, p_value

pytestmark = pytest.mark.model
TOKENS = 8


@pytest.fixture(scope="module")
def llama(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model of eight tokens, the last of which ends texts, and whose own settings ask for nucleus sampling."""
    tokenizer = Tokenizer(models.WordLevel({f"t{at}": at for at in range(TOKENS - 1)} | {"end": 7}, "t0"))
    tokenizer.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    config = LlamaConfig(
        vocab_size=TOKENS,
        hidden_size=16,
        intermediate_size=32,
        num_hidden_layers=1,
        num_attention_heads=2,
        max_position_embeddings=64,
        initializer_range=1.0,
        bos_token_id=None,
        eos_token_id=7,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("llama")
    model = LlamaForCausalLM(config)
    model.generation_config.update(do_sample=True, top_k=2, top_p=0.5)
    model.save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="end").save_pretrained(folder)
    return folder


def next_logits(folder: Path, *tokens: int) -> torch.Tensor:
    model = LlamaForCausalLM.from_pretrained(folder, dtype=torch.float32)
    with torch.inference_mode():
        return model(torch.tensor([tokens])).logits[0, -1]


def test_a_token_is_drawn_by_the_clipped_law(llama: Path) -> None:
    """All tokens are possible, whatever the model's own settings ask for."""
    logits = next_logits(llama, 1, 2).double().numpy()
    law = clipped_law(logits, -1, 1, 2.0)
    model = LocalModel(str(llama))
    drawn = model.draw_clipped(["t1 t2"] * 800, most=1, low=-1, high=1, temperature=2.0)
    counts = np.array([*(drawn.count(f"t{at}") for at in range(TOKENS - 1)), drawn.count("")])
    assert sum(counts) == 800
    assert p_value(counts, 800, law) > ALPHA
    assert p_value(counts, 800, clipped_law(logits, -3, 3, 2.0)) < ALPHA, "another limit is noticed"


def test_the_draws_differ_from_process_to_process(llama: Path) -> None:
    """Torch begins with one seed everywhere; a draw that an attacker can repeat is not private."""
    texts = []
    for _ in range(2):
        torch.manual_seed(0)
        texts.append(LocalModel(str(llama)).draw_clipped(["t1"] * 4, most=30, low=0, high=1, temperature=1.0))
    assert texts[0] != texts[1]


def test_prompts_of_different_lengths(llama: Path) -> None:
    model = LocalModel(str(llama), most_tokens=5, temperature=0)
    prompts = ["t1", "t3 t4 t5 t1 t2", "t6 t2"]
    assert model.write(prompts) == [model(prompt) for prompt in prompts]
    assert model("t1 t2").split()[:1] in ([], [f"t{int(next_logits(llama, 1, 2).argmax())}"])


def test_dp_prompt_with_a_real_model(llama: Path) -> None:
    mechanism = DpPrompt(LocalModel(str(llama)), 0, 1, 1.0, 6)
    (text,) = mechanism.paraphrase(["t1 t2"])
    assert len(text.split()) <= 6
    assert 6 < mechanism.true_epsilon < mechanism.claimed == 12


def test_what_cannot_be_loaded_or_is_too_long(llama: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="takes 64"):
        LocalModel(str(llama), most_tokens=60)("t1 t2 t3 t4 t5")
    with pytest.raises(LocalModelError, match="no folder"):
        LocalModel(str(tmp_path / "missing")).load()
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(LocalModelError, match="does not hold"):
        LocalModel(str(tmp_path)).load()


def test_smollm2() -> None:
    model = LocalModel("smollm2", most_tokens=12, temperature=0)
    assert model.tokens == 49_152
    assert "Paris" in model("What is the capital of France? Answer in one word.")
