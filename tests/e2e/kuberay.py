"""KubeRay's work on a RayService, done here: start Ray in a pod's environment, and give it the Serve config."""

import os
import secrets
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import psutil
import pytest

from tests.processes import free_ports

RAY = str(Path(sys.executable).parent / "ray")


@dataclass
class Pod:
    """One Ray node, which is head and worker at once, with every port on loopback.

    Attributes:
        ports: local port for each port in the manifests.
        token: Ray's token, which KubeRay makes.
        log: file with the output of Ray and the replicas.
    """

    ports: dict[int, int]
    token: str
    log: Path

    def url(self, port: int, path: str) -> str:
        return f"http://127.0.0.1:{self.ports[port]}{path}"

    def probe(self, probe: dict[str, Any]) -> int:
        """The status that a probe of the manifests gets; 0 while no process listens."""
        asked = probe["httpGet"]
        try:
            return httpx.get(self.url(asked["port"], asked["path"]), timeout=probe["timeoutSeconds"]).status_code
        except httpx.TransportError:
            return 0

    def applications(self, config: dict[str, Any] | None = None, token: str | None = None) -> httpx.Response:
        """Give Ray a Serve config, as KubeRay's operator does, or ask for the state of its applications."""
        method = "GET" if config is None else "PUT"
        headers = {"Authorization": f"Bearer {token or self.token}"}
        url = self.url(8265, "/api/serve/applications/")
        return httpx.request(method, url, json=config, headers=headers, timeout=60)

    def deploy(self, config: dict[str, Any]) -> None:
        """Give Ray a Serve config and wait until its applications run."""
        response = self.applications(config)
        assert response.status_code == 200, response.text
        for _ in range(240):
            states = self.applications().json()["applications"]
            if states and all(state["status"] == "RUNNING" for state in states.values()):
                return
            assert not any(state["status"] == "DEPLOY_FAILED" for state in states.values()), states
            time.sleep(0.5)
        pytest.fail(f"{states}\n{self.log.read_text()}")


@contextmanager
def ray_started(folder: Path, environment: dict[str, str], parameters: dict[str, str]) -> Iterator[Pod]:
    """Run ``ray start`` until the block ends, then kill it; other tests check how a service stops.

    Args:
        folder: folder for the log.
        environment: the pod's environment.
        parameters: ``rayStartParams`` of the pod's group.
    """
    ports = dict(zip((6379, 8265, 52365, 8000), free_ports(4), strict=True))
    pod = Pod(ports, secrets.token_hex(32), folder / "ray.log")
    with tempfile.TemporaryDirectory(prefix="ray") as session, pod.log.open("wb") as sink:  # sockets need short paths
        command = [
            *(RAY, "start", "--head", "--block"),
            *(f"--{name}={value}" for name, value in parameters.items()),
            *("--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", f"--temp-dir={session}"),
            *(f"--port={ports[6379]}", f"--dashboard-port={ports[8265]}", "--object-store-memory=100000000"),
            f"--dashboard-agent-listen-port={ports[52365]}",
        ]
        variables = {**os.environ, **environment, "RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": pod.token}
        process = subprocess.Popen(command, env=variables, stdout=sink, stderr=subprocess.STDOUT)
        try:
            _wait_for_ray(pod, process)
            yield pod
        finally:
            family = psutil.Process(process.pid).children(recursive=True) if process.poll() is None else []
            process.kill()
            process.wait()
            for one in family:
                with suppress(psutil.NoSuchProcess):
                    one.kill()
            _, alive = psutil.wait_procs(family, timeout=30)
            assert alive == []


def _wait_for_ray(pod: Pod, process: subprocess.Popen[bytes]) -> None:
    for _ in range(240):
        assert process.poll() is None, pod.log.read_text()
        with suppress(httpx.TransportError):
            if pod.applications().status_code == 200:
                return
        time.sleep(0.5)
    pytest.fail(pod.log.read_text())
