"""A causal language model in this process: SmolLM2, a folder in Hugging Face's format, or a GGUF file."""

import secrets
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

from sanitization.causal_model import ContextModelError, load
from service.engines.embedding.words import unicode
from service.engines.errors import EngineUnavailableError

_TOGETHER = 8


class LocalModelError(ValueError):
    """The local model cannot be loaded."""


@dataclass(eq=False)
class LocalModel:
    """Continues prompts, by its chat template where it has one. It is loaded when it is first asked.

    Args:
        model: ``smollm2``, a folder or a GGUF file.
        most_tokens: most tokens of a continuation.
        temperature: 0 takes the likeliest token.
    """

    model: str = "smollm2"
    most_tokens: int = 256
    temperature: float = 0.7

    @property
    def tokens(self) -> int:
        """Number of tokens that it knows."""
        return int(self._loaded[1].config.vocab_size)

    def load(self) -> None:
        """Load the model now.

        Raises:
            LocalModelError: it is missing or damaged.
        """
        _ = self._loaded

    def __call__(self, prompt: str) -> str:
        """The continuation of a prompt; see :meth:`write`."""
        return self.write([prompt])[0]

    def write(self, prompts: Sequence[str]) -> list[str]:
        """The continuation of each prompt.

        Raises:
            LocalModelError: the model cannot be loaded.
            ValueError: a prompt is longer than the model takes.
        """
        if self.temperature == 0:
            return self._write(prompts, self.most_tokens, None)
        return self._write(prompts, self.most_tokens, lambda logits: logits / self.temperature)

    def draw_clipped(
        self, prompts: Sequence[str], *, most: int, low: float, high: float, temperature: float
    ) -> list[str]:
        """See :class:`sanitization.published.dp_prompt.ClippedModel`.

        Its draws are made in floating point: enough to measure the mechanism, which is served nowhere.
        """
        return self._write(prompts, most, lambda logits: logits.clamp(low, high) / temperature)

    def _write(self, prompts: Sequence[str], most: int, scale: Callable[[Any], Any] | None) -> list[str]:
        texts: list[str] = []
        for start in range(0, len(prompts), _TOGETHER):
            texts += self._continue(prompts[start : start + _TOGETHER], most, scale)
        return texts

    def _continue(self, prompts: Sequence[str], most: int, scale: Callable[[Any], Any] | None) -> list[str]:
        import torch
        from transformers import LogitsProcessorList

        tokenizer, model = self._loaded
        asked = unicode(prompts)
        if chat := tokenizer.chat_template is not None:
            asked = [
                tokenizer.apply_chat_template(
                    [{"role": "user", "content": prompt}], tokenize=False, add_generation_prompt=True
                )
                for prompt in asked
            ]
        encoded = tokenizer(asked, return_tensors="pt", padding=True, add_special_tokens=not chat)
        length = encoded["input_ids"].shape[1]
        longest = getattr(model.config, "max_position_embeddings", None)
        if longest is not None and length + most > longest:
            raise ValueError(
                f"the text and its continuation have {length + most:,} tokens, and the local model takes {longest:,}"
            )
        drawing = LogitsProcessorList([] if scale is None else [_Drawing(scale)])
        with torch.inference_mode():
            written = model.generate(
                input_ids=encoded["input_ids"],
                attention_mask=encoded["attention_mask"],
                max_new_tokens=most,
                # The one token that was drawn is the likeliest, so nothing that the model's own settings ask for, such
                # as nucleus sampling, has a part in it.
                do_sample=False,
                logits_processor=drawing,
                pad_token_id=tokenizer.pad_token_id,
            )
        return cast(list[str], tokenizer.batch_decode(written[:, length:], skip_special_tokens=True))

    @cached_property
    def _loaded(self) -> tuple[Any, Any]:
        if find_spec("torch") is None or find_spec("transformers") is None:
            raise LocalModelError(
                "a local model in this process needs pip install 'dp-icl[server]'; or name a local endpoint"
            )
        from service.engines.vllm.model_folder import model_folder

        try:
            folder = model_folder(self.model, exact=True)
        except EngineUnavailableError as error:
            raise LocalModelError(str(error)) from error
        if not Path(folder).is_dir():
            raise LocalModelError(f"there is no folder {self.model}: give smollm2, a folder or a .gguf file")
        try:
            tokenizer, model = load(Path(folder), padding_side="left")
        except ContextModelError as error:
            raise LocalModelError(str(error)) from error
        if tokenizer.pad_token_id is None:
            tokenizer.pad_token = tokenizer.eos_token
        return tokenizer, model


class _Drawing:
    """Replaces the logits of each text by those that leave one token, which is drawn from all of them."""

    def __init__(self, scale: Callable[[Any], Any]) -> None:
        import torch

        self._scale = scale
        # Torch starts from the same seed in every process.
        self._generator = torch.Generator().manual_seed(secrets.randbits(63))

    def __call__(self, _ids: Any, logits: Any) -> Any:
        import torch

        law = torch.softmax(self._scale(logits.double()), dim=-1)
        drawn = torch.multinomial(law, 1, generator=self._generator)
        return torch.full_like(logits, -torch.inf).scatter(1, drawn, 0.0)
