"""The GPT inference of InferDPT (Tong et al. 2023, appendix D): a chat model is asked what words stood in a text.

The question is put in words of our own.
"""

import json
import re
from collections.abc import Sequence

from sanitization.tokens import Token
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.remote.asking import Prompt, ask_all

_PROMPT = """\
Every item of the JSON list below was a word of one text until it was replaced at random, to hide it. For each item, \
guess the word that most likely stood there.

Answer with one bracketed string for each item, in their order, and nothing else: [["word"], ["word"], ["word"]]

Items: {tokens}"""
_PREDICTION = re.compile(r'\[\s*("(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")\s*\]')
_TOKENS_EACH = 24


class ChatModel:
    """An attacker with a chat-completions endpoint, which sees sanitised texts only.

    Args:
        config: the endpoint and its model.
    """

    def __init__(self, config: OpenAiCompatibleConfig) -> None:
        self._config = config

    def __call__(self, texts: Sequence[Sequence[Token]]) -> list[list[str | None]]:
        """A guess for each token; None for all of a text where the reply does not have one for each.

        Raises:
            service.engines.remote.asking.NoReplyError: the endpoint did not answer.
        """
        replies = ask_all(self._config, [_prompt(text) for text in texts], temperature=0)
        return [_guesses(reply, text) for reply, text in zip(replies, texts, strict=True)]


def _prompt(text: Sequence[Token]) -> Prompt:
    listed = json.dumps([token.text for token in text], ensure_ascii=False)
    return Prompt(_PROMPT.format(tokens=listed), _TOKENS_EACH * (1 + len(text)))


def _guesses(reply: str, text: Sequence[Token]) -> list[str | None]:
    guesses = [json.loads(word, strict=False) for word in _PREDICTION.findall(reply)]
    return guesses if len(guesses) == len(text) else [None] * len(text)
