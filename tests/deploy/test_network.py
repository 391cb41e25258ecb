"""Which pods reach which: network policies, the Service, TLS and Ray's token."""

from typing import Any

from tests.deploy.overlays import component, each_overlay, groups, pods, ray_service, rendered, serve_config


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
