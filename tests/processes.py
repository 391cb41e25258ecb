"""What tests with several processes need."""

import multiprocessing
import socket

FRESH = multiprocessing.get_context("forkserver")
FRESH.set_forkserver_preload(["tests.service.conftest"])
"""Other processes at no cost: each is forked from one that has imported the service, and has opened nothing."""


def free_ports(number: int) -> list[int]:
    """Ports of this machine on which nobody listens."""
    probes = [socket.socket() for _ in range(number)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
