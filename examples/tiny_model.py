"""A tiny language model with random weights: a real Llama that any machine can make, load and run in seconds.

It knows nothing. It stands where a downloaded model would, so that everything around a model can be seen to work.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
from transformers import LlamaConfig, LlamaForCausalLM, PreTrainedTokenizerFast
from transformers.utils.logging import disable_progress_bar

CHAT_TEMPLATE = (
    "{% for message in messages %}<|{{ message.role }}|>\n{{ message.content }}<|end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|assistant|>\n{% endif %}"
)
_TICKETS = Path(__file__).parent / "support" / "tickets.jsonl"


def make_tiny_model(
    folder: Path,
    *,
    chat: bool = False,
    hidden: int = 64,
    layers: int = 2,
    context: int = 4096,
    seed: int = 0,
    weights: bool = True,
) -> Path:
    """Write configuration, tokenizer and weights, as `transformers` does for any model.

    A hidden size of 4096 with 32 layers has the shape of a model of 7 billion parameters.

    Args:
        folder: folder to write to.
        chat: whether its tokenizer has a chat template.
        hidden: width of a layer, a multiple of 32, or of 512 from 1024 on.
        layers: number of layers.
        context: longest text, in tokens.
        seed: seed of the weights.
        weights: whether to write them; vLLM's ``load_format: dummy`` makes up its own.
    """
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    special = ["<|begin|>", "<|end|>", "<|user|>", "<|assistant|>", "<|system|>"]
    trainer = trainers.BpeTrainer(
        vocab_size=2048,
        special_tokens=special,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    tokenizer.train_from_iterator(_texts(), trainer)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, bos_token="<|begin|>", eos_token="<|end|>")
    if chat:
        fast.chat_template = CHAT_TEMPLATE
    fast.save_pretrained(folder)
    large = hidden >= 1024
    config = LlamaConfig(
        vocab_size=len(fast),
        hidden_size=hidden,
        intermediate_size=hidden * (7 if large else 4) // 2,
        num_hidden_layers=layers,
        num_attention_heads=hidden // (128 if large else 32),
        num_key_value_heads=hidden // (512 if large else 32),
        max_position_embeddings=context,
        # Wide enough that its opinions differ from text to text: a default Llama's are all but uniform.
        initializer_range=0.2,
        bos_token_id=fast.bos_token_id,
        eos_token_id=fast.eos_token_id,
        architectures=["LlamaForCausalLM"],
    )
    if weights:
        torch.manual_seed(seed)
        disable_progress_bar()  # of a moment
        LlamaForCausalLM(config).to(torch.float32).save_pretrained(folder)
    else:
        config.save_pretrained(folder)
    return folder


def _texts() -> Iterator[str]:
    for line in _TICKETS.read_text(encoding="utf-8").splitlines():
        fields = json.loads(line)
        yield f"Ticket: {fields['text']}\nTeam: {fields['team']}\n\nReply: {fields['reply']}"


if __name__ == "__main__":
    print(make_tiny_model(Path(sys.argv[1]), chat="--chat" in sys.argv[2:]))
