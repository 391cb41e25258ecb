"""The purpose of each overlay, and the restricted namespace that holds everything."""

import json
from typing import Any

from tests.deploy.overlays import Objects, each_overlay, groups, pods, rendered, serve_config


def of_kind(objects: Objects, kind: str) -> list[Any]:
    return [one for (its, _), one in objects.items() if its == kind]


def test_production_has_several_doors_tls_and_secrets_from_a_store():
    objects = rendered("production")
    (ingress,) = serve_config("production")["applications"][0]["deployments"][:1]
    assert ingress["name"] == "Ingress"
    assert ingress["num_replicas"] == groups("production")["service"]["minReplicas"] == 3
    assert ingress["max_replicas_per_node"] == 1
    assert objects["PodDisruptionBudget", "dp-icl"]["spec"]["minAvailable"] == 2
    gateway = objects["Gateway", "dp-icl"]
    assert "cert-manager.io/cluster-issuer" in gateway["metadata"]["annotations"]
    plain, private = gateway["spec"]["listeners"]
    assert (plain["port"], private["port"], private["protocol"]) == (80, 443, "HTTPS")
    assert private["tls"] == {"mode": "Terminate", "certificateRefs": [{"name": "dp-icl-tls"}]}
    routes = {route["spec"]["parentRefs"][0]["sectionName"]: route["spec"] for route in of_kind(objects, "HTTPRoute")}
    assert routes.keys() == {plain["name"], private["name"]}
    (redirect,), (served,) = routes["http"]["rules"], routes["https"]["rules"]
    assert redirect["filters"][0]["requestRedirect"]["scheme"] == "https"
    assert "backendRefs" not in redirect
    (port,) = objects["Service", "dp-icl"]["spec"]["ports"]
    assert served["backendRefs"] == [{"name": "dp-icl", "port": port["port"]}]
    (service,) = [pod for name, pod in pods("production").items() if "service" in name]
    variables = {one["name"]: one.get("value") for one in service["spec"]["containers"][0]["env"]}
    assert json.loads(variables["DPICL_MCP_HOSTS"]) == [private["hostname"]]
    for route in routes.values():
        assert route["hostnames"] == [private["hostname"]] == [plain["hostname"]]
    secrets = {"dp-icl-database": "url", "dp-icl-witness": "url", "dp-icl-encryption-key": "key"}
    others = {"dp-icl-metrics-key": "token", "dp-icl-redis": "password ca.crt"}
    assert {name for kind, name in objects if kind == "ExternalSecret"} == {*secrets, *others}
    for name, keys in {**secrets, **others}.items():
        secret = objects["ExternalSecret", name]["spec"]
        assert secret["target"]["name"] == name
        assert [one["secretKey"] for one in secret["data"]] == keys.split()
    # Ledger and witness are not one entry of the store.
    references = [objects["ExternalSecret", name]["spec"]["data"][0]["remoteRef"]["key"] for name in secrets]
    assert len(set(references)) == len(references)


def test_production_outlives_its_head():
    """Ray's own state is in Redis: asked with a password, encrypted on its way, by the head alone."""
    spec = rendered("production")["RayService", "dp-icl"]["spec"]["rayClusterConfig"]
    redis = spec["gcsFaultToleranceOptions"]
    assert redis["redisAddress"].startswith("rediss://")
    assert redis["redisPassword"]["valueFrom"]["secretKeyRef"] == {"name": "dp-icl-redis", "key": "password"}
    policy = rendered("production")["NetworkPolicy", "dp-icl-redis"]["spec"]
    assert policy["podSelector"]["matchLabels"]["app.kubernetes.io/component"] == "head"
    (rule,) = policy["egress"]
    assert [one["port"] for one in rule["ports"]] == [int(redis["redisAddress"].rpartition(":")[2])]
    head = spec["headGroupSpec"]["template"]["spec"]
    (authority,) = [one["value"] for one in head["containers"][0]["env"] if one["name"] == "RAY_REDIS_CA_CERT"]
    (mount,) = [one for one in head["containers"][0]["volumeMounts"] if authority.startswith(one["mountPath"])]
    (volume,) = [one for one in head["volumes"] if one["name"] == mount["name"]]
    assert [one["key"] for one in volume["secret"]["items"]] == ["ca.crt"]  # not the password


def test_production_is_watched():
    objects = rendered("production")
    assert ("PrometheusRule", "dp-icl") in objects
    monitor = objects["ServiceMonitor", "dp-icl"]["spec"]
    service = objects["Service", "dp-icl"]
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    (endpoint,) = monitor["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    secret = objects["ExternalSecret", endpoint["authorization"]["credentials"]["name"]]["spec"]
    assert endpoint["authorization"]["credentials"]["key"] in {one["secretKey"] for one in secret["data"]}
    sources = objects["NetworkPolicy", "dp-icl-http"]["spec"]["ingress"][0]["from"]
    names = {one["namespaceSelector"]["matchLabels"]["kubernetes.io/metadata.name"] for one in sources}
    assert names == {"envoy-gateway-system", "monitoring"}


@each_overlay
def test_everything_is_in_one_namespace_that_is_restricted(overlay: str):
    objects = rendered(overlay)
    labels = objects["Namespace", "dp-icl"]["metadata"]["labels"]
    assert labels["pod-security.kubernetes.io/enforce"] == "restricted"
    assert {one["metadata"].get("namespace") for (kind, _), one in objects.items() if kind != "Namespace"} == {"dp-icl"}
