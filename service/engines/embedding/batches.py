"""Embeddings of many texts in batches of fixed shapes, in two thirds of the time that they take one by one.

In a batch of any other kind an embedding depends on its companions. The shapes of the matrices decide in which order a
processor adds numbers, and so how it rounds them: padding to the longest text changes the last bits of two thirds of
the embeddings, and so does a batch of another size. A batch without any padding even takes another way through the
attention. Therefore a batch here always has 16 rows, and all of them are padded to one of a few lengths, by at least
one piece. A text's own length decides which. Rows without a text hold the empty one.

That a row of such a batch has the same bits at every place and beside any companions is a property of the processor
and of the library's kernels, not of arithmetic. It is tried out for each shape before the first text is embedded in it.
"""

import copy
import logging
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np

ROWS = 16
SHAPES = (8, 12, 16, 20, 24, 28, 32, 40, 48, 56, 64, 80, 96, 112, 128)
"""Pieces to a row. A text has one piece less, or fewer. A longer one is embedded alone: it would gain next to nothing.

Shorter steps need less padding, and leave more batches that are not full: few, where many texts come at once.
"""

_BY_PIECE = ("input_ids", "attention_mask", "token_type_ids")

_log = logging.getLogger(__name__)


class FixedBatches:
    """Sorts texts into batches, and embeds them. Threads may share it.

    Args:
        model: a ``SentenceTransformer``. It is not changed, but its weights are used.
    """

    def __init__(self, model: Any) -> None:
        self._model = model
        self._longest = model.max_seq_length or 0
        self._padded: dict[int, PaddedModel | None] = {}
        self._trying = threading.Lock()

    def divide(self, texts: Sequence[str]) -> tuple[list[tuple[int, list[int]]], list[int]]:
        """Divide texts into those that are embedded together, and the others.

        Returns:
            Batches, each with its pieces to a row and the numbers of at most 16 texts; and the numbers of the texts
            that are embedded alone: they are too long, or this processor does not embed such batches alike.
        """
        batches, alone, by_shape = [], list[int](), dict[int, list[int]]()
        for number, length in enumerate(self._lengths(texts)):
            shape = next((pieces for pieces in SHAPES if length < pieces <= self._longest), 0)
            by_shape.setdefault(shape, []).append(number)
        for shape, numbers in sorted(by_shape.items()):
            if shape and self._in(shape):
                batches += [(shape, numbers[first : first + ROWS]) for first in range(0, len(numbers), ROWS)]
            else:
                alone += numbers
        return batches, alone

    def embed(self, pieces: int, texts: Sequence[str]) -> np.ndarray:
        """Embed the texts of one batch, on one core.

        Args:
            pieces: length of a row in pieces, from :meth:`divide`.
            texts: at most 16.

        Returns:
            float32 array (n, d), rows of Euclidean norm 1.
        """
        model = self._in(pieces)
        assert model  # noqa: S101
        return model.embed(texts)

    def _lengths(self, texts: Sequence[str]) -> list[int]:
        """The number of pieces of each text, cut at the model's limit."""
        if not texts:
            return []
        read = self._model.preprocess(list(texts), prompt=prompt_of(self._model))
        return read["attention_mask"].sum(dim=1).tolist()

    def _in(self, pieces: int) -> "PaddedModel | None":
        """The model for rows of this many pieces; None where it is not to be used."""
        with self._trying:
            if pieces not in self._padded:
                model = PaddedModel(self._model, pieces)
                steady = embeds_alike(model)
                if not steady:
                    _log.warning(
                        "This processor embeds a text differently beside others, in batches of %d pieces: "
                        "texts of that length are embedded one by one, which takes half as long again",
                        pieces,
                    )
                self._padded[pieces] = model if steady else None
            return self._padded[pieces]


class PaddedModel:
    """A model that pads every text to the same number of pieces, and cuts longer ones.

    Args:
        model: a ``SentenceTransformer``. This one shares its weights, and has settings and a tokenizer of its own.
        pieces: length of a row in pieces; one of them is always padding, as attention without any takes another way.
        longest_word: WordPiece reads longer words as unknown; None: as the model has it.
    """

    def __init__(self, model: Any, pieces: int, longest_word: int | None = None) -> None:
        self.pieces = pieces
        self._model = copy.deepcopy(model, {id(weights): weights for weights in model.parameters()})
        self._model.eval()
        splitter = self._model.tokenizer.backend_tokenizer.model
        if longest_word is not None and hasattr(splitter, "max_input_chars_per_word"):
            splitter.max_input_chars_per_word = longest_word
        self._cut = {"text": {"padding": "max_length", "max_length": pieces - 1}}

    def embed(self, texts: Sequence[str]) -> np.ndarray:
        """Embeddings of at most 16 texts, by a batch of 16: float32 (n, d), rows of Euclidean norm 1."""
        return self.rows([*texts, *[""] * (ROWS - len(texts))])[: len(texts)]

    def rows(self, texts: list[str]) -> np.ndarray:
        """Embeddings of texts by a batch of as many rows, in this order: float32 (n, d), rows of Euclidean norm 1.

        ``SentenceTransformer.encode`` does the same, but sorts texts by their lengths.
        """
        import torch
        from torch.nn.functional import normalize, pad

        with torch.inference_mode():
            read = self._model.preprocess(texts, prompt=prompt_of(self._model), processing_kwargs=self._cut)
            padded = {name: pad(value, (0, 1)) if name in _BY_PIECE else value for name, value in read.items()}
            vectors = self._model(padded)["sentence_embedding"][:, : self._model.truncate_dim]
            return normalize(vectors, p=2, dim=1).numpy()


def prompt_of(model: Any) -> str | None:
    """The text that the model puts before every other, if any."""
    return model.prompts.get(model.default_prompt_name)


def embeds_alike(model: PaddedModel) -> bool:
    """Whether texts get the same bits at another place and beside other companions, tried out on public texts.

    Their lengths are from nothing to more than a row holds. Then the shorter half and the longer half move to other
    places, each beside empty texts only. Every place is compared with others, and through them with all.
    """
    texts = [" ".join(str(31 * row + 7 * word) for word in range(row * model.pieces // ROWS)) for row in range(ROWS)]
    expected, empty = model.embed(texts), [""] * (ROWS // 2)
    halves = ((slice(0, ROWS // 2), 1), (slice(ROWS // 2, ROWS), 6))
    for half, places in halves:
        batch = [*texts[half], *empty] if half.start == 0 else [*empty, *texts[half]]
        vectors = np.roll(model.embed(batch[-places:] + batch[:-places]), -places, axis=0)
        if vectors[half].tobytes() != expected[half].tobytes():
            return False
    return True
