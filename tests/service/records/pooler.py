"""A transaction pooler in front of a PostgreSQL server: each transaction gets the next of a few server sessions.

It forwards whole protocol messages and lets go of a session when the server reports that no transaction is open, as
PgBouncer does with ``pool_mode = transaction`` and without prepared statements.
"""

import asyncio
import struct
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager

_ENCRYPTION = {80877103, 80877104}  # asked for before the startup message: TLS, GSSAPI
_KEY = struct.pack("!ii", -1, 0)  # process number and secret for cancelling: not the server's, as they change

Session = tuple[asyncio.StreamReader, asyncio.StreamWriter]


async def _message(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    kind, (length,) = await reader.readexactly(1), struct.unpack("!i", await reader.readexactly(4))
    return kind, await reader.readexactly(length - 4)


def _packed(kind: bytes, body: bytes) -> bytes:
    return kind + struct.pack("!i", len(body) + 4) + body


class _Pooler:
    def __init__(self, socket: str, user: str, database: str) -> None:
        self._socket = socket
        named = b"".join(part.encode() + b"\0" for part in ("user", user, "database", database))
        self._startup = _packed(b"", struct.pack("!i", 3 << 16) + named + b"\0")
        self._greeting = b""
        self._free: asyncio.Queue[Session] = asyncio.Queue()

    async def run(self, sessions: int, port: Future[int], stop: Future[None]) -> None:
        for _ in range(sessions):
            self._free.put_nowait(await self._open())
        server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        port.set_result(server.sockets[0].getsockname()[1])
        await asyncio.wrap_future(stop)
        server.close()
        while not self._free.empty():
            self._free.get_nowait()[1].close()

    async def _open(self) -> Session:
        reader, writer = await asyncio.open_unix_connection(self._socket)
        writer.write(self._startup)
        greeting, kind = b"", b""
        while kind != b"Z":
            kind, body = await _message(reader)
            greeting += _packed(kind, _KEY if kind == b"K" else body)
        self._greeting = greeting
        return reader, writer

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        held: Session | None = None
        try:
            while struct.unpack("!i", (await _startup(reader))[:4])[0] in _ENCRYPTION:
                writer.write(b"N")
            writer.write(self._greeting)
            while True:
                kind, body = await _message(reader)
                if kind == b"X":
                    return
                held = held or await self._free.get()
                held[1].write(_packed(kind, body))
                if kind in (b"Q", b"S") and await self._answer(held, writer):
                    self._free.put_nowait(held)
                    held = None
        except (asyncio.IncompleteReadError, ConnectionError):
            if held is not None:  # in the middle of a transaction
                held[1].close()
                self._free.put_nowait(await self._open())
        finally:
            writer.close()

    async def _answer(self, held: Session, writer: asyncio.StreamWriter) -> bool:
        """Pass on the server's messages until it is ready, and return whether no transaction is open then."""
        while True:
            kind, body = await _message(held[0])
            writer.write(_packed(kind, body))
            if kind == b"Z":
                await writer.drain()
                return body == b"I"


async def _startup(reader: asyncio.StreamReader) -> bytes:
    (length,) = struct.unpack("!i", await reader.readexactly(4))
    return await reader.readexactly(length - 4)


@contextmanager
def pooling(socket: str, user: str, database: str, sessions: int = 3) -> Iterator[str]:
    """Run a pooler during the block, and yield the URL of the database behind it.

    Args:
        socket: file of the server's socket.
        user: name of the database's user.
        database: name of the database.
        sessions: number of server sessions.
    """
    pooler, port, stop = _Pooler(socket, user, database), Future[int](), Future[None]()
    with ThreadPoolExecutor(1) as thread:
        running = thread.submit(lambda: asyncio.run(pooler.run(sessions, port, stop)))
        try:
            yield f"postgresql://{user}@127.0.0.1:{port.result(30)}/{database}"
        finally:
            stop.set_result(None)
        running.result(30)
