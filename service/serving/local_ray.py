"""Ray as ``dpicl serve`` starts it on this machine: every port on loopback, and a token of its own for each run.

Left alone, Ray listens on every interface, and Serve's replicas do whatever the node's address is. A port asks for the
cluster's token before it reads a request; Ray would keep one for all clusters in the home directory.
"""

import errno
import ipaddress
import logging
import os
import secrets
import socket
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, NoReturn

from service.connections import leave_proxies, require_direct_calls
from service.serving import ray_private

SETTINGS: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Its metrics time every call, without a key and before padding; the other writes the same into its logs.
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "RAY_automatic_object_spilling_enabled": "0",  # exemplars would go to disk
    "RAY_worker_niceness": "0",  # at Ray's 15, whatever else runs on the machine goes before the service
    "RAY_process_group_cleanup_enabled": "1",  # a replica that was killed would leave vLLM's processes behind
    "RAY_worker_register_timeout_seconds": "180",  # a minute is short on a busy machine
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # so are five seconds
    # Calls between replicas: half the processor time of Ray's own, and no exemplar enters its object store.
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    # Left at 4 MiB, it would refuse a call or not by the length of the exemplars drawn.
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**31 - 1),
    # No proxy for them, whatever http_proxy names.
    "grpc_proxy": "",
}
"""Environment variables that a process of Ray should have before it imports Ray; the images set the same."""

START_WITHIN_S = 120.0
"""Ray's own patience, 30 s, is too little for a machine with much else to do."""


class NotStartedError(ValueError):
    """The service cannot start on this machine as it is; the message names what to do."""


@contextmanager
def claimed(host: str, port: int) -> Iterator[None]:
    """Keep an address for this process until the block ends.

    Serve's proxy shares its port (SO_REUSEPORT) with another service's proxy, and callers would get answers of one
    service or the other. The proxy listens late in a start. So the port also has a name from the beginning, which
    the kernel gives to one process, and frees when that process ends.

    Raises:
        NotStartedError: another service has the port, or is about to; or another process listens at the address.
    """
    taken = NotStartedError(
        f"port {port} of {host} is taken by another `dpicl serve`, which may be starting still, or by another program. "
        "Stop it, or choose another port with --port"
    )
    with socket.socket(socket.AF_UNIX) as name:
        _bind(name, f"\0dp-icl port {port}", taken)
        for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a service left behind takes no port
                _bind(probe, address, taken)
        yield


def _bind(name: socket.socket, address: Any, taken: NotStartedError) -> None:
    try:
        name.bind(address)
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            raise taken from None


def close() -> None:
    """Set what Ray reads from the environment, before it is imported; its processes inherit it."""
    # In spite of its name this decides, on every system, whether a node that was given no address takes 127.0.0.1.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def start() -> None:
    """Start Ray with what a service needs, and connect to it.

    Neither a dashboard nor an autoscaler of nodes: Ray would start a process for each even where neither has
    anything to do, and wait for it, half of the time that it takes to start.

    Raises:
        NotStartedError: Ray did not come up.
    """
    import ray

    try:
        with ray_private.lean_start(START_WITHIN_S):
            ray.init(
                address="local",
                namespace="serve",
                logging_level=logging.WARNING,
                include_dashboard=False,
                object_store_memory=256 * 2**20,
            )
    except Exception as error:
        raise NotStartedError(
            f"Ray did not start ({str(error).strip().splitlines()[0]}). This machine may have too much else to do, or "
            "too little free memory or disk: make room and start again. Ray's own logs are in session_latest/logs of "
            "its folder, /tmp/ray unless RAY_TMPDIR is set"
        ) from error


def died() -> str:
    """The necessary process of the Ray started here that has died; empty if none has."""
    dead = {kind for kind, _ in ray_private.local_node().dead_processes()}
    return next((kind for kind in ("raylet", "gcs_server") if kind in dead), "")


def abandon() -> NoReturn:
    """End what was started here, and this process, at once: Ray's own ways to stop wait for what has died."""
    try:
        ray_private.local_node().kill_all_processes(check_alive=False)
    finally:
        os._exit(1)


def begin_replica() -> None:
    """What each replica's constructor does first: see to its connections.

    On a node at loopback, Serve's port for calls between replicas is there, too.

    Raises:
        service.connections.CallsThroughProxyError: the node's environment sends these calls to a proxy.
    """
    import ray

    require_direct_calls()
    leave_proxies()
    node: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    if ipaddress.ip_address(node).is_loopback:
        ray_private.listen_at(node)


def require_whole_messages() -> None:
    """Refuse to answer where calls to the engine may be too long for the way they go: that would show what was drawn.

    Raises:
        NotStartedError: a limit on messages is set too low.
    """
    name = "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH"
    limit = ray_private.largest_message()
    if limit is not None and limit < int(SETTINGS[name]):
        raise NotStartedError(
            f"calls between replicas carry at most {limit} bytes here, since RAY_SERVE_USE_GRPC_BY_DEFAULT is 1, and "
            f"whether one is too long would depend on private exemplars: set {name}={SETTINGS[name]} on every node"
        )
