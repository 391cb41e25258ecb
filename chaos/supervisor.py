"""A supervisor that restarts a ``dpicl serve`` that exits or hangs, as Kubernetes restarts a container."""

import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

import psutil

from tests.processes import answers

_TICK_S = 0.5
_PROBE_EVERY_S = 5.0
_PROBE_TIMEOUT_S = 20.0
_HUNG_S = 240.0
_STARTUP_S = 600.0
_STOP_S = 60.0
_GRACE_S = 15.0


class Supervisor:
    """Runs a command until :meth:`stop`, and keeps track of all its descendants.

    Args:
        command: command that starts the service.
        environment: environment of the service.
        url: address of the service; ``/healthz`` is its liveness probe.
        log: file for the service's output, across restarts.

    Attributes:
        starts: Unix times of all starts.
        reasons: reasons for the restarts, one word each.
        orphans: processes that outlived their service by 15 s, and had to be killed.
    """

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], url: str, log: Path) -> None:
        self._command = command
        self._environment = dict(environment)
        self._url = url
        self._log = log
        self.starts: list[float] = []
        self.reasons: list[str] = []
        self.orphans: list[str] = []
        self._seen: set[psutil.Process] = set()
        self._process: psutil.Popen | None = None
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._supervise, name="supervisor", daemon=True)

    def start(self) -> None:
        """Start the service, and watch it from now on."""
        self._launch()
        self._thread.start()

    def stop(self) -> list[str]:
        """Stop the service as an operator does; kill any processes left behind, and return their names."""
        self._stopping.set()
        self._thread.join(_GRACE_S + 2 * _PROBE_TIMEOUT_S)
        self._look()
        assert self._process is not None
        if self._process.is_running():
            with suppress(psutil.NoSuchProcess):
                self._process.send_signal(signal.SIGINT)
            with suppress(psutil.TimeoutExpired, subprocess.TimeoutExpired):
                self._process.wait(_STOP_S)
        return self._clear()

    def processes(self, title: str = "") -> list[psutil.Process]:
        """The service's running processes whose command lines contain ``title``."""
        self._look()
        return [process for process in self._seen.copy() if title in _title(process)]

    def _launch(self) -> None:
        self.starts.append(time.time())
        with self._log.open("ab") as sink:
            self._process = psutil.Popen(
                self._command,
                env=self._environment,
                stdin=subprocess.DEVNULL,
                stdout=sink,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        self._seen.add(psutil.Process(self._process.pid))

    def _supervise(self) -> None:
        alive_at: float | None = None  # None until the first successful probe after a start
        probed = time.monotonic()
        while not self._stopping.wait(_TICK_S):
            self._look()
            assert self._process is not None
            reason = "" if self._process.poll() is None else "exited"
            if not reason and time.monotonic() - probed >= _PROBE_EVERY_S:
                alive = answers(f"{self._url}/healthz", _PROBE_TIMEOUT_S)
                probed = time.monotonic()
                alive_at = probed if alive else alive_at
                late = time.time() - self.starts[-1] > _STARTUP_S if alive_at is None else probed - alive_at > _HUNG_S
                reason = "hung" if late else ""
            if reason:
                self.reasons.append(reason)
                self.orphans += self._clear(hung=reason == "hung")
                alive_at = None
                if not self._stopping.is_set():
                    self._launch()

    def _look(self) -> None:
        """Record the service's descendants while their parents live: an orphan has lost the link to its parent."""
        for process in [process for process in self._seen.copy() if not _runs(process)]:
            self._seen.discard(process)
        assert self._process is not None
        with suppress(psutil.NoSuchProcess):
            self._seen.update(psutil.Process(self._process.pid).children(recursive=True))

    def _clear(self, *, hung: bool = False) -> list[str]:
        """Kill what is left of the service: at once if it hangs, otherwise after a time in which it may end."""
        deadline = time.monotonic() + (0 if hung else _GRACE_S)
        while (left := [process for process in self._seen.copy() if _runs(process)]) and time.monotonic() < deadline:
            time.sleep(_TICK_S / 5)
        names = [_title(process).split("(")[0][:80] for process in left]
        for process in left:
            with suppress(psutil.NoSuchProcess):
                process.kill()
        psutil.wait_procs(left, timeout=_GRACE_S)
        self._seen.clear()
        return [] if hung else names


def _runs(process: psutil.Process) -> bool:
    try:
        return bool(process.is_running() and process.status() != psutil.STATUS_ZOMBIE)
    except psutil.NoSuchProcess:
        return False


def _title(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""
