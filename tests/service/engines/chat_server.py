"""A chat-completions server on the loopback interface that misbehaves as a test wants, byte for byte."""

from __future__ import annotations

import asyncio
import json
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Any

Behaviour = Callable[["Asked"], Awaitable[bytes]]


@dataclass(frozen=True)
class Asked:
    """A request.

    Attributes:
        attempt: number of requests so far with this prompt and this seed, this one included.
        at: time of arrival, in seconds.
    """

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    attempt: int
    at: float

    @property
    def prompt(self) -> str:
        return self.body["messages"][0]["content"]


class ChatServer:
    """Answers each request with the bytes that ``behaviour`` returns, then keeps the connection if the bytes allow it.

    Attributes:
        asked: the requests to chat completions, in order of arrival.
        most_at_once: the most requests there were at the same time.
        hung_up: number of callers that went away before they were answered.
    """

    def __init__(self, behaviour: Behaviour, models: bytes | None = None):
        self.behaviour = behaviour
        self.models = models or response(200, "{}")
        self.asked: list[Asked] = []
        self.most_at_once = 0
        self.hung_up = 0
        self._at_once = 0
        self._serving: set[asyncio.Task[None]] = set()
        self._attempts: Counter[tuple[str, int | None]] = Counter()

    async def __aenter__(self) -> ChatServer:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.url = f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}/v1"
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self.stop()

    async def stop(self) -> None:
        """Refuse connections, and cut those that are open."""
        self._server.close()
        for task in list(self._serving):
            task.cancel()
        await asyncio.gather(*self._serving, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._serving.add(task)
        try:
            while (reply := await self._answer(reader)) is not None:
                writer.write(reply)
                await writer.drain()
                if b"Connection: close" in reply:
                    break
        except (asyncio.IncompleteReadError, ConnectionError, asyncio.CancelledError):
            pass
        finally:
            self._serving.discard(task)
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader) -> bytes | None:
        head = (await reader.readuntil(b"\r\n\r\n")).decode()
        line, *fields = head.strip().split("\r\n")
        headers = {name.lower(): value for name, _, value in (field.partition(": ") for field in fields)}
        path = line.split()[1]
        body = await reader.readexactly(int(headers.get("content-length", 0)))
        if path.endswith("/models"):
            return self.models
        document = json.loads(body)
        which = document["messages"][0]["content"], document.get("seed")
        self._attempts[which] += 1
        asked = Asked(path, headers, document, self._attempts[which], time.monotonic())
        self.asked.append(asked)
        self._at_once += 1
        self.most_at_once = max(self.most_at_once, self._at_once)
        reply = asyncio.create_task(self.behaviour(asked))
        gone = asyncio.create_task(reader.read(1))  # nothing is pipelined: what arrives now is the end
        try:
            await asyncio.wait({reply, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not reply.done():
                self.hung_up += 1
                return None
            return reply.result()
        finally:
            self._at_once -= 1
            for task in (reply, gone):
                task.cancel()
            await asyncio.gather(reply, gone, return_exceptions=True)


def response(status: int, body: str | bytes, **headers: str) -> bytes:
    """A whole HTTP response."""
    content = body.encode() if isinstance(body, str) else body
    fields = {"Content-Length": str(len(content)), **{name.replace("_", "-"): text for name, text in headers.items()}}
    head = "".join(f"{name}: {value}\r\n" for name, value in fields.items())
    return f"HTTP/1.1 {status} Whatever\r\n{head}\r\n".encode() + content


def completion(content: Any) -> bytes:
    """A chat completion with this reply."""
    message = {"role": "assistant", "content": content}
    return response(200, json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "stop"}]}))


def saying(content: str) -> Behaviour:
    """Answer every request with the same reply."""

    async def behave(_asked: Asked) -> bytes:
        return completion(content)

    return behave


async def majority(asked: Asked) -> bytes:
    """Answer with the most frequent answer among a prompt's exemplars, or with Sports if there is none."""
    answers = Counter(re.findall(r"^(?:Desk|Reply): (.+)$", asked.prompt, re.MULTILINE))
    return completion(max(answers, key=answers.__getitem__, default="Sports"))
