"""Masked-token inference: a masked language model guesses each word from the words around it (Yue et al. 2021, 5.3)."""

from collections.abc import Sequence
from pathlib import Path

from sanitization.tokens import Token

_AROUND = 64
"""Tokens of the text on either side."""
_TOGETHER = 32


class MaskedModel:
    """An attacker with a model such as BERT.

    Args:
        folder: folder in Hugging Face's format; nothing is downloaded.

    Raises:
        ValueError: the folder does not hold a masked language model.
        OSError: files are missing.
    """

    def __init__(self, folder: Path) -> None:
        from transformers import AutoModelForMaskedLM, AutoTokenizer

        try:
            self._tokenizer = AutoTokenizer.from_pretrained(folder, local_files_only=True)
            if self._tokenizer.mask_token_id is None:
                raise ValueError("its tokenizer has no mask")
            self._model = AutoModelForMaskedLM.from_pretrained(folder, local_files_only=True).eval()
        except (OSError, ValueError) as error:
            raise ValueError(f"{folder} is not a masked language model: {error}") from error
        self._longest = min(self._tokenizer.model_max_length, self._model.config.max_position_embeddings - 2)

    def __call__(self, texts: Sequence[Sequence[Token]]) -> list[list[str | None]]:
        """The likeliest word in each place of sanitised texts; None where no word was drawn."""
        return [self._guess(text) for text in texts]

    def _guess(self, text: Sequence[Token]) -> list[str | None]:
        words = [at for at, token in enumerate(text) if token.kind == "word"]
        guesses: list[str | None] = [None] * len(text)
        for start in range(0, len(words), _TOGETHER):
            some = words[start : start + _TOGETHER]
            for at, guess in zip(some, self._likeliest([self._masked(text, at) for at in some]), strict=True):
                guesses[at] = guess
        return guesses

    def _masked(self, text: Sequence[Token], at: int) -> str:
        shown = text[max(0, at - _AROUND) : at + _AROUND + 1]
        word = min(at, _AROUND)
        mask = self._tokenizer.mask_token
        return "".join(token.before + (mask if place == word else token.text) for place, token in enumerate(shown))

    def _likeliest(self, masked: Sequence[str]) -> list[str | None]:
        import torch

        pieces = self._tokenizer(
            list(masked), return_tensors="pt", padding=True, truncation=True, max_length=self._longest
        )
        hidden = pieces["input_ids"] == self._tokenizer.mask_token_id
        with torch.inference_mode():
            scores = self._model(**pieces).logits[torch.arange(len(masked)), hidden.int().argmax(dim=1)]
        words = [str(self._tokenizer.decode([piece])).strip() for piece in scores.argmax(dim=1).tolist()]
        # A mask that was cut off yields no guess.
        return [word if seen else None for word, seen in zip(words, hidden.any(dim=1).tolist(), strict=True)]
