"""Five thousand callers at once, each on a connection of its own."""

import asyncio
import json
import resource
import time
from collections import Counter

import httpx

from chaos.load import Received
from chaos.toys import QUESTION_CANARY
from chaos.world import Scenario, World

CALLERS = 5000
_QUESTIONS = 500
_PATIENCE_S = 300.0
_EXPECTED = {200, 402, 429, 503}


def inflict(world: World, _seconds: float, callers: int = CALLERS) -> None:
    """Ask 500 questions, all at once: each by ten of 5,000 callers, or by fewer if there are fewer callers."""
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    began = time.monotonic()
    told = asyncio.run(_all(world, callers))
    world.notes["concurrent"] = dict(Counter(str(status or "none") for status, _ in told))
    world.notes["all answered in, s"] = round(time.monotonic() - began, 1)
    for (status, document), number in Counter((status, kind) for status, kind in told).items():
        if status not in _EXPECTED or (status >= 500 and document != "problem"):
            world.wrong.append(f"{number} of {callers} at once were answered with {status} ({document})")
    world.note(f"{callers} at once", time.monotonic())


async def _all(world: World, callers: int) -> list[tuple[int, str]]:
    address = httpx.URL(world.url)
    gathered = asyncio.gather(*(_one(world, address.host, address.port or 80, n) for n in range(callers)))
    return await gathered


async def _one(world: World, host: str, port: int, number: int) -> tuple[int, str]:
    question = f"{QUESTION_CANARY} many{number % _QUESTIONS}"
    body = json.dumps({"query": question}).encode()
    head = (
        "POST /v1/tasks/toys.colour/answers HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        f"Authorization: Bearer {world.tokens['analyst']}\r\nContent-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    began, reply = time.monotonic(), b""
    try:
        async with asyncio.timeout(_PATIENCE_S):
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(head.encode() + body)
            reply = await reader.read(-1)
            writer.close()
    except (OSError, TimeoutError):
        pass
    headers, _, content = reply.partition(b"\r\n\r\n")
    status = int(headers.split(maxsplit=2)[1]) if headers else 0
    world.load.look(f"an answer of {status}", reply)
    document = json.loads(content) if content.startswith(b"{") else {}
    slug = str(document.get("type", "")).rpartition("/")[2]
    release = document if status == 200 else None
    world.load.received.append(Received(began, time.monotonic(), "toys.colour", question, status, slug, release))
    return status, "problem" if slug else "answer" if release else content[:60].decode(errors="replace")


SCENARIO = Scenario("many", inflict, callers=1)
