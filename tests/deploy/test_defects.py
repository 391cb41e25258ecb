"""Each promise of the manifests is broken once, to see that a test notices."""

from collections.abc import Callable
from typing import Any

import kubernetes_validate
import pytest

from tests.deploy import test_kustomize, test_network, test_pods, test_schemas
from tests.deploy.overlays import Objects, groups, planted

Defect = Callable[[Objects], Any]
SCHEMAS = (AssertionError, kubernetes_validate.ValidationError)


def policy(objects: Objects, name: str) -> dict[str, Any]:
    return objects["NetworkPolicy", f"dp-icl-{name}"]["spec"]


def cluster(objects: Objects) -> dict[str, Any]:
    return objects["RayService", "dp-icl"]["spec"]["rayClusterConfig"]


def pod(objects: Objects, group: int | None = None) -> dict[str, Any]:
    """The head's pod, or that of a group of workers: group 0 answers questions, group 1 runs the engine."""
    this = cluster(objects)["headGroupSpec"] if group is None else cluster(objects)["workerGroupSpecs"][group]
    return this["template"]["spec"]


def container(objects: Objects, group: int | None = None) -> dict[str, Any]:
    return pod(objects, group)["containers"][0]


def config(objects: Objects, old: str, new: str) -> None:
    spec = objects["RayService", "dp-icl"]["spec"]
    assert old in spec["serveConfigV2"]
    spec["serveConfigV2"] = spec["serveConfigV2"].replace(old, new)


def drop_env(objects: Objects, name: str) -> None:
    this = container(objects, 0)
    this["env"] = [variable for variable in this["env"] if variable["name"] != name]


def everyone(objects: Objects, port: int) -> None:
    """Open a port of Ray's to the whole cluster."""
    rule = {"from": [{"namespaceSelector": {}}], "ports": [{"port": port, "protocol": "TCP"}]}
    policy(objects, "ray")["ingress"].append(rule)


DEFECTS: dict[Callable[..., None], dict[str, Defect]] = {
    test_network.test_only_http_of_service_pods_is_reached_from_outside: {
        "gcs open": lambda o: everyone(o, 6379),
        "dashboard open": lambda o: everyone(o, 8265),
        "ray client open": lambda o: everyone(o, 10001),
        "http of every pod open": lambda o: policy(o, "http")["podSelector"]["matchLabels"].pop(
            "app.kubernetes.io/component"
        ),
        "default lets everything out": lambda o: policy(o, "nothing")["policyTypes"].remove("Egress"),
        "default forgets pods": lambda o: policy(o, "nothing")["podSelector"].update(
            matchLabels={"app.kubernetes.io/component": "head"}
        ),
    },
    test_network.test_the_operator_reaches_the_head_and_ray_pods_reach_each_other: {
        "engine cut off": lambda o: policy(o, "ray")["podSelector"]["matchExpressions"][0]["values"].remove("engine"),
    },
    test_network.test_ray_asks_for_a_token: {
        "no token": lambda o: cluster(o).pop("authOptions"),
    },
    test_network.test_the_service_finds_service_pods_alone: {
        "service leads to engines": lambda o: o["Service", "dp-icl"]["spec"]["selector"].update(
            {"app.kubernetes.io/component": "engine"}
        ),
        "service of the world": lambda o: o["Service", "dp-icl"]["spec"].update(type="LoadBalancer"),
    },
    test_pods.test_pods_have_no_needless_rights: {
        "root": lambda o: pod(o, 1)["securityContext"].update(runAsUser=0),
        "writable root": lambda o: pod(o, 0)["initContainers"][0]["securityContext"].update(
            readOnlyRootFilesystem=False
        ),
        "account's token": lambda o: pod(o, 0).update(automountServiceAccountToken=True),
        "folder of the host": lambda o: pod(o)["volumes"][0].update(hostPath={"path": "/"}),
    },
    test_pods.test_every_container_asks_for_what_it_needs: {
        "no memory asked for": lambda o: container(o, 1)["resources"]["requests"].pop("memory"),
    },
    test_pods.test_the_encryption_key_is_a_reference_and_only_where_questions_are_answered: {
        "key in the manifest": lambda o: o.update({("Secret", "key"): {"kind": "Secret", "metadata": {"name": "key"}}}),
        "key on engines": lambda o: pod(o, 1)["volumes"].append(
            {"name": "k", "secret": {"secretName": "dp-icl-encryption-key"}}
        ),
        "key as a single file": lambda o: container(o, 0)["volumeMounts"][0].update(subPath="key"),
    },
    test_pods.test_ledger_and_witness_are_outside_and_reached_only_from_where_they_are_needed: {
        "address of the ledger on the head": lambda o: container(o).update(
            env=[{"name": "DPICL_DATABASE_URL", "value": "x"}]
        ),
        "no witness": lambda o: drop_env(o, "DPICL_WITNESS_URL"),
    },
    test_pods.test_pods_wait_for_the_migration: {
        "race with the migration": lambda o: pod(o, 0).pop("initContainers"),
        "pods migrate": lambda o: drop_env(o, "DPICL_MIGRATE"),
    },
    test_pods.test_every_pod_of_ray_is_probed: {
        "ready without a replica": lambda o: container(o, 0)["readinessProbe"]["httpGet"].update(path="/healthz"),
        "no probe of its life": lambda o: container(o, 1).pop("livenessProbe"),
    },
    test_pods.test_a_drain_leaves_service_pods: {
        "a drain takes all": lambda o: o["PodDisruptionBudget", "dp-icl"]["spec"].update(minAvailable=0),
        "budget for no pod": lambda o: o["PodDisruptionBudget", "dp-icl"]["spec"]["selector"]["matchLabels"].update(
            tier="web"
        ),
    },
    test_pods.test_pods_that_go_finish_what_they_were_asked: {
        "killed while it answers": lambda o: pod(o, 0).update(terminationGracePeriodSeconds=30),
    },
    test_pods.test_replicas_fit_the_pods: {
        "fewer GPUs than tensor parallelism": lambda o: container(o, 1)["resources"]["limits"].update(
            {"nvidia.com/gpu": "1"}
        ),
        "engines where the ledger is": lambda o: cluster(o)["workerGroupSpecs"][1]["rayStartParams"].update(
            resources='"{\\"ledger\\": 1}"'
        ),
    },
    test_schemas.test_the_ray_service_is_what_kuberay_takes: {
        "misspelt field of KubeRay": lambda o: cluster(o)["workerGroupSpecs"][0].update(minReplica=1),
    },
    test_schemas.test_core_kinds_are_what_kubernetes_takes: {
        "misspelt field of a pod": lambda o: container(o, 1).update(redinessProbe={}),
        "misspelt field of a policy": lambda o: policy(o, "http").update(ingres=[]),
    },
    test_schemas.test_serve_takes_the_config: {
        "misspelt key of Serve": lambda o: config(o, "num_replicas: 1", "num_replica: 1"),
        "unknown option of the engine": lambda o: config(o, "tensor_parallel_size: 2", "tensor_parallel: 2"),
    },
    test_schemas.test_serve_writes_no_times: {
        "times in a log": lambda o: config(o, "enable_access_log: false", "enable_access_log: true"),
    },
    test_schemas.test_versions_are_those_of_the_package: {
        "another Ray": lambda o: cluster(o).update(rayVersion="2.59.0"),
        "moving image": lambda o: pod(o, 0)["initContainers"][0].update(image="dp-icl:latest"),
    },
    test_kustomize.test_everything_is_in_one_namespace_that_is_restricted: {
        "another namespace": lambda o: o["Service", "dp-icl"]["metadata"].update(namespace="default"),
        "pods with all rights": lambda o: o["Namespace", "dp-icl"]["metadata"]["labels"].clear(),
    },
}


def each(defects: dict[Callable[..., None], dict[str, Defect]]) -> pytest.MarkDecorator:
    named = [(test, defect, name) for test, of_it in defects.items() for name, defect in of_it.items()]
    return pytest.mark.parametrize(("test", "defect"), [pytest.param(*case, id=name) for *case, name in named])


@each(DEFECTS)
def test_a_test_notices(test: Callable[..., None], defect: Defect, request: pytest.FixtureRequest):
    more = {"tmp_path": request.getfixturevalue("tmp_path")} if "tmp_path" in test.__annotations__ else {}
    test("gpu", **more)
    with planted("gpu") as objects:
        defect(objects)
        assert groups("gpu")
        with pytest.raises((*SCHEMAS, KeyError, ValueError)):
            test("gpu", **more)


def listeners(objects: Objects) -> list[dict[str, Any]]:
    return objects["Gateway", "dp-icl"]["spec"]["listeners"]


def rule(objects: Objects, route: str) -> dict[str, Any]:
    return objects["HTTPRoute", route]["spec"]["rules"][0]


OF_PRODUCTION: dict[Callable[..., None], dict[str, Defect]] = {
    test_kustomize.test_production_has_several_doors_tls_and_secrets_from_a_store: {
        "no TLS": lambda o: listeners(o)[1]["tls"].clear(),
        "answers without TLS": lambda o: rule(o, "dp-icl-redirect").update(rule(o, "dp-icl")),
        "a certificate for another host": lambda o: listeners(o)[1].update(hostname="www.example.org"),
        "one door": lambda o: config(o, "num_replicas: 3", "num_replicas: 1"),
        "door to the wrong service": lambda o: rule(o, "dp-icl")["backendRefs"][0].update(name="head"),
        "witness beside the ledger": lambda o: o["ExternalSecret", "dp-icl-witness"]["spec"]["data"][0][
            "remoteRef"
        ].update(key="dp-icl/database"),
    },
    test_schemas.test_the_door_is_what_the_gateway_api_takes: {
        "an unknown field": lambda o: rule(o, "dp-icl").update(retries=0),
        "a time without a unit": lambda o: rule(o, "dp-icl")["timeouts"].update(request="300"),
    },
    test_kustomize.test_production_is_watched: {
        "metrics without a key to read them": lambda o: o.pop(("ExternalSecret", "dp-icl-metrics-key")),
        "http for all pods": lambda o: policy(o, "http")["ingress"][0].update({"from": [{"namespaceSelector": {}}]}),
    },
}


@each(OF_PRODUCTION)
def test_a_test_notices_in_production(test: Callable[[], None], defect: Defect):
    test()
    with planted("production") as objects:
        defect(objects)
        with pytest.raises((AssertionError, KeyError)):
            test()
