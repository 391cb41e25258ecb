"""Every use of Ray's private names. Ray is pinned because of them: check each one before raising the pin."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ray.serve.schema import ServeDeploySchema


@contextmanager
def lean_start(within_s: float) -> Iterator[None]:
    """Let ``ray.init`` wait longer for its node, and start neither a dashboard nor an autoscaler. Neither is a setting.

    Args:
        within_s: seconds that the node may take.
    """
    from ray._private import services
    from ray._private.node import Node

    find_node = services.get_node
    deadline = time.monotonic() + within_s

    def wait_for_node(gcs_address: str, node_id: str) -> Any:
        while True:
            try:
                return find_node(gcs_address, node_id)  # type: ignore[no-untyped-call]
            except RuntimeError as error:
                if time.monotonic() > deadline:
                    raise TimeoutError(f"not up after {within_s:g} s") from error
                time.sleep(0.05)

    services.get_node = wait_for_node
    Node.start_monitor = lambda _node: None  # type: ignore[method-assign]
    Node.start_api_server = _no_dashboard  # type: ignore[assignment,method-assign]
    try:
        yield
    finally:
        services.get_node = find_node


def _no_dashboard(node: Any, **_: Any) -> None:
    node._webui_url = ""


def relay_lines(relay: Callable[[str, str], None]) -> None:
    """Pass on what Ray's processes print, line by line, in place of Ray, which puts a prefix before each line.

    Args:
        relay: takes the process's name and a line.
    """
    from ray._private.ray_logging import global_worker_stdstream_dispatcher as lines

    def each(printed: Mapping[str, Any]) -> None:
        for line in printed.get("lines", ()):
            relay(str(printed.get("actor_name") or printed.get("pid") or "ray"), line)

    lines.remove_handler("ray_print_logs")
    lines.add_handler("ray_print_logs", each)


def hush_errors() -> None:
    """Show no more errors of Ray's tasks in this process: Serve stops its actors while it still asks them."""
    from ray._private import worker

    worker.print_to_stdstream = lambda *_, **__: None


def local_node() -> Any:
    """The node that ``ray.init`` started here. No public function knows its processes."""
    from ray._private import worker

    return worker._global_node


def largest_message() -> int | None:
    """The most bytes that a call between replicas may carry, or None if calls go by Ray's own way, without a limit."""
    from ray.serve._private import constants

    if not constants.RAY_SERVE_USE_GRPC_BY_DEFAULT:
        return None
    return int(constants.RAY_SERVE_REPLICA_GRPC_MAX_MESSAGE_LENGTH)


def listen_at(address: str) -> None:
    """Let Serve's port for calls between replicas listen here. Serve writes the address out in one function.

    Args:
        address: an IP address.
    """
    from ray.serve._private import replica

    listen: Callable[[Any, str], int] = replica.add_port_to_grpc_server  # type: ignore[attr-defined]
    here = f"[{address}]" if ":" in address else address
    replica.add_port_to_grpc_server = lambda server, given: listen(server, given.replace("[::]", here))  # type: ignore[attr-defined]


def deploy(schema: ServeDeploySchema) -> None:
    """Do what `serve run CONFIG` does. Ray has no public function that deploys a whole config from this process."""
    from ray.serve._private.api import serve_start

    client = serve_start(
        http_options=schema.http_options.model_dump(),
        proxy_location=schema.proxy_location,
        global_logging_config=schema.logging_config,
    )
    client.deploy_apps(schema, _blocking=False)


def statuses() -> dict[str, Any]:
    """Status by application. The public ``serve.status`` pickles a class for each deployment, and so delays a start."""
    from ray.serve.context import _get_global_client

    client: Any = _get_global_client()
    return {status.name: status for status in client.list_serve_statuses()}


def session_folder() -> Path | None:
    """Folder of this node's part of the Ray session; None in a process that is not one of a node."""
    node = local_node()
    return None if node is None else Path(node.get_session_dir_path())


class Departures:
    """Nodes of the Ray cluster that are about to go, noted in the cluster's own store of keys and values.

    It connects as a process beside Ray's, by the address and token in the environment. All raise
    :class:`ray.exceptions.RayError` or OSError if the store does not answer.
    """

    _NAMESPACE = b"dpicl"
    _PREFIX = b"departs:"

    def announce(self, within_s: float) -> None:
        """Note that this node goes within some seconds."""
        key = self._PREFIX + socket.gethostname().encode()
        self._store().internal_kv_put(key, str(time.time() + within_s).encode(), True, self._NAMESPACE)

    def end(self) -> None:
        """Note that this node's departure is over."""
        self._store().internal_kv_del(self._PREFIX + socket.gethostname().encode(), False, self._NAMESPACE)

    def any(self) -> bool:
        """Whether some node is about to go."""
        store = self._store()
        limits = [
            store.internal_kv_get(key, self._NAMESPACE) for key in store.internal_kv_keys(self._PREFIX, self._NAMESPACE)
        ]
        return any(float(limit) > time.time() for limit in limits if limit)  # a node that was killed left its note

    def _store(self) -> Any:
        from ray._private import services
        from ray._raylet import GcsClient  # type: ignore[attr-defined]

        return GcsClient(address=services.canonicalize_bootstrap_address_or_die("auto"))
