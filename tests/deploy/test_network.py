"""Which pods reach which: network policies, the Service, TLS and Ray's token."""

from dataclasses import dataclass
from ipaddress import ip_address, ip_network
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from tests.deploy.overlays import (
    ROOT,
    Objects,
    component,
    each_overlay,
    groups,
    pods,
    ray_service,
    rendered,
    serve_config,
    with_components,
)
from tests.deploy.test_schemas import KUBERNETES


def selects(selector: dict[str, Any], labels: dict[str, str]) -> bool:
    """Whether a label selector, of the kinds used here, matches these labels."""
    assert selector.keys() <= {"matchLabels", "matchExpressions"}
    assert all(one["operator"] == "In" for one in selector.get("matchExpressions", []))
    return all(labels.get(k) == v for k, v in selector.get("matchLabels", {}).items()) and all(
        labels.get(one["key"]) in one["values"] for one in selector.get("matchExpressions", [])
    )


def labels_of(overlay: str, name: str) -> dict[str, str]:
    # KubeRay adds the node's type.
    kind = {"ray.io/node-type": "head" if name == "head" else "worker"} if name in groups(overlay) else {}
    return {**pods(overlay)[name]["metadata"]["labels"], **kind}


def policies(overlay: str, name: str, direction: str) -> list[dict[str, Any]]:
    """The network policies for a pod's traffic in one direction."""
    all_policies = [one["spec"] for (kind, _), one in rendered(overlay).items() if kind == "NetworkPolicy"]
    labels = labels_of(overlay, name)
    return [p for p in all_policies if direction in p["policyTypes"] and selects(p["podSelector"], labels)]


def doors(overlay: str, name: str) -> set[int]:
    """Ports of a pod that are open to others than Ray's own pods and KubeRay's operator."""
    found = set()
    for policy in policies(overlay, name, "Ingress"):
        for rule in policy.get("ingress", []):
            for peer in rule["from"]:
                own = "namespaceSelector" not in peer
                operator = peer.get("podSelector", {}).get("matchLabels", {}) == {
                    "app.kubernetes.io/component": "kuberay-operator"
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
        if peer.get("podSelector", {}).get("matchLabels", {}) == {"app.kubernetes.io/component": "kuberay-operator"}
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
    selector = dict(spec["selector"])
    # KubeRay's own mark of a pod where Serve answers: `local` asks for it, whose pod is ready before.
    assert selector.pop("ray.io/serve", None) == ("true" if overlay == "local" else None)
    chosen = [name for name in pods(overlay) if selector.items() <= labels_of(overlay, name).items()]
    assert chosen == (["head"] if overlay == "local" else ["service"])


@dataclass(frozen=True)
class Pod:
    """A pod elsewhere in the cluster."""

    namespace: str
    labels: dict[str, str]


PROTOCOLS = ("UDP", "TCP")
KUBE_DNS = Pod("kube-system", {"k8s-app": "kube-dns"})
OPENSHIFT_DNS = Pod("openshift-dns", {"dns.operator.openshift.io/daemonset-dns": "default"})
NODE_LOCAL_DNS = "169.254.20.10"
NODE_LOCAL_PODS = Pod("kube-system", {"k8s-app": "node-local-dns"})
ELSEWHERE = "192.0.2.7"
COMPONENTS = ("head", "service", "engine", "migration")


def reaches(objects: Objects, kind: str, peer: Pod | str, port: int, protocol: str = "TCP") -> bool:
    """Whether a pod with this component's label may send to a pod elsewhere, or to an address outside the cluster."""
    own = {"app.kubernetes.io/part-of": "dp-icl", "app.kubernetes.io/component": kind}
    specs = [one["spec"] for (name, _), one in objects.items() if name == "NetworkPolicy"]
    rules = [rule for spec in specs if selects(spec["podSelector"], own) for rule in spec.get("egress", [])]
    return any(
        ({"port": port, "protocol": protocol} in rule.get("ports", []) or "ports" not in rule)
        and ("to" not in rule or any(_is(peer, one) for one in rule["to"]))
        for rule in rules
    )


def _is(peer: Pod | str, selector: dict[str, Any]) -> bool:
    if isinstance(peer, str):
        block = selector.get("ipBlock")
        return block is not None and ip_address(peer) in ip_network(block["cidr"])
    if "ipBlock" in selector:
        return False
    namespace = {"kubernetes.io/metadata.name": peer.namespace}
    here = selector.get("namespaceSelector", {"matchLabels": {"kubernetes.io/metadata.name": "dp-icl"}})
    return selects(here, namespace) and selects(selector.get("podSelector", {}), peer.labels)


@each_overlay
@pytest.mark.parametrize(
    ("server", "port"),
    [(KUBE_DNS, 53), (NODE_LOCAL_DNS, 53), (NODE_LOCAL_PODS, 53), (OPENSHIFT_DNS, 5353)],
    ids=["kube", "node", "redirected", "openshift"],
)
def test_usual_name_servers_are_reached_and_nothing_else_of_theirs(overlay: str, server: Pod | str, port: int) -> None:
    for kind in {component(template) for template in pods(overlay).values()}:
        for protocol in PROTOCOLS:
            assert reaches(rendered(overlay), kind, server, port, protocol)
        assert not reaches(rendered(overlay), kind, server, 9153)
        assert not reaches(rendered(overlay), kind, Pod("default", {"k8s-app": "kube-dns"}), port)


@pytest.mark.parametrize("overlay", ["gpu", "production"])
def test_databases_are_reached_by_service_pods_and_migrations_alone(overlay: str) -> None:
    reached = {kind for kind in COMPONENTS if reaches(rendered(overlay), kind, ELSEWHERE, 5432)}
    assert reached == {"service", "migration"}
    assert not any(reaches(rendered(overlay), kind, ELSEWHERE, 6432) for kind in COMPONENTS)


OTHERS = {
    "database-port": "6432", "witness-port": "25060", "dns-namespace": "dns", "dns-app": "coredns", "dns-port": "1053",
    "dns-address": "10.96.0.10/32", "dns-address-port": "5300", "sign-in-port": "8443", "remote-model-port": "8001",
    "traces-port": "4319",
}  # fmt: skip


@pytest.mark.parametrize("overlay", ["local", "gpu", "production"])
def test_variables_of_an_overlay_open_other_ports_and_name_servers(tmp_path: Path, overlay: str) -> None:
    sign_in = ("sign-in",) if overlay != "local" else ()
    components = (*sign_in, "remote-model", "traces")
    changed = with_components(tmp_path, overlay, *components, "network", variables=OTHERS)
    for (kind, name), one in changed.items():
        if kind == "NetworkPolicy":
            kubernetes_validate.validate(one, KUBERNETES, strict=True)
            assert one["metadata"]["namespace"] == "dp-icl", name
    assert ("ConfigMap", "dp-icl-network") not in changed

    def reached(port: int) -> set[str]:
        return {kind for kind in COMPONENTS if reaches(changed, kind, ELSEWHERE, port)}

    ledger = {"service", "migration"} if overlay != "local" else set()
    assert reached(6432) == reached(25060) == ledger
    assert reached(8001) == {"service", "engine"}
    assert reached(4319) == {"service"}
    assert reached(8443) == ({"service"} if sign_in else set())
    assert not reached(5432)
    assert not reached(4318)
    for kind in COMPONENTS:
        for protocol in PROTOCOLS:
            assert reaches(changed, kind, Pod("dns", {"k8s-app": "coredns"}), 1053, protocol)
            assert reaches(changed, kind, "10.96.0.10", 5300, protocol)
            assert reaches(changed, kind, OPENSHIFT_DNS, 5353, protocol)
            assert not reaches(changed, kind, KUBE_DNS, 53, protocol)


def test_variables_left_alone_change_nothing(tmp_path: Path) -> None:
    assert with_components(tmp_path, "production", "network", variables={}) == rendered("production")


def test_every_variable_is_one_of_the_tests() -> None:
    assert yaml.safe_load((ROOT / "deploy" / "network" / "variables.yaml").read_text())["data"].keys() == OTHERS.keys()
