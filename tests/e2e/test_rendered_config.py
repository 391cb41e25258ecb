"""Each overlay as rendered, given to a local Ray as KubeRay would give it.

The differences from the manifests are written below: addresses, files, the numbers of GPUs and replicas, and the
language model.
"""

import base64
import json
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from pathlib import Path
from typing import Any

import httpx
import pytest

from accounting.plans.plan import calibrate_plan, load_plan
from service.answering.plans.signing import sign
from service.settings import Settings
from tests.deploy.overlays import ROOT, environment, groups, pods, serve_config, service_pod, settings
from tests.e2e.kuberay import Pod, ray_started
from tests.e2e.serving import DPICL
from tests.private_file import private_file
from tests.processes import wait_for
from tests.service.conftest import PLAN, make_records

pytestmark = [pytest.mark.lengthy, pytest.mark.service]

IMAGE = ROOT / "deploy" / "images" / "cpu.Dockerfile"
OF_THE_FILE_SYSTEM = {"PATH", "HOME", "MPLCONFIGDIR"}


def here(config: dict[str, Any], pod: Pod) -> dict[str, Any]:
    """The Serve config for this machine: another address, one node, and no GPU."""
    config = deepcopy(config)
    config["http_options"] |= {"host": "127.0.0.1", "port": pod.ports[8000]}
    (application,) = config["applications"]
    if application["args"]["engine"] != "nearest_exemplar":
        assert application["args"]["engine"]["name"] == "vllm"
        application["args"]["engine"] = "nearest_exemplar"
    for deployment in application["deployments"]:
        if "num_gpus" in deployment["ray_actor_options"]:
            deployment["ray_actor_options"]["num_gpus"] = 0
        if "max_replicas_per_node" in deployment:
            deployment["num_replicas"] = deployment["max_replicas_per_node"]
    return config


@contextmanager
def running(overlay: str, folder: Path, ledger: str, witness: str) -> Iterator[tuple[Pod, str]]:
    """Run the overlay's service pod on a database migrated as in the manifests, and filled; yield it and an API key."""
    template = pods(overlay)[service_pod(overlay)]
    (container,) = template["spec"]["containers"]
    key_file = private_file(folder / "key", base64.b64encode(secrets.token_bytes(32)))
    changed = {"DPICL_DATABASE_URL": ledger, "DPICL_WITNESS_URL": witness, "DPICL_ENCRYPTION_KEY_FILE": str(key_file)}
    image = {name: value for name, value in environment(IMAGE).items() if name not in OF_THE_FILE_SYSTEM}
    given = {**image, **{name: one.get("value") for name, one in settings(container).items()}, **changed}
    if "DPICL_LATENCY_GRAIN_MS" in given:  # no language model here
        given["DPICL_LATENCY_GRAIN_MS"] = "1000"
    assert None not in given.values(), "a reference to a secret that was not replaced"
    migrated(overlay, given)
    key = filled(ledger, witness, key_file, folder)
    parameters = dict(groups(overlay)[service_pod(overlay)]["rayStartParams"])
    if "resources" in parameters:  # KubeRay's shell removes one pair of quotes
        parameters["resources"] = json.loads(parameters["resources"])
    with ray_started(folder, given, {"num-cpus": "8", **parameters}) as pod:
        yield pod, key


def migrated(overlay: str, given: dict[str, str]) -> None:
    """Run the pod's first container, which waits for the migration job if there is one."""
    (first,) = pods(overlay)[service_pod(overlay)]["spec"]["initContainers"]
    without_key = {name: value for name, value in given.items() if name != "DPICL_ENCRYPTION_KEY_FILE"}
    with started(first, without_key) as waiting:
        if "dp-icl-migrate" in pods(overlay):
            (job,) = pods(overlay)["dp-icl-migrate"]["spec"]["containers"]
            with started(job, without_key) as migration:
                assert migration.wait(60) == 0
        assert waiting.wait(60) == 0


@contextmanager
def started(container: dict[str, Any], given: dict[str, str]) -> Iterator[subprocess.Popen[bytes]]:
    program, *arguments = container["command"]
    assert program == "dpicl"
    with subprocess.Popen([DPICL, *arguments], env=given) as process:
        try:
            yield process
        finally:
            process.kill()


def filled(ledger: str, witness: str, key_file: Path, folder: Path) -> str:
    """Do what an admin does first: make a knowledge base, a signed plan, and an API key."""
    settings = Settings(database_url=ledger, witness_url=witness, encryption_key_file=key_file)
    records = make_records(folder, settings=settings)
    sign(records, calibrate_plan(load_plan(PLAN), public_size=60), "test")
    _, token = records.keys.create("ana", "analyst")
    records.database.dispose()
    return token


def ask(pod: Pod, key: str, query: str) -> httpx.Response:
    headers = {"Authorization": f"Bearer {key}"}
    url = pod.url(8000, "/v1/tasks/toys.colour/answers")
    return httpx.post(url, json={"query": query}, headers=headers, timeout=60)


def probes(overlay: str, group: str) -> dict[str, Any]:
    (container,) = pods(overlay)[group]["spec"]["containers"]
    return {name: container[f"{name}Probe"] for name in ("liveness", "readiness")}


def test_local_answers(tmp_path: Path):
    ledger, witness = (f"sqlite:///{tmp_path / name}.sqlite" for name in ("ledger", "witness"))
    with running("local", tmp_path, ledger, witness) as (pod, key):
        config = here(serve_config("local"), pod)
        assert pod.applications(config, token="0" * 64).status_code in (401, 403)
        assert {name: pod.probe(probe) for name, probe in probes("local", "head").items()} == {
            "liveness": 200,
            "readiness": 200,
        }
        pod.deploy(config)
        answer = ask(pod, key, "toy 7?")
        assert answer.status_code == 200, answer.text
        assert answer.json()["label"] in ("red", "blue")
        assert answer.json()["cost"]


def test_production_answers_after_gpu_in_the_same_cluster(tmp_path: Path, new_postgres: Callable[[], str]):
    """The running cluster takes a changed Serve config, as docs/kubernetes.md promises."""
    with running("production", tmp_path, new_postgres(), new_postgres()) as (pod, key):
        ready = probes("production", "service")["readiness"]
        assert pod.probe(ready) == 0
        left = []
        for overlay in ("gpu", "production"):
            pod.deploy(here(serve_config(overlay), pod))
            # As Kubernetes asks: a service that has just started still measures how long answers can take.
            assert wait_for(lambda: pod.probe(ready) == 200, 60)
            answer = ask(pod, key, f"a toy for {overlay}?")
            assert answer.status_code == 200, answer.text
            left.append(answer.json()["cost"]["answers_left"])
        assert left[0] - left[1] == 1
