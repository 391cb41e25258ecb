"""Kubernetes, KubeRay and Ray Serve accept every overlay; unknown fields are refused."""

import re
from pathlib import Path
from typing import Any

import jsonschema
import kubernetes_validate
import yaml

from service.serving import application
from service.serving.serve_config import load_serve_config
from tests.deploy.overlays import ROOT, containers, each_overlay, pods, ray_service, rendered, serve_config

OF_OPERATORS = {"RayService", "ExternalSecret", "PrometheusRule", "ServiceMonitor", "Gateway", "HTTPRoute"}
KUBERNETES = "1.32"


def strict(schema: Any) -> Any:
    """The schema with unknown members refused, as the API server refuses them with strict validation."""
    if isinstance(schema, list):
        return [strict(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    closed = {key: strict(value) for key, value in schema.items()}
    if "properties" in closed and not closed.get("x-kubernetes-preserve-unknown-fields"):
        closed.setdefault("additionalProperties", False)
    if closed.get("x-kubernetes-int-or-string"):
        closed.pop("type", None)
    return closed


def read(name: str) -> Any:
    return strict(yaml.safe_load((Path(__file__).parent / name).read_text()))


def problems(spec: dict[str, Any], schema: Any = None) -> list[str]:
    validator = jsonschema.Draft202012Validator(schema or read("rayservice.schema.yaml"))
    return [f"{error.json_path}: {error.message}" for error in validator.iter_errors(spec)]


@each_overlay
def test_the_ray_service_is_what_kuberay_takes(overlay: str):
    assert rendered(overlay)["RayService", "dp-icl"]["apiVersion"] == "ray.io/v1"
    assert problems(ray_service(overlay)) == []


def test_the_door_is_what_the_gateway_api_takes():
    schemas = read("gateway.schema.yaml")
    door = [one for (kind, _), one in rendered("production").items() if kind in schemas]
    assert len(door) == 3
    for one in door:
        assert one["apiVersion"] == "gateway.networking.k8s.io/v1"
        assert problems(one["spec"], {**schemas[one["kind"]], "$defs": schemas["$defs"]}) == []


@each_overlay
def test_core_kinds_are_what_kubernetes_takes(overlay: str):
    """Pod templates of the RayService, which its schema leaves open, as well."""
    objects = [one for (kind, _), one in rendered(overlay).items() if kind not in OF_OPERATORS]
    assert objects
    for name, template in pods(overlay).items():
        metadata = {"name": name, **template["metadata"]}
        objects.append({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template["spec"]})
    for one in objects:
        kubernetes_validate.validate(one, KUBERNETES, strict=True)


@each_overlay
def test_serve_takes_the_config(overlay: str, tmp_path: Path):
    (tmp_path / "serve.yaml").write_text(ray_service(overlay)["serveConfigV2"])
    config = load_serve_config(tmp_path / "serve.yaml")
    assert config.http_options.host == "0.0.0.0"  # noqa: S104
    assert config.http_options.port == 8000


def leaves(value: Any, path: str = "") -> dict[str, Any]:
    """The values of a config by path, in which an entry of a list is named, not numbered."""
    if isinstance(value, list):
        value = {one["name"]: one for one in value}
    if not isinstance(value, dict):
        return {path: value}
    return {end: leaf for key, one in value.items() for end, leaf in leaves(one, f"{path}/{key}").items()}


def differing(one: dict[str, Any], other: dict[str, Any]) -> set[str]:
    """The paths at which two configs differ, without the name of the application."""
    mine, theirs = leaves(one), leaves(other)
    paths = mine.keys() | theirs.keys()
    return {path.removeprefix("/applications/dp-icl/") for path in paths if mine.get(path) != theirs.get(path)}


def test_serve_configs_differ_where_they_must():
    """Kustomize does not patch text, so each config is written out. A change of only one of them is noticed here."""
    packaged = yaml.safe_load((ROOT / "service" / "serving" / "serve.yaml").read_text())
    local, gpu, production = map(serve_config, ("local", "gpu", "production"))
    assert differing(packaged, local) == {"/proxy_location", "/http_options/host", "/http_options/port"}
    assert {path.rsplit("/", 1)[0] for path in differing(local, gpu)} == {
        "args",
        "args/engine",
        "deployments/Ingress/ray_actor_options/resources",
        "deployments/PrivateWork/ray_actor_options/resources",
        "deployments/EngineDeployment",
        "deployments/EngineDeployment/autoscaling_config",
        "deployments/EngineDeployment/ray_actor_options",
    }
    assert differing(gpu, production) == {
        "deployments/Ingress/num_replicas",
        "deployments/Ingress/max_replicas_per_node",
        "deployments/EmbedderDeployment/num_replicas",
    }


@each_overlay
def test_serve_queues_nothing(overlay: str):
    """Serve's router would release a queue at four requests a second."""
    for one in serve_config(overlay)["applications"][0]["deployments"]:
        assert not {"max_ongoing_requests", "max_queued_requests"} & one.keys()
    for one in (
        application.Ingress,
        application.PrivateWork,
        application.EngineDeployment,
        application.EmbedderDeployment,
        application.TurnsDeployment,
    ):
        assert one.max_ongoing_requests > 10_000, "as many as DPICL_MAX_QUERIES_IN_FLIGHT may allow"
        assert one.max_queued_requests == -1


@each_overlay
def test_serve_writes_no_times(overlay: str):
    config = serve_config(overlay)
    for logging in (config["logging_config"], *(one["logging_config"] for one in config["applications"])):
        assert logging["enable_access_log"] is False


@each_overlay
def test_versions_are_those_of_the_package(overlay: str):
    locked = re.search(r"^ray==(\S+)", (ROOT / "requirements.lock").read_text(), re.MULTILINE)
    version = re.search(r'^version = "(.+)"', (ROOT / "pyproject.toml").read_text(), re.MULTILINE)
    assert locked
    assert version
    assert ray_service(overlay)["rayClusterConfig"]["rayVersion"] == locked[1]
    for name, template in pods(overlay).items():
        expected = "dp-icl-gpu" if name == "engine" else "dp-icl"
        assert {container["image"] for container in containers(template)} == {f"{expected}:{version[1]}"}
