"""all-MiniLM-L6-v2, written out: a BERT encoder of six layers whose output is the mean over a text's word pieces.

The same function as the model's own code in ``sentence-transformers`` (to 3e-7, measured), which takes six seconds to
import; multiplying by weights that oneDNN keeps packed is almost three times as fast as by plain ones. Architecture:
Devlin et al., "BERT", arXiv 1810.04805; Reimers, Gurevych, "Sentence-BERT", arXiv 1908.10084.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F  # noqa: N812  (its usual name)
from torch import Tensor

LAYERS = 6
HEADS = 12
WIDTH = 384
_EPSILON = 1e-12


@dataclass(frozen=True, slots=True)
class Pieces:
    """A text as the model reads it."""

    ids: Tensor
    """Word pieces with their two ends, int64 (p,)."""
    used: int | None = None
    """How many of them are the text's; the others are padding at the end. None: nothing is padded, nothing masked."""


class _Linear:
    """A linear layer; with ``gelu``, followed by that."""

    def __init__(self, weight: Tensor, bias: Tensor, *, gelu: bool = False):
        self._weight = torch.ops.mkldnn._reorder_linear_weight(weight, None)
        self._bias = bias
        self._after = "gelu" if gelu else "none"

    def __call__(self, x: Tensor) -> Tensor:
        y: Tensor = torch.ops.mkldnn._linear_pointwise(x, self._weight, self._bias, self._after, [], "none")
        return y


class _Norm:
    def __init__(self, weights: Mapping[str, Tensor], name: str):
        self._weight, self._bias = weights[f"{name}.LayerNorm.weight"], weights[f"{name}.LayerNorm.bias"]

    def __call__(self, x: Tensor) -> Tensor:
        return F.layer_norm(x, (WIDTH,), self._weight, self._bias, _EPSILON)


class _Layer:
    def __init__(self, weights: Mapping[str, Tensor], name: str):
        def stacked(kind: str) -> Tensor:
            return torch.cat([weights[f"{name}.attention.self.{part}.{kind}"] for part in ("query", "key", "value")])

        def linear(part: str, *, gelu: bool = False) -> _Linear:
            at = f"{name}.{part}.dense"
            return _Linear(weights[f"{at}.weight"], weights[f"{at}.bias"], gelu=gelu)

        self._project = _Linear(stacked("weight"), stacked("bias"))
        self._join = linear("attention.output")
        self._attention_norm = _Norm(weights, f"{name}.attention.output")
        self._widen = linear("intermediate", gelu=True)
        self._narrow = linear("output")
        self._norm = _Norm(weights, f"{name}.output")

    def __call__(self, texts: Sequence[Tensor], masks: Sequence[Tensor | None]) -> list[Tensor]:
        """Each weight is used for one text after the other while it is in the cache; no operation sees two texts."""
        projected = [self._project(text) for text in texts]
        joined = [self._join(_attention(vectors, mask)) for vectors, mask in zip(projected, masks, strict=True)]
        attended = [self._attention_norm(vectors.add_(text)) for vectors, text in zip(joined, texts, strict=True)]
        wide = [self._widen(vectors) for vectors in attended]
        narrow = [self._narrow(vectors) for vectors in wide]
        return [self._norm(vectors.add_(before)) for vectors, before in zip(narrow, attended, strict=True)]


def _attention(projected: Tensor, mask: Tensor | None) -> Tensor:
    pieces = len(projected)
    queries, keys, values = projected.view(1, pieces, 3, HEADS, WIDTH // HEADS).permute(2, 0, 3, 1, 4).unbind(0)
    heads = F.scaled_dot_product_attention(queries, keys, values, attn_mask=mask)
    return heads[0].transpose(0, 1).reshape(pieces, WIDTH)


class MiniLM:
    """The encoder.

    **A text's vector depends on that text only**: texts take turns at each layer, and every operation is on one of
    them, in one thread, with a shape that is the text's own. Nothing that another text brings along can reach it.

    Args:
        weights: as the model's ``model.safetensors`` names them.
    """

    def __init__(self, weights: Mapping[str, Tensor]):
        with torch.inference_mode():
            self._words = weights["embeddings.word_embeddings.weight"]
            first_segment = weights["embeddings.token_type_embeddings.weight"][0]
            self._places = weights["embeddings.position_embeddings.weight"] + first_segment
            self._norm = _Norm(weights, "embeddings")
            self._layers = [_Layer(weights, f"encoder.layer.{i}") for i in range(LAYERS)]

    def __call__(self, texts: Sequence[Pieces]) -> list[Tensor]:
        """Vectors of Euclidean norm 1, float32 (384,), one per text. Call it in a thread with one torch thread."""
        with torch.inference_mode():
            states = [self._norm(F.embedding(text.ids, self._words) + self._places[: len(text.ids)]) for text in texts]
            masks = [_mask(text) for text in texts]
            for layer in self._layers:
                states = layer(states, masks)
            means = [_shares(text) @ state for text, state in zip(texts, states, strict=True)]
            return [mean / torch.linalg.vector_norm(mean) for mean in means]


def _mask(text: Pieces) -> Tensor | None:
    """What attention adds to the scores of each piece. The same work however many are used."""
    if text.used is None:
        return None
    return torch.where(torch.arange(len(text.ids)) < text.used, 0.0, -torch.inf).view(1, 1, 1, -1)


def _shares(text: Pieces) -> Tensor:
    """What each piece counts for in the mean."""
    used = len(text.ids) if text.used is None else text.used
    return (torch.arange(len(text.ids)) < used) / used
