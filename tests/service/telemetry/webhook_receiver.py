"""A real server that webhooks are posted to."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

SECRET_PATH = "/hidden-part"


class Receiver(ThreadingHTTPServer):
    """Answers 204, or what is next of ``statuses``; while ``held`` is set it answers nobody."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.statuses: list[int] = []
        self.received: list[tuple[dict[str, str], str]] = []
        self.came = threading.Event()
        self.held: threading.Event | None = None

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_port}{SECRET_PATH}"

    @property
    def messages(self) -> list[dict]:
        return [json.loads(body) for _, body in self.received]


class Handler(BaseHTTPRequestHandler):
    server: Receiver

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.server.received.append(({name.lower(): value for name, value in self.headers.items()}, body))
        self.server.came.set()
        if self.server.held is not None:
            self.server.held.wait(60)
            return
        self.send_response(self.server.statuses.pop(0) if self.server.statuses else 204)
        self.send_header("Location", f"{self.path}/elsewhere")
        self.end_headers()

    def log_message(self, *_args: object) -> None:
        pass


@contextmanager
def receiving() -> Iterator[Receiver]:
    """A receiver that runs."""
    server = Receiver()
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield server
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
