"""From a task's templates to the tokens a language model is given, by the model's own tokenizer.

Texts are asked of a model with a chat template in one user turn, and it answers in the assistant's. Any other model
completes the text: its answer follows the prompt as answers do in the exemplar template, and ends where the next
exemplar would begin. Any model's labels are scored that way, which no data set was worse by (docs/evaluation.md).

A tokenizer finds its own marks in any text: an exemplar that quotes ``<|im_end|>`` would end the user's turn, and begin
one that no person wrote. Here only the chat template writes marks; in all other text they are characters
(:class:`_Marks`).
"""

import json
import re
import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from tokenizers import Tokenizer

from service.engines.prompts import BETWEEN, around_answer, cues
from service.engines.task import Prompt, TaskSpec

Tokens = list[int]


class Tokenization:
    """Prompts, labels and stops as tokens.

    Args:
        tokenizer: tokenizer of `transformers`.
        chat: whether to use its chat template; None: if it has one.
        chat_template_kwargs: arguments for that template.

    Raises:
        ValueError: a chat template is wanted and there is none, or it does not show a text as it is; or the tokenizer's
                marks cannot be distinguished from text.
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
        self._marks = _Marks(tokenizer)
        if self.chat:
            self._turns()

    def prompts(self, texts: Sequence[str]) -> list[Tokens]:
        """Each text as the prompt that it makes; each depends on that text alone."""
        if not texts:
            return []
        if self.chat:
            # The template writes the special tokens, so the tokenizer must not add them a second time.
            turns = self._turns()
            return self._marks.encode([turns.around(text) for text in texts], add_special_tokens=False)
        return self._marks.encode([text.rstrip() for text in texts], add_special_tokens=True)

    def lengths(self, texts: Sequence[str]) -> list[int]:
        """The number of tokens that each text has by itself."""
        return [len(tokens) for tokens in self._marks.encode(texts, add_special_tokens=False)]

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
        """Tokens that are not text."""
        return {*self._tokenizer.all_special_ids, *self._marks.ids}

    def text(self, tokens: Tokens) -> str:
        """The text of tokens."""
        said: str = self._tokenizer.decode(tokens, skip_special_tokens=True)
        return said.strip()

    def stops(self, task: TaskSpec) -> list[str]:
        """Texts that end an answer."""
        imitated = [f"\n{cue}" for cue in cues(task.prompt)]
        if self.chat:
            return imitated
        *_, after = around_answer(task.prompt, task.answer_field)
        return [BETWEEN, *imitated, *([after] if after.strip() else [])]

    def _turns(self) -> "_Turns":
        """The chat template as it is now: some write the date.

        Raises:
            ValueError: it does not show a text once, as it is.
        """
        text = secrets.token_hex(16)  # nothing else in the template, and no user's text
        parts = [self._rendered(shown).split(text) for shown in (text, f" {text} ")]
        if any(len(around) != 2 for around in parts):
            raise ValueError(
                "the model's chat template does not show a user's text once, as it is: write `chat: false` in the "
                "engine's config"
            )
        (before, after), (before_space, after_space) = parts
        write = self._marks.written
        return _Turns(write(before), write(after), before == before_space, after == after_space)

    def _rendered(self, text: str) -> str:
        messages = [{"role": "user", "content": text}]
        rendered: str = self._tokenizer.apply_chat_template(
            messages, tokenize=False, add_generation_prompt=True, **self._kwargs
        )
        return rendered

    def _continuation(self, before: str, text: str) -> Tokens:
        """Tokenizers mark the beginning of a text, so a continuation is read off behind something."""
        prefix, whole = self._encode(before), self._encode(before + text)
        return whole[len(prefix) :] if prefix and whole[: len(prefix)] == prefix else self._encode(text)

    def _encode(self, text: str) -> Tokens:
        (tokens,) = self._marks.encode([text], add_special_tokens=False)
        return tokens


@dataclass(frozen=True)
class _Turns:
    """A chat template around a text.

    Attributes:
        before: text that it writes before the given one, its marks as :meth:`_Marks.written`.
        after: text that it writes behind the given one.
        strips_before: whether it strips white space where the text begins.
        strips_after: whether it strips white space where the text ends.
    """

    before: str
    after: str
    strips_before: bool
    strips_after: bool

    def around(self, text: str) -> str:
        """The text in its turn."""
        text = text.lstrip() if self.strips_before else text
        return self.before + (text.rstrip() if self.strips_after else text) + self.after


class _Marks:
    """A tokenizer that knows its marks (``<|im_end|>``, ``</s>``) by names that no text can have.

    Otherwise it is the model's own, so text has the tokens that it has beside the marks themselves. Marks are the
    tokenizer's special tokens, and added ones that the chat template writes, such as ``<think>``.

    Args:
        tokenizer: tokenizer of `transformers`.

    Raises:
        ValueError: it cannot be changed so, or finds marks in text all the same.
    """

    def __init__(self, tokenizer: Any):
        if (own := getattr(tokenizer, "backend_tokenizer", None)) is None:
            raise ValueError("the model's tokenizer is not one of the library `tokenizers`")
        described = json.loads(own.to_str())
        secret, template = secrets.token_hex(16), str(getattr(tokenizer, "chat_template", None) or "")
        marks = [
            added
            for added in described["added_tokens"]
            if added["special"] or (_MARK.fullmatch(added["content"]) and added["content"] in template)
        ]
        self.ids = frozenset(added["id"] for added in marks)
        self._names = {added["content"]: f"{secret}-{added['id']}-" for added in marks}
        # The longest first, as a tokenizer reads them.
        self._found = re.compile("|".join(map(re.escape, sorted(self._names, key=len, reverse=True))) or r"(?!)")
        for added in marks:
            added |= {"content": self._names[added["content"]], "normalized": False, "single_word": False}
        model = described["model"]
        if isinstance(model["vocab"], dict):
            model["vocab"] = {self._names.get(piece, piece): number for piece, number in model["vocab"].items()}
        else:  # Unigram's, in order
            model["vocab"] = [[self._names.get(piece, piece), score] for piece, score in model["vocab"]]
        if (unknown := model.get("unk_token")) is not None:
            model["unk_token"] = self._names.get(unknown, unknown)
        described |= {"truncation": None, "padding": None}
        self._tokenizer = Tokenizer.from_str(json.dumps(described))
        names, contents = list(self._names.values()), list(self._names)
        known = [self._tokenizer.token_to_id(name) for name in names]
        read = {token for tokens in self.encode(contents, add_special_tokens=False) for token in tokens}
        if known != [added["id"] for added in marks] or (read & self.ids) - {tokenizer.unk_token_id}:
            raise ValueError("the model's tokenizer cannot distinguish its special tokens from text that quotes them")

    def written(self, template: str) -> str:
        """The text that a template writes, with its marks by their names."""
        return self._found.sub(lambda match: self._names[match[0]], template)

    def encode(self, texts: Sequence[str], *, add_special_tokens: bool) -> list[Tokens]:
        """The tokens of each text, with those that the tokenizer puts around any text or without."""
        return [one.ids for one in self._tokenizer.encode_batch_fast(texts, add_special_tokens=add_special_tokens)]


_MARK = re.compile(r"[^\w\s]\S+[^\w\s]")
"""The form of an added token that is a mark although it is not called special; others are words and white space."""
