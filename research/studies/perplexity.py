"""Surprise of texts to a language model."""

from __future__ import annotations

from collections.abc import Iterable

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from service.engines.vllm.model_folder import model_folder


def nats(model: str, texts: Iterable[tuple[str, str]]) -> list[float]:
    """Mean of the negative log-probabilities of each text's tokens.

    Args:
        model: model as in an engine's configuration.
        texts: prompts, and the text that follows each, not empty.
    """
    folder = model_folder(model, exact=True)
    tokenizer, network = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    values = []
    for prompt, text in texts:
        tokens, read = torch.tensor([tokenizer.encode(f"{prompt} {text}")]), len(tokenizer.encode(prompt))
        with torch.inference_mode():
            scores = network(tokens).logits[0, read - 1 : -1].float().log_softmax(-1)
        values.append(-float(scores.gather(1, tokens[0, read:, None]).mean()))
    return values
