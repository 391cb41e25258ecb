"""Weights of spans in the meta vector.

``equal`` counts every span once. ``attention`` counts the attention that its word pieces receive in the whole text,
from all word pieces and heads of MiniLM's last layer (equation 15 of the paper, with a smaller encoder). Both are
computed where the text is: nothing of them leaves.
"""

from collections import defaultdict
from collections.abc import Sequence
from typing import Literal

from sanitization.restore.encoder import attention
from sanitization.restore.spans import Redacted

Weighing = Literal["equal", "attention"]


def weights_of(redacted: Redacted, types: Sequence[str | None], how: Weighing) -> dict[str, float]:
    """The weight of each type of span in a redacted text; spans of no known type count for nothing.

    Args:
        redacted: the text.
        types: the type of each span.
        how: see above.

    Raises:
        sanitization.restore.encoder.EncoderMissingError: attention needs a model that is not installed.
    """
    weights = attention(redacted.whole, redacted.places) if how == "attention" else [1.0] * len(types)
    totals: dict[str, float] = defaultdict(float)
    for name, weight in zip(types, weights, strict=True):
        if name is not None:
            totals[name] += weight
    return totals
