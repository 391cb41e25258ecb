"""Ray as ``dpicl serve`` starts it on this machine: every port on loopback, and a token of its own for each run.

Left alone, Ray listens on every interface, and Serve's replicas do whatever the node's address is. A port asks for the
cluster's token before it reads a request; Ray would keep one for all clusters in the home directory.
"""

from __future__ import annotations

import errno
import ipaddress
import logging
import os
import secrets
import socket
import time
from collections.abc import Callable
from typing import Any, NoReturn

START_WITHIN_S = 120.0
"""Ray's own patience, 30 s, is too little for a machine with much else to do."""


class NotStartedError(ValueError):
    """The service cannot start on this machine as it is; the message says what to do."""


def require_free(host: str, port: int) -> None:
    """Refuse an address where another process listens.

    Serve's proxy would share it (SO_REUSEPORT), and callers would get answers of one service or the other.

    Raises:
        NotStartedError: the address, or the port on all of the machine's addresses, is taken.
    """
    for family, kind, protocol, _, address in socket.getaddrinfo(host, port, type=socket.SOCK_STREAM):
        with socket.socket(family, kind, protocol) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)  # what a service left behind takes no port
            try:
                probe.bind(address)
            except OSError as error:
                if error.errno == errno.EADDRINUSE:
                    raise NotStartedError(
                        f"port {port} of {host} is taken: another `dpicl serve`, or another program, listens there. "
                        "Stop it, or choose another port with --port"
                    ) from None


def close() -> None:
    """Set what Ray reads from the environment, before it is imported; its processes inherit it."""
    # In spite of its name this decides, on every system, whether a node that was given no address takes 127.0.0.1.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


def start() -> None:
    """Start Ray with what a service needs, and connect to it.

    That is no dashboard and no autoscaler of nodes: Ray would start a process for each even where neither has anything
    to do, and wait for it, half of the time that it takes to start.

    Raises:
        NotStartedError: Ray did not come up.
    """
    import ray
    from ray._private import services
    from ray._private.node import Node

    find_node = services.get_node
    deadline = time.monotonic() + START_WITHIN_S

    def wait_for_node(gcs_address: str, node_id: str) -> Any:
        while True:
            try:
                return find_node(gcs_address, node_id)  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not up after {START_WITHIN_S:g} s") from error
                time.sleep(0.05)

    # Ray has no setting for any of these.
    services.get_node = wait_for_node
    Node.start_monitor = lambda _node: None  # type: ignore[method-assign]
    Node.start_api_server = _no_dashboard  # type: ignore[assignment,method-assign]
    try:
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
    finally:
        services.get_node = find_node


def _no_dashboard(node: Any, **_: Any) -> None:
    node._webui_url = ""


def died() -> str:
    """Which process has died of those without which the Ray that was started here is lost; empty if none has."""
    dead = {kind for kind, _ in _node().dead_processes()}
    return next((kind for kind in ("raylet", "gcs_server") if kind in dead), "")


def abandon() -> NoReturn:
    """End what was started here, and this process, at once: Ray's own ways to stop wait for what has died."""
    try:
        _node().kill_all_processes(check_alive=False)
    finally:
        os._exit(1)


def _node() -> Any:
    from ray._private import worker  # no public function knows its processes

    return worker._global_node


def keep_to_loopback() -> None:
    """In a replica's constructor, on a node at loopback: let Serve's port for calls between replicas be there, too.

    Serve has no setting for it: the address is written out in a function of its own, which is replaced here.
    """
    import ray
    from ray.serve._private import replica

    node: str = ray.util.get_node_ip_address()  # type: ignore[no-untyped-call]
    if ipaddress.ip_address(node).is_loopback:
        listen: Callable[[Any, str], int] = replica.add_port_to_grpc_server  # type: ignore[attr-defined]
        here = f"[{node}]" if ":" in node else node
        replica.add_port_to_grpc_server = lambda server, address: listen(server, address.replace("[::]", here))  # type: ignore[attr-defined]
