"""From a task's templates to the tokens a language model is given, by the model's own tokenizer.

Texts are asked of a model with a chat template in one user turn, and it answers in the assistant's. Any other model
completes the text: its answer follows the prompt as answers do in the exemplar template, and ends where the next
exemplar would begin. Any model's labels are scored that way, which no data set was worse by (docs/evaluation.md).
"""

from collections.abc import Sequence
from typing import Any

from service.engines.prompts import BETWEEN, around_answer
from service.engines.protocol import Prompt, TaskSpec

Tokens = list[int]


class Tokenization:
    """Prompts, labels and stops as tokens.

    Args:
        tokenizer: of `transformers`.
        chat: whether to use its chat template; None: if it has one.
        chat_template_kwargs: passed to that template.

    Raises:
        ValueError: a chat template is wanted and there is none.
    """

    def __init__(self, tokenizer: Any, chat: bool | None, chat_template_kwargs: dict[str, Any]):
        has_template = bool(getattr(tokenizer, "chat_template", None))
        if chat and not has_template:
            raise ValueError(
                "the model's tokenizer has no chat template: leave out `chat: true` in the engine's config"
            )
        self.chat = has_template if chat is None else chat
        self._tokenizer = tokenizer
        self._kwargs = chat_template_kwargs

    def prompts(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text as the prompt that it makes; each depends on that text alone."""
        if not texts:
            return []
        if self.chat:
            # The template writes the special tokens, so the tokenizer must not add them a second time.
            texts = [self._in_turns(text) for text in texts]
            return self._batch(texts, add_special_tokens=False)
        return self._batch([text.rstrip() for text in texts])

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """How many tokens each text has by itself."""
        return [len(tokens) for tokens in self._batch(texts, add_special_tokens=False)] if texts else []

    def labels(self, labels: Sequence[str], prompt: Prompt, answer_field: str) -> list[Tokens]:
        """Each label as the tokens that follow a prompt."""
        if self.chat:
            return [self._encode(label) for label in labels]
        before, separator, _ = around_answer(prompt, answer_field)
        return [self._continuation(before, separator + label) for label in labels]

    def ends(self) -> Tokens:
        """Tokens that end an answer."""
        line = self._encode("\n")
        ids = [self._tokenizer.eos_token_id, line[0] if len(line) == 1 else None]
        return [token for token in ids if token is not None]

    def text_ends(self) -> Tokens:
        """Tokens that end a text: a model with a chat template may write several lines."""
        return self.ends()[:1] if self.chat else self.ends()

    def special(self) -> set[int]:
        """Tokens that are no text."""
        return {*self._tokenizer.all_special_ids}

    def text(self, tokens: Tokens) -> str:
        """What tokens say."""
        said: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return said.strip()

    def stops(self, task: TaskSpec) -> list[str]:
        """Texts that end an answer."""
        if self.chat:
            return []
        *_, after = around_answer(task.prompt, task.answer_field)
        return [BETWEEN, after] if after.strip() else [BETWEEN]

    def _in_turns(self, text: str) -> str:
        messages = [{"role": "user", "content": text}]
        rendered: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **self._kwargs
        )
        return rendered

    def _continuation(self, before: str, text: str) -> Tokens:
        """Tokenizers mark the beginning of a text, so a continuation is read off behind something."""
        prefix, whole = self._encode(before), self._encode(before + text)
        return whole[len(prefix) :] if prefix and whole[: len(prefix)] == prefix else self._encode(text)

    def _batch(self, texts: Sequence[str], add_special_tokens: bool = True) -> list[Tokens]:
        # Masks would take a quarter of the time, and nobody reads them.
        encoded = self._tokenizer(texts, add_special_tokens=add_special_tokens, return_attention_mask=False)
        return list(encoded["input_ids"])

    def _encode(self, text: str) -> Tokens:
        return list(self._tokenizer.encode(text, add_special_tokens=False))
