"""How long `dpicl serve` takes to start, against the least that Ray Serve takes: a bare `ray.init` and an empty app.

Both start in the same run. For the service, the output shows each step by the clock, and the processor time of each
process when `/readyz` first returns 200. Steps overlap on several cores; processor time can be trusted even on a busy
machine. `--quick` leaves out the second run of each.

    python benchmarks/startup.py            # a minute and a half on two idle cores
    python benchmarks/startup.py --quick    # half of it
"""

from __future__ import annotations

import argparse
import os
import socket
import statistics
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx
import psutil

ROOT = Path(__file__).parents[1]
SERVE = "import sys; sys.argv = ['dpicl', *sys.argv[1:]]; from service.cli import main; main()"
EMPTY = """
import os, sys
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
import ray
from ray import serve
ray.init(address="local", include_dashboard=False, object_store_memory=256 * 2**20, logging_level="ERROR")

@serve.deployment(ray_actor_options={"num_cpus": 0.2})
class Empty:
    async def __call__(self, _request):
        return "ready"

serve.start(http_options={"host": "127.0.0.1", "port": int(sys.argv[1])})
serve.run(Empty.bind(), route_prefix="/")
import signal
signal.pause()
"""
STEPS = {  # a step is over when its condition holds for the processes' names and titles
    "imports, key and database checked": lambda names: "gcs_server" in names,
    "Ray's own processes": lambda names: "ray::ServeController" in names or "ray::ProxyActor" in names,
    "Serve's controller and proxy, building the application": lambda names: "ray::ServeReplica" in names,
}
LAST = "replicas: imports, model, database, first answer"


def names_of(processes: list[psutil.Process]) -> str:
    found = []
    for process in processes:
        try:
            found.append(process.name() + " " + " ".join(process.cmdline()[:1]))
        except psutil.Error:
            continue
    return "\n".join(found)


def cpu_of(processes: list[psutil.Process]) -> dict[str, float]:
    """Processor seconds by kind of process."""
    used: dict[str, float] = {}
    for process in processes:
        try:
            title = process.cmdline()[0] if process.cmdline()[0].startswith("ray::") else process.name()
            if title.startswith("python"):
                title = next((Path(part).stem for part in process.cmdline()[1:] if part.endswith(".py")), "driver")
            name = title.split("ray::")[-1].split(".")[0].split(":")[-1] if "ray::" in title else title
            times = process.cpu_times()
            used[name] = used.get(name, 0.0) + times.user + times.system
        except psutil.Error:
            continue
    return used


def start(script: str, args: list[str], port: int, path: str, folder: str) -> tuple[dict[str, float], dict[str, float]]:
    """Start a script, wait until the path returns 200, and stop it.

    Returns:
        Seconds of each step by the clock, and processor seconds by kind of process.
    """
    environment = {
        **os.environ,
        "PYTHONPATH": str(ROOT),
        "DPICL_DEVELOPMENT": "true",
        "DPICL_DATABASE_URL": f"sqlite:///{folder}/startup.sqlite",
    }
    began = time.monotonic()
    with (Path(folder) / "log").open("wb") as log:
        process = subprocess.Popen([sys.executable, "-c", script, *args], env=environment, stdout=log, stderr=log)
    try:
        seconds: dict[str, float] = {}
        steps, since = list(STEPS.items()), began
        while True:
            assert process.poll() is None, (Path(folder) / "log").read_text()
            if steps and steps[0][1](names_of(psutil.Process(process.pid).children(recursive=True))):
                now = time.monotonic()
                seconds[steps.pop(0)[0]] = now - since
                since = now
            try:
                patience = 0.2 if steps else 30  # the proxy lets callers wait until there is a replica
                if httpx.get(f"http://127.0.0.1:{port}{path}", timeout=patience).status_code == 200:
                    break
            except httpx.TransportError:
                pass
            time.sleep(0.1)
        seconds[LAST] = time.monotonic() - since
        itself = psutil.Process(process.pid)
        return seconds, cpu_of([itself, *itself.children(recursive=True)])
    finally:
        process.terminate()
        process.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def main() -> None:
    """Measure the service and the empty app."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="each once")
    runs = 1 if parser.parse_args().quick else 2
    ready: dict[str, list[float]] = {"empty": [], "service": []}
    used: dict[str, list[float]] = {"empty": [], "service": []}
    for _ in range(runs):
        for name in ready:
            port = free_port()
            with TemporaryDirectory() as folder:
                if name == "empty":
                    steps, processor = start(EMPTY, [str(port)], port, "/", folder)
                else:
                    steps, processor = start(SERVE, ["serve", "--port", str(port)], port, "/readyz", folder)
            ready[name].append(sum(steps.values()))
            used[name].append(sum(processor.values()))
    print(f"{'dpicl serve':55} seconds")
    for step, seconds in steps.items():
        print(f"{step:55} {seconds:7.1f}")
    print(f"\n{'processor time of':55} seconds")
    for name, seconds in sorted(processor.items(), key=lambda one: -one[1]):
        print(f"{name:55} {seconds:7.1f}")
    clock = {name: statistics.mean(values) for name, values in ready.items()}
    work = {name: statistics.mean(values) for name, values in used.items()}
    print(f"\nready after {clock['service']:.1f} s; an empty app {clock['empty']:.1f} s", end="; ")
    print(f"ratio {clock['service'] / clock['empty']:.2f}")
    print(f"processor time {work['service']:.1f} s; an empty app {work['empty']:.1f} s", end="; ")
    print(f"ratio {work['service'] / work['empty']:.2f}")


if __name__ == "__main__":
    main()
