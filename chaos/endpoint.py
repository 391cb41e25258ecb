"""A language model outside the service: it records which questions came with exemplars, and misbehaves on demand."""

import asyncio
import re
import threading
import time
import zlib
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from chaos.toys import EXEMPLAR_CANARY, QUESTION_CANARY
from tests.service.engines.chat_server import Asked, Behaviour, ChatServer, completion

_QUESTION = re.compile(rf"{QUESTION_CANARY} [0-9a-z]+(?=:)")
_KEPT = 100


@dataclass
class Endpoint:
    """The model, served from a thread of its own.

    Attributes:
        shown: Unix times at which each question came together with exemplars.
        behaviour: present behaviour; None for :func:`sensible`.
    """

    shown: dict[str, list[float]] = field(default_factory=dict)
    behaviour: Behaviour | None = None
    url: str = ""

    def __post_init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._server = ChatServer(self._behave)
        self._server.asked = deque(maxlen=_KEPT)  # type: ignore[assignment]

    async def _behave(self, asked: Asked) -> bytes:
        if EXEMPLAR_CANARY in asked.prompt and (question := _QUESTION.search(asked.prompt)):
            self.shown.setdefault(question[0], []).append(time.time())
        return await (self.behaviour or sensible)(asked)

    def run(self) -> None:
        """Serve until the loop is stopped."""
        asyncio.set_event_loop(self._loop)
        self._loop.run_forever()

    def call(self, coroutine) -> None:  # type: ignore[no-untyped-def]
        """Run a coroutine in the model's thread, and wait until it ends."""
        asyncio.run_coroutine_threadsafe(coroutine, self._loop).result(30)

    async def _open(self) -> None:
        await self._server.__aenter__()
        self.url = self._server.url


async def sensible(asked: Asked) -> bytes:
    """Answer with a label, or with a text for a story.

    With exemplars, the text is the whole prompt: exemplars must not leak through the model's answer either.
    """
    if "Story of" not in asked.prompt:
        return completion("red" if zlib.crc32(asked.prompt.encode()) % 2 else "blue")
    return completion(asked.prompt if EXEMPLAR_CANARY in asked.prompt else "A plain kite.")


@contextmanager
def modelling() -> Iterator[Endpoint]:
    """Serve the model until the block ends."""
    endpoint = Endpoint()
    thread = threading.Thread(target=endpoint.run, name="model", daemon=True)
    thread.start()
    endpoint.call(endpoint._open())
    try:
        yield endpoint
    finally:
        endpoint.call(endpoint._server.stop())
        endpoint._loop.call_soon_threadsafe(endpoint._loop.stop)
        thread.join(10)
