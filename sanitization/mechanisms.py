"""All mechanisms by name, corrected, to be drawn from.

A corrected channel is the published one with ``nominal`` ε, mixed as little as the true ε asked for allows
(:mod:`sanitization.mixing`). Two differ in more: Cape gets a normaliser that is the same for all words, DYNTEXT a
density without noise. The nominal ε is free, so it is chosen, on public words, to cost least.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Literal

import numpy as np

from sanitization import uniform
from sanitization.audit import Audit, admit, audit
from sanitization.cache import Kept, remember
from sanitization.channel import Channel, Sampler
from sanitization.medoids import Medoids, medoids
from sanitization.mixing import least_mixing
from sanitization.published.cape import RankedCape
from sanitization.published.custext import CusText
from sanitization.published.dyntext import DynText
from sanitization.published.rantext import RanText
from sanitization.published.santext import SanText, SanTextPlus
from sanitization.response import LARGEST_EPSILON, RandomisedResponse
from sanitization.table import TableError, open_table
from sanitization.vocabulary import LARGEST_BYTES, FloatArray, IntArray, Vocabulary, blocks, distances

Embed = Callable[[Sequence[str]], FloatArray]
Make = Callable[[Vocabulary, float], Channel]
MechanismName = Literal["medoid_rr", "nearest_rr", "santext", "santext_plus", "custext", "rantext", "dyntext", "cape"]
"""The mechanisms that may be served, which :data:`RESPONSES` and :data:`CORRECTED` list."""

_NOMINALS = [2 ** (k / 2) for k in range(-2, 13)]  # ½ to 64
_LOOKED_AT = 96
MARGIN = 1e-5
"""Rounding to 2⁻⁶² moves a probability of 10⁻¹³ by 2·10⁻⁶ of it; the audit then still finds no more than was asked."""


CORRECTED: Mapping[str, Make] = {
    "santext": SanText,
    "santext_plus": SanTextPlus,
    "custext": CusText,
    "rantext": RanText,
    "dyntext": partial(DynText, density_epsilon=None),
    "cape": RankedCape,
}
"""The rows that are mixed, of each published mechanism; vocabulary and nominal ε in."""
RESPONSES = ("nearest_rr", "medoid_rr")
SMALLEST_EPSILON = 0.001


@dataclass(frozen=True)
class Served:
    """A channel that may be drawn from."""

    channel: Sampler
    audit: Audit
    """Audit of this very channel. Its ε is the one to announce."""
    parameters: str
    """Chosen parameters, in words."""
    vocabulary: Vocabulary

    def replace(self, words: Sequence[str], embed: Embed | None = None) -> list[str]:
        """Draw a replacement for each word, which may be any string.

        Every word has a row of the channel, so the audited ε holds for all strings. A word that the vocabulary does not
        know takes the row of the known word its vector is nearest to, or else of a random one: a mean of rows.

        Args:
            words: a text, or a part of it. Each costs ε.
            embed: vectors of any strings, like the vocabulary's, (t, d).
        """
        return [self.channel.outputs[at] for at in self.channel.draw(self.places(words, embed))]

    def places(self, words: Sequence[str], embed: Embed | None = None) -> IntArray:
        """The rows that words take; see :meth:`replace`."""
        index = self.vocabulary.index
        x = np.array([index.get(word, -1) for word in words], dtype=np.int64)
        if len(unknown := np.flatnonzero(x < 0)):
            if embed is None:
                x[unknown] = uniform.below(len(index), len(unknown))
            else:
                different = list(dict.fromkeys(words[at] for at in unknown))
                nearest = distances(embed(different), self.vocabulary.vectors).argmin(axis=1)
                place = dict(zip(different, nearest, strict=True))
                x[unknown] = [place[words[at]] for at in unknown]
        return x


def serve(name: str, vocabulary: Vocabulary, epsilon: float, folder: Path) -> Served:
    """A channel whose true ε, audited over all words, is at most ``epsilon``.

    Args:
        name: name in :data:`CORRECTED`, for a corrected mechanism, or in :data:`RESPONSES`.
        vocabulary: public words.
        epsilon: 0.001 to 25.
        folder: folder that keeps the tables.

    Raises:
        ValueError: ε is out of range.
        RefusedChannelError: the audit finds a larger ε.
        TableError: the table would be too large.
        LookupError: no such mechanism.
    """
    if not SMALLEST_EPSILON <= epsilon <= LARGEST_EPSILON:
        raise ValueError(f"ε must be from {SMALLEST_EPSILON} to {LARGEST_EPSILON:g}, not {epsilon}")
    if name in RESPONSES:
        served = _response(name, vocabulary, epsilon, folder)
    elif name in CORRECTED:
        served = _corrected(name, vocabulary, epsilon, folder)
    else:
        raise LookupError(f"no mechanism {name!r}: {', '.join([*RESPONSES, *CORRECTED])}")
    admit(served.audit, epsilon)
    return served


def _response(name: str, vocabulary: Vocabulary, epsilon: float, folder: Path) -> Served:
    def made() -> Kept:
        if name == "medoid_rr":
            channel = remembered_medoids(vocabulary, folder).response(epsilon)
            parameters = f"{len(channel.outputs)} medoids"
        else:
            near = _neighbours(vocabulary, k := _best_k(vocabulary, epsilon))
            channel = RandomisedResponse(vocabulary.words, vocabulary.words, near, epsilon)
            parameters = f"{k} nearest"
        about = {"outputs": channel.outputs, "audit": asdict(audit(channel)), "parameters": parameters}
        return {"near": channel.near}, about

    arrays, about = remember(folder, f"{name} {epsilon!r} words {vocabulary.digest}", made)
    channel = RandomisedResponse(vocabulary.words, about["outputs"], arrays["near"], epsilon)
    return Served(channel, Audit(**about["audit"]), about["parameters"], vocabulary)


def _corrected(name: str, vocabulary: Vocabulary, epsilon: float, folder: Path) -> Served:
    make = CORRECTED[name]

    def made() -> tuple[Channel, str]:
        nominal = best_nominal(make, vocabulary, epsilon)
        return make(vocabulary, nominal), f"nominal {nominal:.3g}"

    key = f"{name} words {vocabulary.digest}"
    return Served(*open_table(made, key, folder, epsilon=epsilon - MARGIN), vocabulary)


def remembered_medoids(vocabulary: Vocabulary, folder: Path) -> Medoids:
    """The greedy order of a vocabulary's medoids, computed once."""

    def made() -> Kept:
        ranked = medoids(vocabulary)
        return {"order": ranked.order, "nearest": ranked.nearest_cost, "random": ranked.random_cost}, {}

    arrays, _ = remember(folder, f"medoids words {vocabulary.digest}", made)
    return Medoids(vocabulary, arrays["order"], arrays["nearest"], arrays["random"])


def _neighbours(vocabulary: Vocabulary, k: int) -> IntArray:
    if (size := 8 * k * len(vocabulary)) > LARGEST_BYTES:
        raise TableError(
            f"the {k:,} neighbours of each word would take {size / 1e9:.1f} GB, more than 2: use fewer words"
        )
    return np.concatenate([vocabulary.nearest(x, k) for x in blocks(len(vocabulary))])


def best_nominal(make: Make, vocabulary: Vocabulary, epsilon: float) -> float:
    """The nominal ε with the least expected cost d²/2 once the true one is ``epsilon``, estimated on some words.

    A word's own column is taken as its largest entry, and the least entries of the words looked at for those of all.
    """
    x = np.unique(np.linspace(0, len(vocabulary) - 1, _LOOKED_AT).astype(np.int64))
    cost = vocabulary.distances(x) ** 2 / 2
    weights = vocabulary.shares[x] / vocabulary.shares[x].sum()

    def expected(nominal: float) -> float:
        law = make(vocabulary, nominal).rows(x)
        highest = np.maximum(law.max(axis=0), law[np.arange(len(x)), x].mean())
        beta, base = least_mixing(highest, law.min(axis=0), epsilon)
        return float(weights @ ((1 - beta) * (law * cost).sum(axis=1) + beta * (cost @ base)))

    return min(_NOMINALS, key=expected)


def _best_k(vocabulary: Vocabulary, epsilon: float) -> int:
    """The number of near words with the least expected cost d²/2, estimated on some words."""
    x = np.unique(np.linspace(0, len(vocabulary) - 1, _LOOKED_AT).astype(np.int64))
    cost = np.sort(vocabulary.distances(x) ** 2 / 2, axis=1)
    weights = vocabulary.shares[x] / vocabulary.shares[x].sum()
    gain, k = np.expm1(epsilon), np.arange(1, len(vocabulary))
    near = weights @ np.cumsum(cost, axis=1)
    return 1 + int(((gain * near[:-1] + near[-1]) / (gain * k + len(vocabulary))).argmin())
