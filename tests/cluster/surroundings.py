"""What a cluster has besides the service: name server, databases, KubeRay's operator, and kinds of other projects."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.build import module_folder
from tests.cluster.control_plane import DNS, Cluster

SERVERS = "localhost/servers:1"
PASSWORD = "password"
"""Password of servers that no other machine can reach."""
_KUBERAY = "github.com/ray-project/kuberay/ray-operator"
_OPERATOR = [
    # A tenth of a processor is little where two run everything.
    {"op": "replace", "path": "/spec/template/spec/containers/0/resources/limits/cpu", "value": "1"},
    # The operator's own image has a user who is not root; this one has none.
    {"op": "add", "path": "/spec/template/spec/containers/0/securityContext/runAsUser", "value": 65532},
]
_KINDS = (
    ("sigs.k8s.io/gateway-api", "config/crd/standard"),
    ("github.com/external-secrets/external-secrets", "config/crds/bases"),
    ("github.com/prometheus-operator/prometheus-operator", "example/prometheus-operator-crd"),
)


def names_of_services(cluster: Cluster) -> None:
    """CoreDNS, labelled as on most clusters."""
    labels = {"k8s-app": "kube-dns"}
    corefile = ".:53 {\n errors\n ready\n kubernetes cluster.local in-addr.arpa\n}\n"
    place = {"namespace": "kube-system", "name": "coredns"}
    pod = {
        "serviceAccountName": "coredns",
        "containers": [
            {
                "name": "coredns",
                "image": "localhost/coredns:1",
                "command": ["/coredns", "-conf", "/etc/coredns/Corefile"],
                "readinessProbe": {"httpGet": {"path": "/ready", "port": 8181}, "periodSeconds": 2},
                "volumeMounts": [{"name": "config", "mountPath": "/etc/coredns"}],
            }
        ],
        "volumes": [{"name": "config", "configMap": {"name": "coredns"}}],
    }
    rules = [
        {"apiGroups": [""], "resources": ["endpoints", "services", "pods", "namespaces"], "verbs": ["list", "watch"]},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": ["list", "watch"]},
    ]
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "coredns"}
    cluster.apply(
        {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": place},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": place, "data": {"Corefile": corefile}},
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRole",
            "metadata": {"name": "coredns"},
            "rules": rules,
        },
        {
            "apiVersion": "rbac.authorization.k8s.io/v1",
            "kind": "ClusterRoleBinding",
            "metadata": {"name": "coredns"},
            "roleRef": role,
            "subjects": [{"kind": "ServiceAccount", "name": "coredns", "namespace": "kube-system"}],
        },
        _deployment("kube-system", "coredns", labels, pod),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": "kube-system", "name": "kube-dns"},
            "spec": {
                "clusterIP": DNS,
                "selector": labels,
                "ports": [
                    {"name": "udp", "port": 53, "protocol": "UDP"},
                    {"name": "tcp", "port": 53, "protocol": "TCP"},
                ],
            },
        },
    )
    cluster.wait_for_rollout("kube-system", "coredns")


def operator(cluster: Cluster) -> None:
    """KubeRay's operator by its own manifests, in the namespace that the service's policies name."""
    manifests = module_folder("kuberay", _KUBERAY) / "config/default"
    folder = cluster.folder / "kuberay"
    folder.mkdir(exist_ok=True)
    kustomization = {
        "apiVersion": "kustomize.config.k8s.io/v1beta1",
        "kind": "Kustomization",
        "namespace": "kuberay-system",
        "resources": [os.path.relpath(manifests, folder)],
        "images": [{"name": "quay.io/kuberay/operator", "newName": "localhost/kuberay-operator", "newTag": "1"}],
        "patches": [{"patch": json.dumps(_OPERATOR), "target": {"kind": "Deployment"}}],
    }
    (folder / "kustomization.yaml").write_text(yaml.safe_dump(kustomization))
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "kuberay-system"}})
    cluster.kubectl("apply", "--server-side", "-k", str(folder))
    cluster.wait_for_rollout("kuberay-system", "kuberay-operator")


def databases(cluster: Cluster) -> None:
    """PostgreSQL for the ledger and for the witness, each in a pod with a volume, and Redis for Ray's own state."""
    cluster.apply({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "databases"}})
    for name in ("ledger", "witness"):
        data = cluster.folder / "volumes" / name
        data.mkdir(parents=True)
        script = f"""set -e
cd /tmp; export PATH=$PATH:/usr/lib/postgresql/15/bin
chown postgres /data; chmod 700 /data
as() {{ setpriv --reuid=postgres --regid=postgres --init-groups "$@"; }}
if [ ! -e /data/PG_VERSION ]; then
  as initdb -D /data -E UTF8 --locale=C.UTF-8 > /dev/null
  echo "host all all all scram-sha-256" >> /data/pg_hba.conf
  as pg_ctl -D /data -w -o "-k /tmp -h ''" start > /dev/null
  as psql -h /tmp -c "CREATE ROLE dpicl LOGIN PASSWORD '{PASSWORD}'" -c "CREATE DATABASE dpicl OWNER dpicl" postgres
  as pg_ctl -D /data -w stop > /dev/null
fi
exec setpriv --reuid=postgres --regid=postgres --init-groups postgres -D /data -k /tmp -h '*'"""
        _server(cluster, name, 5432, script, data)
    data = cluster.folder / "volumes" / "redis"
    data.mkdir(parents=True)
    for file in ("ca.crt", "redis.crt", "redis.key"):
        shutil.copy(cluster.folder / file, data / file)
    redis = f"""exec redis-server --port 0 --tls-port 6379 --tls-auth-clients no --tls-ca-cert-file /data/ca.crt \\
  --tls-cert-file /data/redis.crt --tls-key-file /data/redis.key \\
  --requirepass {PASSWORD} --dir /data --appendonly yes --protected-mode no --save ''"""
    _server(cluster, "redis", 6379, redis, data)
    for name in ("ledger", "witness", "redis"):
        cluster.wait_for_rollout("databases", name)


def kinds(cluster: Cluster) -> None:
    """Kinds that the overlays use and whose controllers are not here."""
    for package, folder in _KINDS:
        manifests = module_folder("kinds", package) / folder
        for file in sorted(manifests.glob("*.yaml")):
            if file.name != "kustomization.yaml":
                cluster.kubectl("apply", "--server-side", "-f", str(file))


def _server(cluster: Cluster, name: str, port: int, script: str, data: Path) -> None:
    pod = {
        "terminationGracePeriodSeconds": 10,
        "containers": [
            {
                "name": name,
                "image": SERVERS,
                "command": ["bash", "-c", script],
                "readinessProbe": {"tcpSocket": {"port": port}, "periodSeconds": 1},
                "volumeMounts": [{"name": "data", "mountPath": "/data"}],
            }
        ],
        "volumes": [{"name": "data", "hostPath": {"path": str(data), "type": "Directory"}}],
    }
    cluster.apply(
        _deployment("databases", name, {"app": name}, pod),
        {
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {"namespace": "databases", "name": name},
            "spec": {"selector": {"app": name}, "ports": [{"port": port}]},
        },
    )


def _deployment(namespace: str, name: str, labels: dict[str, str], pod: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"namespace": namespace, "name": name},
        "spec": {
            "replicas": 1,
            "strategy": {"type": "Recreate"},
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": pod},
        },
    }
