"""Values of PostgreSQL that Python has no type for, such as a time that is infinite: psycopg reads on after them."""

from typing import Any

import psycopg
from psycopg.abc import Buffer
from psycopg.adapt import Loader
from psycopg.pq import Format

from exemplar_store.rows import Unreadable

_BYTES = psycopg.adapters.types["bytea"].oid


def read_on(connection: psycopg.Connection[Any], query: str) -> None:
    """Let a connection give :class:`Unreadable` for a value that psycopg cannot convert, rather than an error.

    Texts come in the database's own encoding, if the query can be written in it: the server refuses a whole result if
    it cannot convert one of its texts.
    """
    adapters = connection.adapters
    for known in adapters.types:
        for oid, name in ((known.oid, known.name), (known.array_oid, f"{known.name}[]")):
            if oid and (loader := adapters.get_loader(oid, Format.TEXT)) is not None:
                adapters.register_loader(oid, _tolerant(loader, f"the type {name}"))
    if (loader := adapters.get_loader(0, Format.TEXT)) is not None:
        adapters.register_loader(0, _tolerant(loader, "a type of the database's own"))
    own = connection.info.parameter_status("server_encoding")
    if own is None or own == "UTF8" or connection.info.encoding != "utf-8":
        return
    connection.execute(f"SET client_encoding TO {own}")  # the server's word
    try:
        query.encode(connection.info.encoding)
    except (UnicodeEncodeError, psycopg.NotSupportedError):
        connection.execute("SET client_encoding TO UTF8")


def _tolerant(loader: type[Any], kind: str) -> type[Loader]:
    wrong = Unreadable(f"is a value of {kind} that cannot be read; convert it in --query, or leave the column out")

    class Tolerant(Loader):
        def __init__(self, oid: int, context: Any = None) -> None:
            super().__init__(oid, context)
            self._inner = loader(oid, context)

        def load(self, data: Buffer) -> object:
            try:
                value = self._inner.load(data)
                # A database without an encoding gives bytes for text.
                return value.decode() if isinstance(value, bytes) and self.oid != _BYTES else value
            except Exception:  # of whatever kind; it quotes the value
                return wrong

    return Tolerant
