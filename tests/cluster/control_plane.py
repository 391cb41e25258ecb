"""Kubernetes on this machine: one node, in a network namespace from which nothing leaves.

etcd, containerd, runc and the CNI plugins are Debian's; everything else is built from pinned Go modules (``go/``).
Processes run in the namespace and, but for the network, on the machine itself.
"""

from __future__ import annotations

import base64
import datetime as dt
import ipaddress
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

NAMESPACE = "dpicl-cluster"
NODE = "node"
ADDRESS = "10.99.0.1"
DNS = "10.96.0.10"
_SERVICES = "10.96.0.0/16"
_PODS = "10.244.0.0/24"
_PORT = 6443
_READY_WITHIN_S = 180.0

Key = ec.EllipticCurvePrivateKey


@dataclass
class Cluster:
    """A running control plane and its node.

    Attributes:
        folder: folder of everything that the cluster writes; deleted when it stops.
        bin: folder of the built programs.
    """

    folder: Path
    bin: Path
    _processes: dict[str, subprocess.Popen[bytes]] = field(default_factory=dict)

    # --- what callers use ---

    def kubectl(self, *arguments: str, input: str | None = None, check: bool = True, timeout: float = 120) -> str:
        """Output of kubectl, as the cluster's admin.

        Raises:
            subprocess.CalledProcessError: it failed, and ``check`` is set; ``stderr`` has the reason.
        """
        command = [str(self.bin / "kubectl"), "--kubeconfig", str(self.folder / "kubeconfig"), *arguments]
        done = subprocess.run(
            command, input=input, text=True, capture_output=True, check=False, timeout=timeout, env=_environment()
        )
        if check and done.returncode:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip() or done.stdout.strip()}")
        return done.stdout if check else done.stdout + done.stderr

    def operator(self) -> dict[str, str]:
        """The environment of an operator whose kubectl reaches the cluster."""
        environment = _environment()
        path = f"{self.bin}:{environment['PATH']}"
        return {**environment, "PATH": path, "KUBECONFIG": str(self.folder / "kubeconfig")}

    def get(self, *arguments: str) -> Any:
        """What ``kubectl get ... -o json`` returns."""
        return json.loads(self.kubectl("get", *arguments, "-o", "json"))

    def apply(self, *objects: dict[str, Any]) -> None:
        """Create or change objects."""
        self.kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", input=yaml.safe_dump_all(objects))

    def load(self, archive: Path) -> None:
        """Give an image to the node, from an OCI archive."""
        ctr = ["ctr", "--address", str(self._socket), "--namespace", "k8s.io", "images", "import"]
        subprocess.run([*ctr, str(archive)], check=True, capture_output=True)

    def wait_for_rollout(self, namespace: str, name: str, seconds: float = _READY_WITHIN_S) -> None:
        """Wait until a deployment is ready."""
        self.kubectl(
            "-n",
            namespace,
            "rollout",
            "status",
            f"deployment/{name}",
            f"--timeout={seconds:.0f}s",
            timeout=seconds + 10,
        )

    def wait(self, description: str, ready: Callable[[], object], seconds: float = _READY_WITHIN_S) -> float:
        """Wait until a condition holds, and return the seconds that it took.

        Raises:
            TimeoutError: it did not hold in time; the message names it.
        """
        began = time.monotonic()
        while time.monotonic() - began < seconds:
            if ready():
                return time.monotonic() - began
            time.sleep(0.5)
        raise TimeoutError(f"not within {seconds:.0f} s: {description}")

    # --- start and stop ---

    @property
    def _socket(self) -> Path:
        return self.folder / "containerd.sock"

    def start(self) -> None:
        """Start everything, and wait until the node is ready."""
        (self.folder / "logs").mkdir(parents=True)
        self._write_certificates()
        self._run("etcd", self._etcd())
        self._run("containerd", ["containerd", "--config", str(self._containerd_config())])
        self._run("apiserver", self._api_server())
        self.wait("the API server is ready", lambda: "ok" in self.kubectl("get", "--raw", "/readyz", check=False))
        config = str(self.folder / "kubeconfig")
        self._run(
            "controller-manager",
            [
                str(self.bin / "kube-controller-manager"),
                *_options(
                    kubeconfig=config,
                    use_service_account_credentials=True,
                    service_account_private_key_file=self.folder / "service.key",
                    root_ca_file=self.folder / "ca.crt",
                    cluster_cidr=_PODS,
                    leader_elect=False,
                    bind_address="127.0.0.1",
                    node_monitor_grace_period="120s",  # the machine is shared and small
                ),
            ],
        )
        self._run(
            "scheduler",
            [
                str(self.bin / "kube-scheduler"),
                *_options(kubeconfig=config, leader_elect=False, bind_address="127.0.0.1"),
            ],
        )
        self._run("kubelet", [str(self.bin / "kubelet"), *self._kubelet()])
        self.wait("the node has registered", lambda: self.kubectl("get", "nodes", "-o", "name", check=False).strip())
        # Pods' addresses: the controller manager would allot them to several nodes.
        self.kubectl("patch", "node", NODE, "-p", json.dumps({"spec": {"podCIDR": _PODS, "podCIDRs": [_PODS]}}))
        gpus = {"status": {"capacity": {"nvidia.com/gpu": "8"}}}  # made up
        self.kubectl("patch", "node", NODE, "--subresource=status", "-p", json.dumps(gpus))
        self._run(
            "proxy",
            [
                str(self.bin / "kube-proxy"),
                *_options(
                    kubeconfig=config,
                    hostname_override=NODE,
                    cluster_cidr=_PODS,
                    conntrack_max_per_core=0,  # a setting of the machine
                    proxy_mode="iptables",
                ),
            ],
        )
        self._run(
            "router",
            [
                str(self.bin / "kube-router"),
                *_options(
                    kubeconfig=config,
                    hostname_override=NODE,
                    run_router=False,
                    run_service_proxy=False,
                    run_firewall=True,
                    enable_cni=False,
                    service_cluster_ip_range=_SERVICES,
                    health_port=0,
                ),
            ],
        )
        self.wait("the node is ready", self._node_is_ready)

    def stop(self) -> None:
        """Stop everything that was started, by process id, and undo what it left on the machine."""
        for pod in self._sandboxes():
            subprocess.run(["kill", "-9", str(pod)], check=False)
        for process in reversed(self._processes.values()):
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(10)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        for line in reversed(Path("/proc/self/mounts").read_text().splitlines()):
            place = line.split()[1]
            if place.startswith(f"{self.folder}/"):
                subprocess.run(["umount", "--lazy", place], check=False)
        for name in _names("/run/netns"):
            if name.startswith("cni-"):
                subprocess.run(["ip", "netns", "delete", name], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)

    def _run(self, name: str, command: Sequence[str]) -> None:
        log = (self.folder / "logs" / f"{name}.log").open("wb")
        self._processes[name] = subprocess.Popen(
            command, stdout=log, stderr=log, env=_environment(), cwd=self.folder, start_new_session=True
        )

    def _sandboxes(self) -> Iterator[int]:
        """Process ids of containerd's shims of this cluster, and of all that they run."""
        shims = [
            int(one)
            for one in _names("/proc")
            if one.isdigit()
            and str(self._socket).encode() in _bytes(Path("/proc", one, "cmdline"))
            and b"shim" in _bytes(Path("/proc", one, "cmdline"))
        ]
        for shim in shims:
            yield from _descendants(shim)

    def _node_is_ready(self) -> bool:
        conditions = self.get("node", NODE)["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    # --- parts ---

    def _write_certificates(self) -> None:
        authority = ec.generate_private_key(ec.SECP256R1())
        name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "cluster")])
        own = _certificate(name, authority, name, authority, None)
        _write(self.folder / "ca.crt", own.public_bytes(serialization.Encoding.PEM))
        _write(self.folder / "ca.key", _pem(authority))
        _write(self.folder / "service.key", _pem(ec.generate_private_key(ec.SECP256R1())))
        for file, common, organisation in (
            ("apiserver", "kube-apiserver", "cluster"),
            ("admin", "admin", "system:masters"),
            ("redis", "redis", "cluster"),
        ):
            key = ec.generate_private_key(ec.SECP256R1())
            subject = x509.Name(
                [
                    x509.NameAttribute(x509.NameOID.ORGANIZATION_NAME, organisation),
                    x509.NameAttribute(x509.NameOID.COMMON_NAME, common),
                ]
            )
            names = [
                x509.DNSName("kubernetes.default.svc"),
                x509.DNSName(NODE),
                x509.DNSName("redis.databases.svc.cluster.local"),
                *(x509.IPAddress(ipaddress.ip_address(one)) for one in (ADDRESS, "127.0.0.1", "10.96.0.1")),
            ]
            signed = _certificate(subject, key, name, authority, names)
            _write(self.folder / f"{file}.crt", signed.public_bytes(serialization.Encoding.PEM))
            _write(self.folder / f"{file}.key", _pem(key))
        files = {
            one: base64.b64encode((self.folder / one).read_bytes()).decode()
            for one in ("ca.crt", "admin.crt", "admin.key")
        }
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "cluster",
                    "cluster": {"server": f"https://{ADDRESS}:{_PORT}", "certificate-authority-data": files["ca.crt"]},
                }
            ],
            "users": [
                {
                    "name": "admin",
                    "user": {"client-certificate-data": files["admin.crt"], "client-key-data": files["admin.key"]},
                }
            ],
            "contexts": [{"name": "admin", "context": {"cluster": "cluster", "user": "admin"}}],
            "current-context": "admin",
        }
        _write(self.folder / "kubeconfig", yaml.safe_dump(config).encode())

    def _etcd(self) -> list[str]:
        url, peer = "http://127.0.0.1:2379", "http://127.0.0.1:2380"
        return [
            "etcd",
            *_options(
                data_dir=self.folder / "etcd",
                listen_client_urls=url,
                advertise_client_urls=url,
                listen_peer_urls=peer,
                initial_advertise_peer_urls=peer,
                initial_cluster=f"default={peer}",
            ),
            "--unsafe-no-fsync",
        ]

    def _api_server(self) -> list[str]:
        return [
            str(self.bin / "kube-apiserver"),
            *_options(
                etcd_servers="http://127.0.0.1:2379",
                bind_address="0.0.0.0",  # noqa: S104 -- of the namespace
                advertise_address=ADDRESS,
                secure_port=_PORT,
                service_cluster_ip_range=_SERVICES,
                client_ca_file=self.folder / "ca.crt",
                tls_cert_file=self.folder / "apiserver.crt",
                tls_private_key_file=self.folder / "apiserver.key",
                kubelet_preferred_address_types="InternalIP",  # no name server knows the node
                kubelet_client_certificate=self.folder / "admin.crt",
                kubelet_client_key=self.folder / "admin.key",
                service_account_issuer="https://kubernetes.default.svc",
                service_account_key_file=self.folder / "service.key",
                service_account_signing_key_file=self.folder / "service.key",
                authorization_mode="Node,RBAC",
                allow_privileged=True,
                requestheader_client_ca_file=self.folder / "ca.crt",
            ),
        ]

    def _containerd_config(self) -> Path:
        file = self.folder / "containerd.toml"
        conf = self.folder / "cni"
        conf.mkdir()
        _write(conf / "10-pods.conflist", json.dumps(_CNI).encode())
        file.write_text(
            f"""version = 2
root = "{self.folder}/containerd"
state = "{self.folder}/state"
[grpc]
address = "{self._socket}"
[plugins."io.containerd.grpc.v1.cri"]
sandbox_image = "{PAUSE}"
restrict_oom_score_adj = true
disable_apparmor = true
[plugins."io.containerd.grpc.v1.cri".containerd]
snapshotter = "overlayfs"
[plugins."io.containerd.grpc.v1.cri".cni]
bin_dir = "/usr/lib/cni"
conf_dir = "{conf}"
"""
        )
        return file

    def _kubelet(self) -> list[str]:
        file = self.folder / "kubelet.yaml"
        settings = {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": ADDRESS,
            "authentication": {"anonymous": {"enabled": False}, "x509": {"clientCAFile": str(self.folder / "ca.crt")}},
            "authorization": {"mode": "Webhook"},
            "cgroupDriver": "cgroupfs",
            "failCgroupV1": False,
            "failSwapOn": False,
            "enforceNodeAllocatable": [],
            "clusterDNS": [DNS],
            "clusterDomain": "cluster.local",
            "resolvConf": str(self.folder / "resolv.conf"),
            "containerRuntimeEndpoint": f"unix://{self._socket}",
            "imageGCHighThresholdPercent": 100,
            "imageMaximumGCAge": "0s",
            "evictionHard": {"memory.available": "200Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "staticPodPath": "",
            "registerNode": True,
            "syncFrequency": "10s",
            "shutdownGracePeriod": "0s",
        }
        (self.folder / "resolv.conf").write_text("")
        file.write_text(yaml.safe_dump(settings))
        return [
            *_options(
                config=file,
                kubeconfig=self.folder / "kubeconfig",
                hostname_override=NODE,
                node_ip=ADDRESS,
                root_dir=self.folder / "kubelet",
            )
        ]


PAUSE = "localhost/debian:bookworm"
"""Image of the process that holds a pod's namespaces; its command sleeps."""
_CNI = {
    "cniVersion": "0.4.0",
    "name": "pods",
    "plugins": [
        # A pair for each pod, not a bridge: all packets between pods are routed, and so pass the policies.
        {
            "type": "ptp",
            "ipam": {"type": "host-local", "ranges": [[{"subnet": _PODS}]], "routes": [{"dst": "0.0.0.0/0"}]},
        },
        {"type": "portmap", "capabilities": {"portMappings": True}},
    ],
}


def enter_namespace(*command: str) -> list[str]:
    """Make the network namespace, with the node's interface: one end of a pair whose other end is in it, too.

    Returns:
        The command, to be run in it.
    """
    for made in (
        f"ip netns add {NAMESPACE}",
        f"ip -n {NAMESPACE} link set lo up",
        f"ip -n {NAMESPACE} link add eth0 type veth peer name outside",
        f"ip -n {NAMESPACE} address add {ADDRESS}/24 dev eth0",
        f"ip -n {NAMESPACE} link set eth0 up",
        f"ip -n {NAMESPACE} link set outside up",
        f"ip -n {NAMESPACE} route add default dev eth0",  # programs find the node's address by it; it leads nowhere
        f"nsenter --net=/run/netns/{NAMESPACE} sysctl -qw net.ipv4.ip_forward=1",
    ):
        subprocess.run(made.split(), check=True)
    # Not `ip netns exec`: it mounts another /sys, without the control groups.
    return ["nsenter", f"--net=/run/netns/{NAMESPACE}", *command]


def leave_namespace() -> None:
    """Delete the network namespace."""
    subprocess.run(["ip", "netns", "delete", NAMESPACE], check=False, capture_output=True)


@contextmanager
def running(folder: Path, bin: Path) -> Iterator[Cluster]:
    """A cluster until the block ends."""
    cluster = Cluster(folder, bin)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.stop()


def _options(**settings: object) -> list[str]:
    values = {name: str(value).lower() if isinstance(value, bool) else value for name, value in settings.items()}
    return [f"--{name.replace('_', '-')}={value}" for name, value in values.items()]


def _environment() -> dict[str, str]:
    """No proxies: the namespace has no way out."""
    return {
        "PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin",
        "HOME": "/root",
        "NODE_NAME": NODE,
    }


def _certificate(
    subject: x509.Name, key: Key, issuer: x509.Name, authority: Key, names: Sequence[x509.GeneralName] | None
) -> x509.Certificate:
    now = dt.datetime.now(dt.UTC)
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - dt.timedelta(hours=1))
        .not_valid_after(now + dt.timedelta(days=7))
        .add_extension(x509.BasicConstraints(ca=names is None, path_length=None), critical=True)
    )
    if names is not None:
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(authority, hashes.SHA256())


def _pem(key: Key) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.TraditionalOpenSSL, serialization.NoEncryption()
    )


def _write(file: Path, content: bytes) -> None:
    file.touch(mode=0o600)
    file.write_bytes(content)


def _names(folder: str) -> list[str]:
    return sorted(os.listdir(folder)) if os.path.isdir(folder) else []


def _bytes(file: Path) -> bytes:
    try:
        return file.read_bytes()
    except OSError:
        return b""


def _descendants(process: int) -> Iterator[int]:
    yield process
    for thread in _names(f"/proc/{process}/task"):
        for child in _bytes(Path(f"/proc/{process}/task/{thread}/children")).split():
            yield from _descendants(int(child))
