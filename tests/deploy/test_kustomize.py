"""The Kustomize overlays, as `kubectl kustomize` renders them. No cluster: what only one could tell is not told."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
import pytest
import yaml

from service.serve_config import load_serve_config

ROOT = Path(__file__).parents[2]
DEPLOY = ROOT / "deploy"
OVERLAYS = ["local", "gpu", "production"]
PORTS_OF_RAY = {6379, 8265, 10001}

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)


@cache
def rendered(overlay: str) -> dict[tuple[str, str], Any]:
    """The overlay's objects by kind and name."""
    if not shutil.which("kubectl"):
        pytest.fail("kubectl 1.27 or later is needed to render deploy/: see https://kubernetes.io/docs/tasks/tools/")
    done = subprocess.run(
        ["kubectl", "kustomize", DEPLOY / "overlays" / overlay], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    objects = list(yaml.safe_load_all(done.stdout))
    named = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(named) == len(objects)
    return named


def ray_service(overlay: str) -> dict[str, Any]:
    return rendered(overlay)["RayService", "dp-icl"]["spec"]


def groups(overlay: str) -> dict[str, dict[str, Any]]:
    cluster = ray_service(overlay)["rayClusterConfig"]
    return {"head": cluster["headGroupSpec"], **{g["groupName"]: g for g in cluster.get("workerGroupSpecs", [])}}


def pods(overlay: str) -> dict[str, dict[str, Any]]:
    """The templates of all pods: Ray's groups and the migration."""
    templates = {name: group["template"] for name, group in groups(overlay).items()}
    return {**templates, "migration": rendered(overlay)["Job", "dp-icl-migrate"]["spec"]["template"]}


def component(template: dict[str, Any]) -> str:
    labels = template["metadata"]["labels"]
    assert labels["app.kubernetes.io/part-of"] == "dp-icl"
    return str(labels["app.kubernetes.io/component"])


def settings(template: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in template["spec"]["containers"][0].get("env", [])}


def serve_config(overlay: str) -> dict[str, Any]:
    return yaml.safe_load(ray_service(overlay)["serveConfigV2"])


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


def problems(spec: dict[str, Any]) -> list[str]:
    schema = strict(yaml.safe_load((Path(__file__).parent / "rayservice.schema.yaml").read_text()))
    return [
        f"{error.json_path}: {error.message}" for error in jsonschema.Draft202012Validator(schema).iter_errors(spec)
    ]


@each_overlay
def test_the_ray_service_is_what_kuberay_takes(overlay: str):
    assert rendered(overlay)["RayService", "dp-icl"]["apiVersion"] == "ray.io/v1"
    assert problems(ray_service(overlay)) == []


def test_unknown_fields_of_a_ray_service_are_refused():
    spec = json.loads(json.dumps(ray_service("gpu")))
    spec["rayClusterConfig"]["workerGroupSpecs"][0]["minReplica"] = 1
    assert any("minReplica" in problem for problem in problems(spec))


@each_overlay
def test_serve_takes_the_config(overlay: str, tmp_path: Path):
    (tmp_path / "serve.yaml").write_text(ray_service(overlay)["serveConfigV2"])
    config = load_serve_config(tmp_path / "serve.yaml")
    assert config.http_options.host == "0.0.0.0"  # noqa: S104
    assert config.http_options.port == 8000


def test_the_base_serves_what_the_package_serves():
    packaged = yaml.safe_load((ROOT / "service" / "serve.yaml").read_text())
    door = {"proxy_location", "http_options"}
    assert {k: v for k, v in serve_config("local").items() if k not in door} == {
        k: v for k, v in packaged.items() if k not in door
    }


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
        assert [c["image"] for c in template["spec"]["containers"]] == [f"{expected}:{version[1]}"]


@each_overlay
def test_pods_may_do_nothing_they_need_not(overlay: str):
    for name, template in pods(overlay).items():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        # Ray's autoscaler alone speaks to Kubernetes.
        autoscales = name == "head" and "enableInTreeAutoscaling" in ray_service(overlay)["rayClusterConfig"]
        assert spec["automountServiceAccountToken"] is autoscales
        assert ("ServiceAccount", spec["serviceAccountName"]) in rendered(overlay)
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        (container,) = spec["containers"]
        assert container["securityContext"] == {
            "allowPrivilegeEscalation": False,
            "readOnlyRootFilesystem": True,
            "capabilities": {"drop": ["ALL"]},
        }
        assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
        assert {"cpu", "memory"} <= container["resources"]["limits"].keys()
        volumes = {volume["name"] for volume in spec["volumes"]}
        assert {mount["name"] for mount in container["volumeMounts"]} == volumes
        assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108
        assert not any("hostPath" in volume for volume in spec["volumes"])


@each_overlay
def test_secrets_are_references_and_only_where_they_are_needed(overlay: str):
    for template in pods(overlay).values():
        names = {volume.get("secret", {}).get("secretName") for volume in template["spec"]["volumes"]} - {None}
        if component(template) in ("service", "migration"):
            assert names == {"dp-icl-encryption-key"}
            assert settings(template)["DPICL_ENCRYPTION_KEY_FILE"]["value"] == "/run/secrets/dp-icl/key"
        else:
            assert names == set()
            assert not settings(template).keys() & {"DPICL_DATABASE_URL", "DPICL_ENCRYPTION_KEY_FILE"}
    assert not any(kind == "Secret" for kind, _ in rendered(overlay))


@pytest.mark.parametrize("overlay", ["gpu", "production"])
def test_the_database_is_outside(overlay: str):
    reference = {"secretKeyRef": {"name": "dp-icl-database", "key": "url"}}
    for name in ("service", "migration"):
        assert settings(pods(overlay)[name])["DPICL_DATABASE_URL"]["valueFrom"] == reference


def test_local_keeps_its_file_on_the_volume():
    for template in pods("local").values():
        url = settings(template)["DPICL_DATABASE_URL"]["value"]
        folder = str(Path(url.removeprefix("sqlite:///")).parent)
        claims = {
            v["name"]: v["persistentVolumeClaim"]["claimName"]
            for v in template["spec"]["volumes"]
            if "persistentVolumeClaim" in v
        }
        (mounted,) = (m for m in template["spec"]["containers"][0]["volumeMounts"] if m["name"] in claims)
        assert mounted["mountPath"] == folder
        assert ("PersistentVolumeClaim", claims[mounted["name"]]) in rendered("local")


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector, of the kinds used here, takes these labels."""
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    assert all(one["operator"] == "In" for one in selector.get("matchExpressions", []))
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items()) and all(
        labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", [])
    )


def labels_of(overlay: str, name: str) -> dict[str, str]:
    # KubeRay adds the node's type.
    kind = {"head": {"ray.io/node-type": "head"}, "migration": {}}.get(name, {"ray.io/node-type": "worker"})
    return {**pods(overlay)[name]["metadata"]["labels"], **kind}


def policies(overlay: str, name: str, direction: str) -> list[dict[str, Any]]:
    """The network policies that hold for a pod's traffic in one direction."""
    all_policies = [one["spec"] for (kind, _), one in rendered(overlay).items() if kind == "NetworkPolicy"]
    labels = labels_of(overlay, name)
    return [p for p in all_policies if direction in p["policyTypes"] and selects(p["podSelector"], labels)]


def doors(overlay: str, name: str) -> set[int]:
    """Ports of a pod that others than Ray's own pods and KubeRay's operator reach."""
    found = set()
    for policy in policies(overlay, name, "Ingress"):
        for rule in policy.get("ingress", []):
            for peer in rule["from"]:
                own = "namespaceSelector" not in peer
                operator = peer.get("podSelector", {}).get("matchLabels", {}) == {
                    "app.kubernetes.io/name": "kuberay-operator"
                }
                if not own and not operator:
                    found |= {port["port"] for port in rule["ports"]}
    return found


@each_overlay
def test_only_http_of_service_pods_is_reached_from_outside(overlay: str):
    for name, template in pods(overlay).items():
        assert any("ingress" not in policy for policy in policies(overlay, name, "Ingress")), "nothing is the default"
        assert any("egress" not in policy for policy in policies(overlay, name, "Egress")), "nothing is the default"
        assert doors(overlay, name) == ({8000} if component(template) == "service" else set())
        assert not doors(overlay, name) & PORTS_OF_RAY


@each_overlay
def test_ray_asks_for_a_token(overlay: str):
    assert ray_service(overlay)["rayClusterConfig"]["authOptions"] == {"mode": "token"}


@each_overlay
def test_the_operator_reaches_the_head_and_ray_pods_reach_each_other(overlay: str):
    from_operator = [
        {port["port"] for port in rule["ports"]}
        for policy in policies(overlay, "head", "Ingress")
        for rule in policy.get("ingress", [])
        for peer in rule["from"]
        if peer.get("podSelector", {}).get("matchLabels", {}) == {"app.kubernetes.io/name": "kuberay-operator"}
    ]
    assert from_operator == [{8265, 8000}]
    for name in groups(overlay):
        for direction, side in (("Ingress", "from"), ("Egress", "to")):
            inside = [
                peer["podSelector"]
                for policy in policies(overlay, name, direction)
                for rule in policy.get(direction.lower(), [])
                for peer in rule.get(side, [])
                if "namespaceSelector" not in peer and "ports" not in rule
            ]
            assert all(any(selects(s, labels_of(overlay, other)) for s in inside) for other in groups(overlay))


@each_overlay
def test_the_service_finds_service_pods_alone(overlay: str):
    spec = rendered(overlay)["Service", "dp-icl"]["spec"]
    assert [port["targetPort"] for port in spec["ports"]] == [serve_config(overlay)["http_options"]["port"]]
    assert spec.get("type", "ClusterIP") == "ClusterIP"
    chosen = [name for name in pods(overlay) if spec["selector"].items() <= labels_of(overlay, name).items()]
    assert chosen == (["head"] if overlay == "local" else ["service"])


@pytest.mark.parametrize("overlay", ["gpu", "production"])
def test_requests_go_to_pods_that_are_ready_and_are_finished(overlay: str):
    (container,) = pods(overlay)["service"]["spec"]["containers"]
    assert container["readinessProbe"]["httpGet"] == {"path": "/readyz", "port": 8000}
    timeout = serve_config(overlay)["http_options"]["request_timeout_s"]
    for group in groups(overlay).values():
        spec = group["template"]["spec"]
        command, seconds = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert command == "sleep"
        assert timeout < int(seconds) < spec["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("overlay", ["gpu", "production"])
def test_replicas_fit_the_pods(overlay: str):
    deployments = {one["name"]: one for one in serve_config(overlay)["applications"][0]["deployments"]}
    engine, service = groups(overlay)["engine"], groups(overlay)["service"]
    actor = deployments["EngineDeployment"]["ray_actor_options"]
    arguments = serve_config(overlay)["applications"][0]["args"]["engine"]
    (container,) = engine["template"]["spec"]["containers"]
    assert actor["num_gpus"] == arguments["tensor_parallel_size"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(actor["num_gpus"])
    scaling = deployments["EngineDeployment"]["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (engine["minReplicas"], engine["maxReplicas"])
    assert engine["template"]["spec"]["nodeSelector"]
    assert engine["template"]["spec"]["tolerations"]
    # Weights are read from where they are mounted.
    assert Path(arguments["model"]).parts[1] == "models"
    assert "/models" in {mount["mountPath"] for mount in container["volumeMounts"]}
    # Only service pods have what an ingress replica asks for.
    needed = deployments["Ingress"]["ray_actor_options"]["resources"]["ledger"]
    assert json.loads(json.loads(service["rayStartParams"]["resources"]))["ledger"] >= needed
    assert "resources" not in engine["rayStartParams"]
    assert deployments["Ingress"]["num_replicas"] <= service["minReplicas"]


def test_production_has_several_doors_tls_and_secrets_from_a_store():
    objects = rendered("production")
    (ingress,) = serve_config("production")["applications"][0]["deployments"][:1]
    assert ingress["name"] == "Ingress"
    assert ingress["num_replicas"] == groups("production")["service"]["minReplicas"] == 3
    assert ingress["max_replicas_per_node"] == 1
    assert objects["PodDisruptionBudget", "dp-icl"]["spec"]["minAvailable"] == 2
    spec = objects["Ingress", "dp-icl"]["spec"]
    assert {host for tls in spec["tls"] for host in tls["hosts"]} == {rule["host"] for rule in spec["rules"]}
    for rule in spec["rules"]:
        for path in rule["http"]["paths"]:
            assert path["backend"]["service"] == {"name": "dp-icl", "port": {"name": "http"}}
    for name, key in (("dp-icl-database", "url"), ("dp-icl-encryption-key", "key")):
        secret = objects["ExternalSecret", name]["spec"]
        assert secret["target"]["name"] == name
        assert [one["secretKey"] for one in secret["data"]] == [key]


@each_overlay
def test_everything_is_in_one_namespace_that_is_restricted(overlay: str):
    objects = rendered(overlay)
    labels = objects["Namespace", "dp-icl"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {one["metadata"].get("namespace") for (kind, _), one in objects.items() if kind != "Namespace"} == {"dp-icl"}
