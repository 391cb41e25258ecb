"""The true ε of a channel: enumerated, not derived.

True ε = max over outputs y of ln(max_x P(y|x) / min_x P(y|x)); infinite if y can come from one input and not from
another. For a finite channel this is the definition of local differential privacy itself.
"""

import math
from collections.abc import Sequence

import numpy as np
from pydantic.dataclasses import dataclass

from sanitization.channel import Channel
from sanitization.vocabulary import FloatArray, IntArray

_BLOCK = 512
_ROW_ERROR = 1e-9
QUANTILES = (0.0, 0.25, 0.5, 0.75, 1.0)


class RefusedChannelError(ValueError):
    """A channel whose true ε is larger than what it may be."""


class BrokenChannelError(ValueError):
    """Rows that are not probabilities."""


@dataclass(frozen=True)
class Audit:
    """The findings of an audit; also read back from JSON."""

    epsilon: float
    """The true ε over all inputs looked at."""
    worst_output: str
    worst_pair: tuple[str, str]
    """The inputs from which the worst output is most and least likely."""
    per_output: tuple[float, ...]
    """Quantiles 0, ¼, ½, ¾, 1 of every output's own ε."""
    zero_outputs: int
    """Outputs that can come from some inputs and not from others."""
    inputs: int
    """Number of inputs audited. With fewer than ``of``, ε is a lower bound."""
    of: int
    by_class: dict[str, float]
    """The true ε within each declared class of inputs. A class is public; inputs of one class look alike."""

    @property
    def complete(self) -> bool:
        """Whether all inputs were looked at."""
        return self.inputs == self.of


class Extremes:
    """The largest and the smallest probability of each output so far, and which inputs have them."""

    def __init__(self, outputs: int) -> None:
        self.highest = np.zeros(outputs)
        self.lowest = np.full(outputs, np.inf)
        self.inputs = np.zeros((2, outputs), dtype=np.int64)
        """Inputs from which each output is most likely, and least likely."""

    def add(self, x: IntArray, law: FloatArray) -> None:
        """Take the rows of the inputs x into account."""
        columns = np.arange(law.shape[1])
        for index, (extreme, at) in enumerate(((self.highest, law.argmax(axis=0)), (self.lowest, law.argmin(axis=0)))):
            value = law[at, columns]
            better = value > extreme if index == 0 else value < extreme
            extreme[better] = value[better]
            self.inputs[index, better] = x[at[better]]

    def losses(self) -> FloatArray:
        """Every output's own ε; 0 for one that never comes out."""
        with np.errstate(divide="ignore", invalid="ignore"):
            loss: FloatArray = np.log(self.highest) - np.log(self.lowest)
        return np.where(self.highest > 0, loss, 0)


def audit(channel: Channel, *, classes: Sequence[str] | None = None, inputs: IntArray | None = None) -> Audit:
    """Enumerate a channel.

    Args:
        channel: any.
        classes: the declared class of each input of the channel; None: all are of one.
        inputs: look at these only. The ε found is then a lower bound.

    Raises:
        BrokenChannelError: a row has a negative number, or does not sum to 1.
    """
    x = np.arange(len(channel.inputs)) if inputs is None else inputs
    names = np.array(["" for _ in channel.inputs] if classes is None else classes)
    whole = Extremes(len(channel.outputs))
    parts = {str(name): Extremes(len(channel.outputs)) for name in np.unique(names[x])}
    for start in range(0, len(x), _BLOCK):
        block = x[start : start + _BLOCK]
        law = channel.rows(block)
        _check(channel, block, law)
        whole.add(block, law)
        if classes is not None:
            for name, part in parts.items():
                if (of := names[block] == name).any():
                    part.add(block[of], law[of])
    losses = whole.losses()
    worst = int(losses.argmax())
    most, least = whole.inputs[:, worst]
    finite = np.minimum(losses, np.finfo(float).max)
    quantiles = (float(q) for q in np.quantile(finite, QUANTILES, method="inverted_cdf"))
    epsilon = float(losses[worst])
    return Audit(
        epsilon=epsilon,
        worst_output=channel.outputs[worst],
        worst_pair=(channel.inputs[most], channel.inputs[least]),
        per_output=tuple(q if q < np.finfo(float).max else math.inf for q in quantiles),
        zero_outputs=int(np.isinf(losses).sum()),
        inputs=len(x),
        of=len(channel.inputs),
        by_class={"": epsilon} if classes is None else {k: float(v.losses().max()) for k, v in parts.items()},
    )


def admit(audited: Audit, epsilon: float) -> float:
    """The ε to announce, if a channel with this audit may be served at ``epsilon``.

    Raises:
        RefusedChannelError: not all inputs were looked at, or the true ε is infinite or too large.
    """
    if not audited.complete:
        raise RefusedChannelError(f"only {audited.inputs} of {audited.of} inputs were audited: refused")
    if not audited.epsilon <= epsilon:
        most, least = audited.worst_pair
        size = "infinite" if math.isinf(audited.epsilon) else f"{audited.epsilon:.4g}"
        told = f"{audited.worst_output!r} distinguishes {most!r} from {least!r}"
        raise RefusedChannelError(f"the true ε is {size}, more than the {epsilon:g} asked for: {told}")
    return audited.epsilon


def _check(channel: Channel, x: IntArray, law: FloatArray) -> None:
    if not (law >= 0).all():
        raise BrokenChannelError("a probability is negative or no number")
    wrong = np.abs(law.sum(axis=1) - 1) > _ROW_ERROR
    if wrong.any():
        raise BrokenChannelError(f"the row of {channel.inputs[int(x[wrong][0])]!r} does not sum to 1")
