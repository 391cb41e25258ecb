"""What is tried on a cluster, and what is claimed of each; every case prints a line of the table."""

from __future__ import annotations

import base64
import json
import os
import secrets
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

import httpx

from chaos import toys
from chaos.invariants import collect, problems
from chaos.load import Load, Received
from exemplar_store import EncryptionKeyError
from tests.cluster.build import ROOT
from tests.cluster.control_plane import Cluster
from tests.cluster.surroundings import PASSWORD, SERVERS
from tests.documented import DOCS, blocks, run
from tests.e2e.serving import opened

OVERLAYS = Path(__file__).parent / "overlays"
NAMESPACE = "dp-icl"
_READY_WITHIN_S = 900.0
_SERVICE_POD = "app.kubernetes.io/component=service"
_PODS = 2
"""Service pods of the overlay for this cluster."""


@dataclass(frozen=True)
class Result:
    """A line of the table.

    Attributes:
        case: fault or change that was tried.
        claim: observation that must be made.
        seen: observation that was made.
        kept: whether it was.
    """

    case: str
    claim: str
    seen: str
    kept: bool


class Repeating(Load):
    """Callers that repeat a question once, within five seconds, if its answer did not come."""

    lost: list[tuple[Received, Received]]
    """Questions that failed twice, with both responses."""
    repeated: int = 0

    def ask(self, client: httpx.Client, task: str, question: str) -> Received:
        first = super().ask(client, task, question)
        if first.status in (200, 402):
            return first
        self.repeated += 1
        self._stopping.wait(4.0)
        with self.client() as fresh:  # as a caller behind a Service: another pod may take it
            second = super().ask(fresh, task, question)
        if second.status not in (200, 402):
            self.lost.append((first, second))
        return second


@dataclass
class Deployed:
    """The service on a cluster, with what :func:`chaos.invariants.collect` wants to know."""

    cluster: Cluster
    environment: dict[str, str]
    tokens: dict[str, str]
    url: str
    folder: Path
    load: Load = field(init=False)
    endpoint: None = None
    wrong: list[str] = field(default_factory=list)

    def start_load(self, callers: int) -> Repeating:
        """Let callers ask until the load is stopped."""
        load = Repeating(
            self.url,
            self.tokens["analyst"],
            callers,
            seed=secrets.randbits(32),
            forbidden=(toys.EXEMPLAR_CANARY, toys.UNIT_CANARY, *self.tokens.values()),
        )
        load.lost = []
        load.start()
        self.cluster.wait("two questions are answered", lambda: load.statuses()[200] > 1, 120)
        self.load = load
        return load

    def pods(self, selector: str) -> list[dict[str, Any]]:
        """Pods of the service that are not about to go."""
        found = self.cluster.get("-n", NAMESPACE, "pods", "-l", selector)["items"]
        return [one for one in found if "deletionTimestamp" not in one["metadata"]]

    def ready(self, selector: str, number: int) -> bool:
        """Whether at least this number of pods is ready."""
        return sum(_is_ready(pod) for pod in self.pods(selector)) >= number

    def broken(self) -> list[str]:
        """Invariants that do not hold after everything."""
        return problems(collect(self))  # type: ignore[arg-type]


def manifests(cluster: Cluster) -> list[Result]:
    """The API server takes every overlay, with strict validation and the kinds of other projects."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    refused = []
    for overlay in ("local", "gpu", "production"):
        rendered = cluster.kubectl("kustomize", str(ROOT / "deploy/overlays" / overlay))
        done = cluster.kubectl(
            *("apply", "--dry-run=server", "--validate=strict", "-f", "-"), input=rendered, check=False
        )
        refused += [
            line
            for line in done.splitlines()
            if "(server dry run)" not in line and not line.startswith("Warning: resource namespaces/")
        ]
    return [Result("manifests", "the API server takes all overlays", "; ".join(refused) or "no refusal", not refused)]


def local(cluster: Cluster) -> list[Result]:
    """The overlay ``local``, from nothing to a private answer."""
    for name in ("data", "witness"):
        folder = cluster.folder / "volumes" / f"local-{name}"
        folder.mkdir(parents=True, exist_ok=True)
        os.chown(folder, 10001, 10001)
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": {"name": f"dp-icl-{name}"},
                "spec": {
                    "capacity": {"storage": "5Gi"},
                    "accessModes": ["ReadWriteOnce"],
                    "hostPath": {"path": str(folder), "type": "Directory"},
                    "claimRef": {"namespace": NAMESPACE, "name": f"dp-icl-{name}"},
                },
            }
        )
    _create_secrets(cluster, {"dp-icl-encryption-key": {"key": _key()}})
    began = time.monotonic()
    cluster.kubectl("apply", "-k", str(OVERLAYS / "local"))
    url = _address(cluster)
    early: list[str] = []

    def ready() -> bool:
        slices = cluster.get("-n", NAMESPACE, "endpointslices", "-l", "kubernetes.io/service-name=dp-icl")["items"]
        if not any(one["conditions"]["ready"] for part in slices for one in part["endpoints"] or ()):
            return False
        try:
            status = httpx.get(f"{url}/readyz", timeout=10, trust_env=False).status_code
        except httpx.HTTPError as error:
            early.append(type(error).__name__)
            return False
        early.extend([str(status)] if status != 200 else [])
        return status == 200

    cluster.wait("local is ready", ready, _READY_WITHIN_S)
    seconds = time.monotonic() - began
    (pod,) = cluster.get("-n", NAMESPACE, "pods", "-l", _SERVICE_POD)["items"]
    answer = _first_answer(cluster, pod["metadata"]["name"], url)
    _delete(cluster)
    return [
        Result(
            "local",
            "its Service has it as soon as it answers, and no sooner",
            f"{seconds:.0f} s; before: {early or 'nothing'}",
            not early,
        ),
        Result("local", "a private answer", answer, answer.startswith("200")),
    ]


def production(cluster: Cluster) -> list[Result]:
    """The overlay ``production``: what breaks under load, and what is lost."""
    with _deployed(cluster) as (service, seconds):
        results = [Result("production", "ready", f"{seconds:.0f} s", True)]
        for case in (worker_killed, head_killed, database_killed, policies, departures, key_rotated, upgraded):
            try:
                results += case(service)
            except (TimeoutError, RuntimeError) as error:
                results.append(Result(case.__name__, "no failure", str(error)[:300], False))
            print(table(results[-1:]), flush=True)
        broken = service.broken()
        results.append(Result("invariants", "hold after everything", "; ".join(broken[:5]) or "all hold", not broken))
    return results


def worker_killed(service: Deployed) -> list[Result]:
    """A service pod is killed under load."""
    return [_under_load(service, "a service pod is killed", lambda: _kill(service, _SERVICE_POD))]


def head_killed(service: Deployed) -> list[Result]:
    """The head is killed under load; its state comes back from Redis."""
    engines = {pod["metadata"]["uid"] for pod in service.pods("app.kubernetes.io/component=engine")}
    result = _under_load(service, "the head is killed", lambda: _kill(service, "app.kubernetes.io/component=head"))
    left = {pod["metadata"]["uid"] for pod in service.pods("app.kubernetes.io/component=engine")}
    held = _in_redis(service, toys.EXEMPLAR_CANARY) + _in_redis(service, toys.QUESTION_CANARY)
    planted = _in_redis(service, "EmbedderDeployment")
    return [
        result,
        Result(
            "the head is killed",
            "engines are not loaded again",
            f"{len(engines & left)} of {len(engines)} stay",
            engines <= left,
        ),
        Result(
            "Ray's state in Redis",
            "holds no exemplar and no question",
            f"{held} found; names of deployments found: {planted}",
            not held and planted > 0,
        ),
    ]


def database_killed(service: Deployed) -> list[Result]:
    """The ledger's PostgreSQL is killed under load."""

    def kill() -> None:
        service.cluster.kubectl("-n", "databases", "delete", "pod", "-l", "app=ledger", "--grace-period=0", "--force")
        service.cluster.wait_for_rollout("databases", "ledger")

    return [_under_load(service, "the ledger's database is killed", kill)]


def upgraded(service: Deployed) -> list[Result]:
    """A change of the pods' template under load: KubeRay starts a second cluster beside the first."""

    def change() -> None:
        patch = {
            "spec": {
                "rayClusterConfig": {"headGroupSpec": {"template": {"metadata": {"annotations": {"changed": "1"}}}}}
            }
        }
        before = _active(service)
        service.cluster.kubectl(
            "-n", NAMESPACE, "patch", "rayservice", "dp-icl", "--type=merge", "-p", json.dumps(patch)
        )
        service.cluster.wait("the new cluster serves", lambda: _active(service) not in ("", before), _READY_WITHIN_S)
        service.cluster.wait("the old cluster is gone", lambda: _clusters(service) == 1, 600)

    return [_under_load(service, "an upgrade", change)]


def departures(service: Deployed) -> list[Result]:
    """A pod at rest is deleted."""
    seconds = {}
    for part in ("service", "engine", "head"):
        selector = f"app.kubernetes.io/component={part}"
        (pod, *_), number = service.pods(selector), len(service.pods(selector))
        began = time.monotonic()
        service.cluster.kubectl(
            *("-n", NAMESPACE, "delete", "pod", pod["metadata"]["name"], "--timeout=400s"), timeout=420
        )
        seconds[part] = round(time.monotonic() - began)
        service.cluster.wait("another pod is ready", lambda s=selector, n=number: service.ready(s, n), _READY_WITHIN_S)
    return [Result("departures", "a service pod at rest is gone within 20 s", f"{seconds}", seconds["service"] <= 20)]


def key_rotated(service: Deployed) -> list[Result]:
    """The encryption key is changed by the commands of docs/kubernetes.md, under load."""

    def key() -> str:
        return str(service.cluster.get("-n", NAMESPACE, "secret", "dp-icl-encryption-key")["data"]["key"])

    def rotate() -> None:
        shown = blocks(DOCS / "kubernetes.md", "sh")
        (pod,) = [line for one in shown for line in one.splitlines() if line.startswith("POD=")]
        (change,) = [one for one in shown if "rewrap" in one]
        run(f"{pod}\n{change}", service.folder, service.cluster.operator())
        _kill(service, _SERVICE_POD)  # the pod that comes in its place has the new key alone

    before = key()
    kept = _under_load(service, "the encryption key is changed", rotate)
    try:
        with opened(service.environment):
            old = "opens the database"
    except EncryptionKeyError:
        old = "is refused"
    service.environment["DPICL_ENCRYPTION_KEY"] = base64.b64decode(key()).decode()
    with opened(service.environment) as records:
        new = f"{records.store.list()[0].name} is read"
    changed = key() != before and old == "is refused"
    return [kept, Result("the encryption key is changed", "the old one is refused", f"old: {old}; new: {new}", changed)]


def policies(service: Deployed) -> list[Result]:
    """What pods outside and inside may reach."""
    address = {part: service.pods(f"app.kubernetes.io/component={part}")[0] for part in ("head", "service", "engine")}
    http = (address["service"]["status"]["podIP"], 8000)
    head = address["head"]["status"]["podIP"]
    store = {
        name: (service.cluster.get("-n", "databases", "service", name)["spec"]["clusterIP"], port)
        for name, port in (("ledger", 5432), ("redis", 6379))
    }
    for namespace in ("elsewhere", "envoy-gateway-system"):
        _start_probe(service.cluster, namespace)
    time.sleep(20)  # until the network has heard of them
    outside = [_reaches(service.cluster, "elsewhere", "probe", *to) for to in (http, (head, 6379), (head, 8265))]
    door = [_reaches(service.cluster, "envoy-gateway-system", "probe", *to) for to in (http, (head, 8265))]
    inside = {
        part: [_reaches(service.cluster, NAMESPACE, pod["metadata"]["name"], *to) for to in store.values()]
        for part, pod in address.items()
    }
    return [
        Result("policies", "pods elsewhere reach neither HTTP nor Ray", f"{outside}", not any(outside)),
        Result("policies", "the door reaches HTTP, and not Ray", f"{door}", door == [True, False]),
        Result(
            "policies",
            "of ledger and Redis service pods reach the first, the head the second, engines neither",
            f"{inside}",
            inside == {"head": [False, True], "service": [True, False], "engine": [False, False]},
        ),
    ]


CASES: dict[str, Callable[[Cluster], list[Result]]] = {
    "manifests": manifests,
    "local": local,
    "production": production,
}


def table(results: Sequence[Result]) -> str:
    """The results as Markdown."""
    rows = [f"| {'yes' if one.kept else '**no**'} | {one.case} | {one.claim} | {one.seen} |" for one in results]
    return "\n".join(["| kept | case | claim | seen |", "|---|---|---|---|", *rows])


# --- parts ---


@contextmanager
def _deployed(cluster: Cluster) -> Iterator[tuple[Deployed, float]]:
    """The overlay for this cluster, filled with toys, and the seconds until it was ready."""
    address = {
        name: cluster.get("-n", "databases", "service", name)["spec"]["clusterIP"] for name in ("ledger", "witness")
    }
    url = "postgresql://dpicl:{}@{}/dpicl"
    key = _key()
    environment = {
        "DPICL_DATABASE_URL": url.format(PASSWORD, address["ledger"]),
        "DPICL_WITNESS_URL": url.format(PASSWORD, address["witness"]),
        "DPICL_ENCRYPTION_KEY": key,
    }
    _create_secrets(
        cluster,
        {
            "dp-icl-encryption-key": {"key": key},
            "dp-icl-database": {"url": url.format(PASSWORD, "ledger.databases.svc.cluster.local")},
            "dp-icl-witness": {"url": url.format(PASSWORD, "witness.databases.svc.cluster.local")},
            "dp-icl-redis": {"password": PASSWORD, "ca.crt": (cluster.folder / "ca.crt").read_text()},
        },
    )
    began = time.monotonic()
    cluster.kubectl("apply", "-k", str(OVERLAYS / "production"))
    cluster.wait(
        "the database has its tables",
        lambda: cluster.get("-n", NAMESPACE, "job", "dp-icl-migrate")["status"].get("succeeded"),
        300,
    )
    service = Deployed(cluster, environment, {}, _address(cluster), cluster.folder / "run")
    (service.folder).mkdir(exist_ok=True)
    cluster.wait("the service pods are ready", lambda: service.ready(_SERVICE_POD, _PODS), _READY_WITHIN_S)
    seconds = time.monotonic() - began
    with opened(environment) as records:
        toys.fill(records, remote_engine=False, answers=4000)
        for name in ("analyst", "admin"):
            _, service.tokens[name] = records.keys.create(name, name)  # type: ignore[arg-type]
    try:
        yield service, seconds
    finally:
        _delete(cluster)


def _under_load(service: Deployed, name: str, inflict: Callable[[], None], *, callers: int = 4) -> Result:
    load = service.start_load(callers)
    began = time.monotonic()
    try:
        inflict()
        moment = time.monotonic()
        service.cluster.wait("a question is answered", lambda: load.answered_after(moment) is not None, 300)
        time.sleep(20)
    finally:
        load.stop()
    longest = max((one.until - one.at for one in load.received if one.status == 200), default=0.0)
    statuses = dict(sorted(load.statuses().items()))
    kinds = sorted({second.slug or "no response" for _, second in load.lost})
    seen = (
        f"{len(load.received)} asked in {time.monotonic() - began:.0f} s {statuses}, {load.repeated} repeated,"
        f" {len(load.lost)} failed twice {kinds or ''}; the slowest took {longest:.1f} s"
    )
    return Result(name, "no question fails that is asked again once", seen, not load.lost and not load.leaks)


def _kill(service: Deployed, selector: str) -> None:
    pod = service.pods(selector)[0]["metadata"]["name"]
    service.cluster.kubectl("-n", NAMESPACE, "delete", "pod", pod, "--grace-period=0", "--force")
    number = _PODS if selector == _SERVICE_POD else 1
    service.cluster.wait("another pod is ready", lambda: service.ready(selector, number), _READY_WITHIN_S)


def _active(service: Deployed) -> str:
    status = service.cluster.get("-n", NAMESPACE, "rayservice", "dp-icl").get("status", {})
    return status.get("activeServiceStatus", {}).get("rayClusterName", "")


def _clusters(service: Deployed) -> int:
    return len(service.cluster.get("-n", NAMESPACE, "rayclusters")["items"])


def _in_redis(service: Deployed, text: str) -> int:
    """How often a text stands in what Redis wrote to its disk."""
    files = (service.cluster.folder / "volumes/redis").rglob("*")
    return sum(file.read_bytes().count(text.encode()) for file in files if file.is_file())


def _start_probe(cluster: Cluster, namespace: str) -> None:
    """A pod named ``probe`` that does nothing."""
    cluster.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace}},
        {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"namespace": namespace, "name": "probe"},
            "spec": {
                "terminationGracePeriodSeconds": 1,
                "containers": [{"name": "probe", "image": SERVERS, "command": ["sleep", "infinity"]}],
            },
        },
    )
    cluster.kubectl("-n", namespace, "wait", "pod/probe", "--for=condition=Ready", "--timeout=60s")


def _reaches(cluster: Cluster, namespace: str, pod: str, address: str, port: int) -> bool:
    """Whether a pod reaches a port."""
    script = f"timeout 5 bash -c '</dev/tcp/{address}/{port}' 2> /dev/null && echo reached || echo refused"
    answer = cluster.kubectl("-n", namespace, "exec", pod, "--", "bash", "-c", script).strip()
    return {"reached": True, "refused": False}[answer]


def _first_answer(cluster: Cluster, pod: str, url: str) -> str:
    """The status and body of a first private answer, with everything done in the pod as the docs show."""

    def dpicl(*arguments: str, input: str | None = None) -> str:
        return cluster.kubectl("-n", NAMESPACE, "exec", "-i", pod, "-c", "ray", "--", *arguments, input=input)

    there = PurePosixPath("/var/lib/dp-icl")
    for file in ("tickets.jsonl", "plan.yaml"):
        dpicl("sh", "-c", f"cat > {there / file}", input=(ROOT / "examples/support" / file).read_text())
    fields = [word for name in ("text", "team", "desk", "reply") for word in ("--field", name)]
    dpicl(
        "dpicl",
        "kb",
        "create",
        "support",
        "--epsilon",
        "8",
        "--delta",
        "2e-4",
        "--public-size",
        "900",
        "--yes",
        *fields,
    )
    dpicl("dpicl", "kb", "ingest", "support", str(there / "tickets.jsonl"))
    dpicl("dpicl", "plan", "sign", str(there / "plan.yaml"), "--yes")
    key = dpicl("dpicl", "keys", "create", "analyst", "--role", "analyst").strip().splitlines()[-1]
    response = httpx.post(
        f"{url}/v1/tasks/support.team/answers",
        json={"query": "I was charged twice"},
        headers={"Authorization": f"Bearer {key}"},
        timeout=150,
        trust_env=False,
    )
    return f"{response.status_code} {response.text[:80]}"


def _address(cluster: Cluster) -> str:
    return f"http://{cluster.get('-n', NAMESPACE, 'service', 'dp-icl')['spec']['clusterIP']}"


def _create_secrets(cluster: Cluster, values: dict[str, dict[str, str]]) -> None:
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}})
    for name, data in values.items():
        cluster.apply(
            {
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": {"namespace": NAMESPACE, "name": name},
                "stringData": data,
            }
        )


def _key() -> str:
    return base64.b64encode(secrets.token_bytes(32)).decode()


def _is_ready(pod: dict[str, Any]) -> bool:
    conditions = pod["status"].get("conditions", [])
    return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)


def _delete(cluster: Cluster) -> None:
    # First what KubeRay cleans up by a job, which cannot be made in a namespace that is about to go: it would never go.
    cluster.kubectl("-n", NAMESPACE, "delete", "rayservice", "dp-icl", "--wait=false")
    cluster.wait("KubeRay has cleaned up", lambda: not cluster.get("-n", NAMESPACE, "rayclusters")["items"], 600)
    cluster.kubectl("delete", "namespace", NAMESPACE, "--timeout=300s", timeout=320)
