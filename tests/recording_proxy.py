"""A company's proxy, which notes all that it is asked and passes nothing on."""

import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager

EVERY_NAME = tuple(
    name for kind in ("http", "https", "all", "grpc", "ws") for name in (f"{kind}_proxy", f"{kind}_proxy".upper())
)
"""The variables by which programs find a proxy."""


class RecordingProxy:
    """A proxy of HTTP.

    Attributes:
        url: address of the proxy.
        seen: beginning of what each connection sent.
    """

    def __init__(self, url: str) -> None:
        self.url = url
        self.seen: list[bytes] = []

    def environment(self) -> dict[str, str]:
        """The variables of an environment that sends everything here."""
        return dict.fromkeys(EVERY_NAME, self.url)


@contextmanager
def recording_proxy() -> Iterator[RecordingProxy]:
    """Run a proxy until the block ends."""

    class Handler(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            proxy.seen.append(self.request.recv(65536))
            self.request.sendall(b"HTTP/1.1 503 Not here\r\nContent-Length: 0\r\nConnection: close\r\n\r\n")

    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        proxy = RecordingProxy(f"http://127.0.0.1:{server.server_address[1]}")
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield proxy
        finally:
            server.shutdown()
            thread.join()
