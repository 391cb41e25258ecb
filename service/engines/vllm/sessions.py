"""A prompt that grows: vLLM reads what is added, keeps all of it in its cache, and returns what could come next.

Uses vLLM's streaming inputs, of which each asks for one token, which is thrown away. Other limits of theirs: no stop
strings, no ``FINAL_ONLY``, a list of wanted tokens of its own for each piece, and all of these of the same length: vLLM
returns as many as the first piece asked for.
"""

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence
from functools import lru_cache
from typing import Any

from typing_extensions import override
from vllm import SamplingParams
from vllm.engine.protocol import StreamingInput
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from service.engines.lock_step import Voice
from service.engines.vllm.scheduler import TOGETHER


class SlotSession(Voice):
    """A prompt that grows, of a slot or of the public model.

    Args:
        llm: vLLM, which reads the prompt.
        prompt: beginning of the prompt.
        salt: salt of the cache, which the prompt shares only with prompts of the same salt.
        name: unique name among requests.
        group: number that the prompts asked at the same time have in common.
        most: tokens whose log-probabilities are asked for at once, at most.
    """

    def __init__(self, llm: AsyncLLM, prompt: Sequence[int], salt: str, name: str, group: int, most: int) -> None:
        self._unread = list(prompt)
        self._salt = salt
        self._group = group
        self._most = most
        self._pieces: asyncio.Queue[StreamingInput] = asyncio.Queue()
        self._replies = llm.generate(self._stream(), _of_tokens(()), name)

    @override
    async def opinion(self, read: Sequence[int], tokens: Sequence[int], voices: int) -> Sequence[float]:
        wanted = (*tokens, *[tokens[0]] * (self._most - len(tokens)))
        reply = await self._next(read, _of_tokens(wanted, (self._group, voices)))
        return [reply[token] for token in tokens]

    async def likeliest(self, read: Sequence[int], count: int) -> Mapping[int, float]:
        """See :class:`service.engines.lock_step.PublicVoice`; fewer if vLLM computed others' wanted tokens beside."""
        return await self._next(read, _likeliest(count))

    async def close(self) -> None:
        """Let go of it."""
        await self._replies.aclose()

    async def _next(self, read: Sequence[int], parameters: SamplingParams) -> Mapping[int, float]:
        piece, self._unread = [*self._unread, *read], []
        self._pieces.put_nowait(StreamingInput(tokens_input(piece, cache_salt=self._salt), parameters))
        output = await anext(self._replies)
        said = output.outputs[0].logprobs
        return dict(zip(said.token_ids, said.logprobs, strict=True))

    async def _stream(self) -> AsyncGenerator[StreamingInput, None]:
        while True:
            yield await self._pieces.get()


@lru_cache(maxsize=8)
def _of_tokens(wanted: tuple[int, ...], together: tuple[int, int] | None = None) -> SamplingParams:
    """Shared by all sessions that ask for these tokens: vLLM copies it, and making one takes long."""
    return _parameters(logprob_token_ids=list(wanted) or None, extra_args={TOGETHER: together} if together else None)


@lru_cache(maxsize=8)
def _likeliest(count: int) -> SamplingParams:
    return _parameters(logprobs=count)


def _parameters(**wanted: Any) -> SamplingParams:
    return one_token(output_kind=RequestOutputKind.DELTA, flat_logprobs=True, skip_clone=True, **wanted)


def one_token(**wanted: Any) -> SamplingParams:
    """Reads a prompt, and wants nothing written but a token, which is thrown away."""
    return SamplingParams(temperature=0.0, max_tokens=1, detokenize=False, **wanted)
