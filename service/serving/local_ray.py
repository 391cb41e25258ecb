"""Ray as ``dpicl serve`` starts it on this machine: every port on loopback, and a token of its own for each run.

Left alone, Ray listens on every interface, and Serve's replicas do whatever the node's address is. A port asks for the
cluster's token before it reads a request; Ray would keep one for all clusters in the home directory.
"""

import errno
import ipaddress
import logging
import os
import secrets
import shutil
import socket
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NoReturn

from service.connections import leave_proxies, require_direct_calls
from service.serving import ray_private
from service.settings import check_setting_names

SETTINGS: Mapping[str, str] = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    # Its metrics time every call, without a key and before padding; the other writes the same into its logs.
    "RAY_enable_metrics_collection": "0",
    "RAY_event_stats": "0",
    "RAY_automatic_object_spilling_enabled": "0",  # exemplars would go to disk
    "RAY_worker_niceness": "0",  # at Ray's 15, whatever else runs on the machine goes before the service
    "RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S": "3",  # 30 s more, where a pod's departure has waited for all its work
    "RAY_process_group_cleanup_enabled": "1",  # a replica that was killed would leave vLLM's processes behind
    "RAY_worker_register_timeout_seconds": "180",  # a minute is short on a busy machine
    "RAY_SERVE_PROXY_READY_CHECK_TIMEOUT_S": "60",  # so are five seconds
    # Calls between replicas: half the processor time of Ray's own, and no exemplar enters its object store.
    "RAY_SERVE_USE_GRPC_BY_DEFAULT": "1",
    # Left at 4 MiB, it would refuse a call or not by the length of the exemplars drawn.
    "RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH": str(2**31 - 1),
    # No proxy for them, whatever http_proxy names.
    "grpc_proxy": "",
    # Serve's web server would take the address that a header names for the peer's; DPICL_TRUSTED_PROXIES decides.
    "FORWARDED_ALLOW_IPS": "",
}
"""Environment variables that a process of Ray should have before it imports Ray; the images set the same."""

_LIMIT = 107
"""The most bytes that Linux takes for the path of a socket."""
_SHARED_BYTES = 256 * 2**20
_LOGS_BYTES = 128 * 2**20
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
        NotStartedError: another service has the port, or is about to; another process listens at the address; or this
            process may not listen there.
    """
    reasons = {
        errno.EADDRINUSE: f"port {port} of {host} is taken by another `dpicl serve`, which may be starting still, or "
        "by another program. Stop it, or choose another port with --port",
        errno.EACCES: f"port {port} needs rights that this process does not have: choose one above 1023 with --port",
        errno.EADDRNOTAVAIL: f"{host} is not an address of this machine: choose one with --host, such as 127.0.0.1",
    }
    if not 0 < port < 1 << 16:
        raise NotStartedError(f"port {port} cannot be listened at: choose one from 1 to 65535 with --port")
    try:
        addresses = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        raise NotStartedError(reasons[errno.EADDRNOTAVAIL]) from None
    with socket.socket(socket.AF_UNIX) as name:
        _bind(name, f"\0dp-icl port {port}", reasons)
        for family, kind, protocol, _, address in addresses:
            with socket.socket(family, kind, protocol) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a service left behind takes no port
                _bind(probe, address, reasons)
        yield


def _bind(name: socket.socket, address: Any, reasons: Mapping[int, str]) -> None:
    try:
        name.bind(address)
    except OSError as error:
        if (reason := reasons.get(error.errno or 0)) is not None:
            raise NotStartedError(reason) from None


def require_room(folder: Path | None = None) -> None:
    """Look for what Ray needs on this machine, before minutes go into starting it.

    Args:
        folder: folder of shared memory, ``/dev/shm`` unless given.

    Raises:
        NotStartedError: Ray's folder cannot be used or is too long for its sockets, or there is too little room.
    """
    variable = next((name for name in ("RAY_TMPDIR", "TMPDIR") if name in os.environ), "")
    where = os.environ[variable] if variable else "/tmp"  # noqa: S108  (Ray's own default)
    named = f"{variable}={where}" if variable else where
    other = "set RAY_TMPDIR to another folder, such as /tmp"
    if not os.path.isabs(where):
        raise NotStartedError(f"{named} is not an absolute path, which Ray needs: {other}")
    longest = _LIMIT - len(f"/ray/session_2000-01-01_00-00-00_000000_{os.getpid()}/sockets/plasma_store")
    if (length := len(os.fsencode(where.rstrip("/")))) > longest:
        raise NotStartedError(
            f"{named} has {length} bytes, and the names of Ray's sockets in it leave room for {longest}: {other}"
        )
    if not Path(where).is_dir():
        raise NotStartedError(f"{named} is not a folder that exists: create it, or {other}")
    rays = Path(where, "ray")
    try:
        with tempfile.TemporaryFile(dir=rays if rays.exists() else where) as probe:
            probe.write(bytes(4096))
    except OSError as error:
        raise NotStartedError(f"{named} cannot be written to ({error.strerror}): {other}") from None
    if shutil.disk_usage(where).free < _LOGS_BYTES:
        raise NotStartedError(f"{named} has less than {_LOGS_BYTES // 2**20} MiB free: make room, or {other}")
    shared = folder or Path("/dev/shm")  # noqa: S108
    if not shared.is_dir() or shutil.disk_usage(shared).free < _SHARED_BYTES:
        # Ray would take a file on disk instead.
        raise NotStartedError(
            f"{shared} has less than {_SHARED_BYTES // 2**20} MiB free: make room, or give a container more, as by "
            "`docker run --shm-size 1g`"
        )


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
                object_store_memory=_SHARED_BYTES,
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
    """What each replica's constructor does first: see to its settings, its connections and the files that it makes.

    On a node at loopback, Serve's port for calls between replicas is there, too.

    Raises:
        service.connections.CallsThroughProxyError: the node's environment sends these calls to a proxy.
        service.settings.UnknownSettingError: a variable begins with ``DPICL_`` and names no setting.
    """
    import ray

    check_setting_names()
    require_direct_calls()
    leave_proxies()
    os.umask(0o077)
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
