"""Whole texts: each becomes one of m public texts, most likely the nearest. One ε protects all of it.

Any two texts of whatever length have laws within e^ε of each other: randomised response on public texts, whole texts
being its words. Words, their number and order, stopwords and white space do not show. How many of the public texts are
best is found on one half of them, with the medoids of the other half: a question is not one of them, so counting each
as nearest to itself would take too many.
"""

from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import ClassVar, Literal

import numpy as np
import numpy.typing as npt

from sanitization.audit import Audit, admit, audit
from sanitization.cache import Kept, remember
from sanitization.mechanisms import Embed, Served
from sanitization.medoids import CANDIDATES, Medoids, medoids
from sanitization.response import RandomisedResponse
from sanitization.text import TextSanitizer
from sanitization.tokens import KEPT, Partition, Token
from sanitization.vocabulary import IntArray, Vocabulary, distances

WholeName = Literal["whole_rr"]
NAME: WholeName = "whole_rr"
FEWEST = 4


def kept(mechanism: str, keep: Iterable[str] | None) -> frozenset[str]:
    """Classes of tokens to keep: as asked for, else the default; none for whole texts.

    Raises:
        ValueError: something of whole texts is to be kept.
    """
    if mechanism != NAME:
        return frozenset(KEPT if keep is None else keep)
    if keep:
        raise ValueError(f"{NAME} replaces texts as a whole and can keep nothing of them: leave out what to keep")
    return frozenset()


def read_public_texts(file: Path) -> tuple[str, ...]:
    """The different lines of a file that are not blank.

    Raises:
        OSError: it cannot be read.
        ValueError: they are too few or too many, or not UTF-8.
    """
    try:
        lines = file.read_text("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        raise ValueError(f"{file} is not UTF-8; save it as UTF-8") from None
    texts = tuple(dict.fromkeys(line for line in lines if line.strip()))
    _check_count(texts)
    return texts


class _OneToken(Partition):
    """A text is a word."""

    def tokens(self, text: str) -> tuple[list[Token], str]:
        """The text."""
        return [Token("word", "", text)], ""


@dataclass(frozen=True, eq=False)
class WholeTextSanitizer(TextSanitizer):
    """A sanitiser that replaces a whole text by one of the public texts (:func:`open_whole`)."""

    unit: ClassVar[Literal["word", "text"]] = "text"

    @property
    def guarantee(self) -> str:
        """The guarantee, in words."""
        return f"Each text as a whole is protected by local differential privacy with ε = {self.epsilon:.6g}, audited."

    @property
    def released_as_public(self) -> list[str]:
        """The parts of a text that are not protected, in words."""
        return ["the number and order of texts", "which of your texts are equal"]


def open_whole(
    texts: Sequence[str], vectors: npt.ArrayLike, epsilon: float, folder: Path, embed: Embed
) -> WholeTextSanitizer:
    """A sanitiser that answers with these texts.

    Args:
        texts: **public**, 4 to 6,000, all different.
        vectors: vectors of the texts, (n, d).
        epsilon: ε of a text; above 0, at most 25.
        folder: folder that keeps the choice among the texts.
        embed: function from strings to vectors like these.

    Raises:
        ValueError: too few or too many texts, one of them twice, or ε is out of range.
    """
    _check_count(texts)
    public = Vocabulary(texts, vectors, np.ones(len(texts)))

    def made() -> Kept:
        chosen = _chosen(public, epsilon)
        return {"chosen": chosen}, {"audit": asdict(audit(_response(_some(public, chosen), epsilon)))}

    arrays, about = remember(folder, f"whole {epsilon!r} texts {public.digest}", made)
    known, audited = _some(public, arrays["chosen"]), Audit(**about["audit"])
    admit(audited, epsilon)
    served = Served(_response(known, epsilon), audited, f"{len(known):,} of {len(public):,} public texts", known)
    return WholeTextSanitizer(NAME, served, _OneToken(), embed)


def _check_count(texts: Sequence[str]) -> None:
    if not FEWEST <= len(texts) <= CANDIDATES:
        raise ValueError(f"{FEWEST} to {CANDIDATES:,} public texts are needed, not {len(texts):,}")


def _response(known: Vocabulary, epsilon: float) -> RandomisedResponse:
    return RandomisedResponse(known.words, known.words, np.arange(len(known))[:, None], epsilon)


def _some(public: Vocabulary, chosen: IntArray) -> Vocabulary:
    return Vocabulary([public.words[at] for at in chosen], public.vectors[chosen], np.ones(len(chosen)))


def _chosen(public: Vocabulary, epsilon: float) -> IntArray:
    every = np.arange(len(public))
    half = _some(public, every[::2])
    order = medoids(half, len(half)).order
    cost = distances(public.vectors[1::2], half.vectors[order]) ** 2 / 2
    nearest = np.minimum.accumulate(cost, axis=1).mean(axis=0)
    count = Medoids(half, order, nearest, cost.mean(axis=0).cumsum()).best_count(epsilon)
    return every if count == len(half) else medoids(public, count).order
