"""A language model outside the service that hangs, dies, and answers nonsense."""

import asyncio
import json
import time

from chaos.endpoint import sensible
from chaos.world import Scenario, World
from tests.service.engines.chat_server import Asked, Behaviour, completion, response

_HANG_S = 60.0


async def _hang(_asked: Asked) -> bytes:
    await asyncio.sleep(_HANG_S)
    return completion("red")


async def _hang_on_exemplars(asked: Asked) -> bytes:
    return await (_hang if "toycanary" in asked.prompt else sensible)(asked)


async def _fail_on_exemplars(asked: Asked) -> bytes:
    return response(500, asked.prompt) if "toycanary" in asked.prompt else await sensible(asked)


def _always(reply: bytes) -> Behaviour:
    async def behave(_asked: Asked) -> bytes:
        return reply

    return behave


_BEHAVIOURS: dict[str, Behaviour] = {
    "hangs": _hang,
    "hangs on exemplars": _hang_on_exemplars,
    "fails on exemplars": _fail_on_exemplars,
    "fails": _always(response(500, "toycanary5c90 is what you asked about")),
    "is busy": _always(response(429, "{}", Retry_After="1")),
    "says no HTTP": _always(bytes(range(256))),
    "hangs up": _always(b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 5000\r\n\r\n{"),
    "says no JSON": _always(response(200, "<html>" * 100)),
    "says no text": _always(completion({"text": ["toycanary5c90"]})),
    "says far too much": _always(response(200, json.dumps({"choices": ["x" * 8_000_000]}))),
    "says nothing": _always(completion("")),
}


def inflict(world: World, seconds: float) -> None:
    """Make the model misbehave in each way, for an equal share of the time."""
    assert world.endpoint is not None
    for name, behaviour in _BEHAVIOURS.items():
        world.endpoint.behaviour = behaviour
        time.sleep(seconds / len(_BEHAVIOURS))
        world.endpoint.behaviour = None
        world.note(name, time.monotonic(), within=60)


SCENARIO = Scenario("engine", inflict, seconds=60, remote=True)
