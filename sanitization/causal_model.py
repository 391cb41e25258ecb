"""A causal language model on this machine: which words may follow a public text."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np

from sanitization.digests import model_digest
from sanitization.vocabulary import FloatArray, IntArray

_LONGEST = 512
"""Most tokens that a word's context has; once there are more, it begins anew with the last half of them."""
_TOGETHER = 64


class ContextModelError(ValueError):
    """A folder without a causal language model."""


def load(folder: Path, **options: Any) -> tuple[Any, Any]:
    """Tokenizer and model of a folder in Hugging Face's format; nothing is downloaded.

    Args:
        folder: the folder.
        options: options of the tokenizer.

    Raises:
        ContextModelError: the folder does not hold a causal language model.
    """
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer
    from transformers.utils.logging import disable_progress_bar

    disable_progress_bar()  # type: ignore[no-untyped-call]  # of a moment
    try:
        tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True, **options)
        model = AutoModelForCausalLM.from_pretrained(folder, local_files_only=True, dtype=torch.float32)
    except Exception as error:  # transformers has no error of its own for a damaged folder
        raise ContextModelError(f"{folder} does not hold a causal language model: {error}") from error
    return tokenizer, model.train(False)


class Reader(Protocol):
    """A text that is being read."""

    def read(self, text: str) -> None:
        """Append to the text."""
        ...

    def logits(self, *, spaced: bool) -> FloatArray:
        """Logits of the vocabulary's words as the next one, (n,); ``spaced``: after a space."""
        ...


class ContextModel(Protocol):
    """A language model, and the words that it gives logits to."""

    @property
    def digest(self) -> str:
        """SHA-256 of the model."""
        ...

    def open(self) -> Reader:
        """Begin a text. The model sees this text only."""
        ...


class CausalModel:
    """A causal language model in Hugging Face's format, of any kind that ``transformers`` knows.

    A word's logit is that of its first piece, plus the log-probabilities of its other pieces after the first, which are
    computed once, without a context: so a word of one piece, as most are, has exactly its logit.

    Args:
        folder: folder of the model and its tokenizer; nothing is downloaded.
        words: words to give logits to.

    Raises:
        ContextModelError: the folder does not hold such a model.
    """

    def __init__(self, folder: Path, words: Sequence[str]) -> None:
        tokenizer, model = load(folder)
        first = tokenizer.bos_token_id if tokenizer.bos_token_id is not None else tokenizer.eos_token_id
        if first is None:
            raise ContextModelError(f"{folder}: its tokenizer has no token that begins or ends a text")
        self._tokenizer, self._model, self._first = tokenizer, model, int(first)
        longest = getattr(model.config, "max_position_embeddings", None) or _LONGEST
        self._longest = min(_LONGEST, longest)
        self.digest = model_digest(folder)
        self._starts = {spaced: self._beginnings(words, " " if spaced else "") for spaced in (True, False)}

    def open(self) -> "_Reading":
        """Begin a text."""
        return _Reading(self)

    def pieces(self, text: str) -> list[int]:
        """Ids of a text's pieces."""
        return list(self._tokenizer.encode(text, add_special_tokens=False))

    def after(self, pieces: Sequence[int], past: Any) -> tuple[FloatArray, Any]:
        """Logits of all pieces after these, and what the model remembers of them."""
        import torch

        with torch.inference_mode():
            seen = self._model(torch.tensor([list(pieces)]), past_key_values=past, use_cache=True)
        return seen.logits[0, -1].double().numpy(), seen.past_key_values

    def _beginnings(self, words: Sequence[str], before: str) -> tuple[IntArray, FloatArray]:
        """The first piece of each word, and the logarithm of what the others add, (n,) each."""
        cut = [self.pieces(before + word) or [self._first] for word in words]
        rest = np.zeros(len(words))
        longer = sorted((at for at, pieces in enumerate(cut) if len(pieces) > 1), key=lambda at: len(cut[at]))
        for start in range(0, len(longer), _TOGETHER):
            some = longer[start : start + _TOGETHER]
            rest[some] = self._continued([cut[at] for at in some])
        return np.array([pieces[0] for pieces in cut], dtype=np.int64), rest

    def _continued(self, cut: Sequence[Sequence[int]]) -> list[float]:
        """ln P(all pieces but the first | the first, at the beginning of a text) of each word."""
        import torch

        width = max(map(len, cut))
        padded = torch.tensor([[self._first, *pieces, *[self._first] * (width - len(pieces))] for pieces in cut])
        with torch.inference_mode():  # causal: what pads a row comes after what counts
            logs = self._model(padded).logits.double().log_softmax(-1)
        return [sum(float(logs[row, at, piece]) for at, piece in enumerate(p) if at) for row, p in enumerate(cut)]


class _Reading:
    """A text, and what the model remembers of it.

    Args:
        model: model that reads it.
    """

    def __init__(self, model: CausalModel) -> None:
        self._model = model
        self._seen: list[int] = []
        self._new = [model._first]
        self._past: Any = None
        self._last: FloatArray | None = None

    def read(self, text: str) -> None:
        """Append to the text."""
        self._new += self._model.pieces(text)

    def logits(self, *, spaced: bool) -> FloatArray:
        """Logits of the words as the next one, (n,)."""
        if self._new:
            if len(self._seen) + len(self._new) > self._model._longest:
                kept = (self._seen + self._new)[-(self._model._longest // 2) :]
                self._seen, self._new, self._past = [], [self._model._first, *kept], None
            self._last, self._past = self._model.after(self._new, self._past)
            self._seen, self._new = self._seen + self._new, []
        assert self._last is not None  # noqa: S101  (a text begins with a piece)
        pieces, rest = self._model._starts[spaced]
        return self._last[pieces] + rest
