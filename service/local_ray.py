"""Ray as ``dpicl serve`` starts it on this machine: every port on loopback, and a token of its own for each run.

Left alone, Ray listens on every interface, and Serve's replicas do whatever the node's address is. A port asks for the
cluster's token before it reads a request; Ray would keep one for all clusters in the home directory.
"""

from __future__ import annotations

import ipaddress
import os
import secrets
from collections.abc import Callable
from typing import Any, NoReturn


def close() -> None:
    """Set what Ray reads from the environment, before it is imported; its processes inherit it."""
    # In spite of its name this decides, on every system, whether a node that was given no address takes 127.0.0.1.
    os.environ["RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"] = "0"
    os.environ["RAY_AUTH_MODE"] = "token"
    os.environ["RAY_AUTH_TOKEN"] = secrets.token_hex(32)


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
