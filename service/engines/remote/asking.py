"""Prompts to a chat-completions endpoint, outside a service: each has a reply, or an error that explains itself."""

import asyncio
from collections.abc import Sequence
from typing import NamedTuple

from service.engines.configs import OpenAiCompatibleConfig
from service.engines.remote.chat_endpoint import ChatEndpoint
from service.engines.remote.completion import Failure


class NoReplyError(ConnectionError):
    """The endpoint did not answer."""


class Prompt(NamedTuple):
    """A message, and the most tokens of its reply."""

    text: str
    most_tokens: int


def ask_all(
    config: OpenAiCompatibleConfig, prompts: Sequence[Prompt], *, temperature: float, with_key: bool = True
) -> list[str]:
    """The replies to prompts, asked at once; all or none.

    Args:
        config: the endpoint and its model.
        prompts: messages to send.
        temperature: 0 asks for the likeliest reply.
        with_key: whether the endpoint is sent ``DPICL_REMOTE_API_KEY``.

    Raises:
        NoReplyError: the endpoint did not answer one of them. The error quotes none.
    """
    endpoint = ChatEndpoint(config, with_key=with_key)
    with asyncio.Runner() as runner:
        try:
            return runner.run(_all(endpoint, prompts, temperature))
        finally:
            endpoint.close()


async def _all(endpoint: ChatEndpoint, prompts: Sequence[Prompt], temperature: float) -> list[str]:
    asked = [asyncio.ensure_future(_one(endpoint, prompt, temperature)) for prompt in prompts]
    try:
        return list(await asyncio.gather(*asked))
    finally:  # after one failure, no other goes on
        for call in asked:
            call.cancel()
        await asyncio.gather(*asked, return_exceptions=True)


async def _one(endpoint: ChatEndpoint, prompt: Prompt, temperature: float) -> str:
    reply = await endpoint.ask(prompt.text, temperature=temperature, max_tokens=prompt.most_tokens)
    if isinstance(reply, Failure):
        if reply.status == 400:
            raise NoReplyError(
                "the endpoint refuses (HTTP status 400): its context must hold the prompt and "
                f"{prompt.most_tokens} tokens"
            )
        if reply.unusable:
            raise NoReplyError(f"the language model {reply.unusable.said}: {reply.unusable.advice}")
        raise NoReplyError(f"the endpoint does not answer{f': HTTP status {reply.status}' if reply.status else ''}")
    return reply.text
