"""A prompt that grows: vLLM reads what is added, keeps all of it in its cache, and says what could come next.

Uses vLLM's streaming inputs, of which each asks for one token, which is thrown away. Other limits of theirs: no stop
strings, no ``FINAL_ONLY``, a list of wanted tokens of its own for each piece, and all of these of the same length: vLLM
returns as many as the first piece asked for.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Mapping, Sequence

from vllm import SamplingParams
from vllm.engine.protocol import StreamingInput
from vllm.inputs import tokens_input
from vllm.sampling_params import RequestOutputKind
from vllm.v1.engine.async_llm import AsyncLLM

from service.engines.lock_step import MOST_ASKED


class Session:
    """One of them.

    Args:
        llm: that reads it.
        prompt: its beginning.
        salt: whom its cache is shared with.
        name: no other request has it.
    """

    def __init__(self, llm: AsyncLLM, prompt: Sequence[int], salt: str, name: str) -> None:
        self._unread = list(prompt)
        self._salt = salt
        self._pieces: asyncio.Queue[StreamingInput] = asyncio.Queue()
        self._replies = llm.generate(self._stream(), _parameters(), name)

    async def opinion(self, read: Sequence[int], tokens: Sequence[int]) -> Sequence[float]:
        """See :class:`service.engines.lock_step.Voice`."""
        wanted = [*tokens, *[tokens[0]] * (MOST_ASKED - len(tokens))]
        reply = await self._next(read, _parameters(logprob_token_ids=wanted))
        return [reply[token] for token in tokens]

    async def likeliest(self, read: Sequence[int], count: int) -> Mapping[int, float]:
        """See :class:`service.engines.lock_step.PublicVoice`; fewer if vLLM computed others' wanted tokens beside."""
        return await self._next(read, _parameters(logprobs=count))

    async def close(self) -> None:
        """Let go of it."""
        await self._replies.aclose()

    async def _next(self, read: Sequence[int], parameters: SamplingParams) -> Mapping[int, float]:
        piece, self._unread = [*self._unread, *read], []
        self._pieces.put_nowait(StreamingInput(tokens_input(piece, cache_salt=self._salt), parameters))
        output = await anext(self._replies)
        return {token: said.logprob for token, said in output.outputs[0].logprobs[-1].items()}

    async def _stream(self) -> AsyncGenerator[StreamingInput, None]:
        while True:
            yield await self._pieces.get()


def _parameters(**wanted: int | list[int]) -> SamplingParams:
    delta = RequestOutputKind.DELTA
    return SamplingParams(temperature=0.0, max_tokens=1, detokenize=False, output_kind=delta, **wanted)
