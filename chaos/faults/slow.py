"""Slow clients: some send headers or bodies a byte at a time, others do not read the response."""

import socket
import time
from contextlib import ExitStack, suppress

import httpx

from chaos.world import Scenario, World

_EACH = 200
_DRIP_S = 0.5


def inflict(world: World, seconds: float) -> None:
    """Hold 600 connections for the time given; honest callers must be answered meanwhile."""
    ends = time.monotonic() + seconds
    address = httpx.URL(world.url)
    key = f"Authorization: Bearer {world.tokens['admin']}\r\n"
    beginnings = (
        f"GET /v1/budgets HTTP/1.1\r\nHost: x\r\n{key}X-Slow: ",
        f"POST /v1/tasks/toys.colour/answers HTTP/1.1\r\nHost: x\r\n{key}Content-Length: 200000\r\n\r\n",
        f"GET /v1/audit/export HTTP/1.1\r\nHost: x\r\n{key}\r\n",
    )
    began = time.monotonic()
    with ExitStack() as stack:
        held = []
        for beginning in beginnings * _EACH:
            connection = socket.socket()
            stack.callback(connection.close)
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            connection.settimeout(1)
            with suppress(OSError):
                connection.connect((address.host, address.port))
                connection.sendall(beginning.encode())
                held.append((connection, beginning is not beginnings[2]))
        while time.monotonic() < ends:
            for connection, dripping in held:
                if dripping:
                    with suppress(OSError):
                        connection.send(b"x")
            time.sleep(_DRIP_S)
        during = [one for one in list(world.load.received) if one.at > began]
    answered = [one.until - one.at for one in during if one.status in (200, 402)]
    world.notes["held"] = len(held)
    world.notes["answered meanwhile"] = len(answered)
    world.notes["slowest answer meanwhile, s"] = round(max(answered, default=0.0), 1)
    if len(answered) < seconds / 10:
        world.wrong.append(f"only {len(answered)} of {len(during)} honest callers were answered beside slow ones")
    world.note("slow clients", began)


SCENARIO = Scenario("slow", inflict, seconds=40)
