"""The GPT inference of InferDPT (Tong et al. 2023, appendix D): a chat model is asked what words stood in a text.

The question is put in words of our own.
"""

import asyncio
import json
import re
from collections.abc import Sequence

from sanitization.tokens import Token
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.remote.chat_endpoint import ChatEndpoint
from service.engines.remote.completion import Failure

_PROMPT = """\
Every item of the JSON list below was a word of one text until it was replaced at random, to hide it. For each item, \
guess the word that most likely stood there.

Answer with one bracketed string for each item, in their order, and nothing else: [["word"], ["word"], ["word"]]

Items: {tokens}"""
_PREDICTION = re.compile(r'\[\s*("(?:[^"\\]|\\(?:["\\/bfnrt]|u[0-9a-fA-F]{4}))*")\s*\]')
_TOKENS_EACH = 24


class NoReplyError(ConnectionError):
    """The endpoint did not answer, so nothing is known of what its model would find."""


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
            NoReplyError: the endpoint did not answer.
        """
        endpoint = ChatEndpoint(self._config)
        with asyncio.Runner() as runner:
            try:
                return runner.run(_all(endpoint, texts))
            finally:
                endpoint.close()


async def _all(endpoint: ChatEndpoint, texts: Sequence[Sequence[Token]]) -> list[list[str | None]]:
    asked = [asyncio.ensure_future(_guess(endpoint, text)) for text in texts]
    try:
        return list(await asyncio.gather(*asked))
    finally:  # after one failure, no other goes on
        for call in asked:
            call.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _guess(endpoint: ChatEndpoint, text: Sequence[Token]) -> list[str | None]:
    listed = json.dumps([token.text for token in text], ensure_ascii=False)
    most = _TOKENS_EACH * (1 + len(text))
    reply = await endpoint.ask(_PROMPT.format(tokens=listed), temperature=0, max_tokens=most)
    if isinstance(reply, Failure):
        if reply.status == 400:
            raise NoReplyError(
                f"the endpoint refuses (HTTP status 400): its context must hold the prompt and {most} tokens"
            )
        if reply.unusable:
            raise NoReplyError(f"the language model {reply.unusable.said}: {reply.unusable.advice}")
        raise NoReplyError(f"the endpoint does not answer{f': HTTP status {reply.status}' if reply.status else ''}")
    guesses = [json.loads(word, strict=False) for word in _PREDICTION.findall(reply.text)]
    return guesses if len(guesses) == len(text) else [None] * len(text)
