"""SIGKILL of each of the service's processes in turn, at random moments, under load."""

import os
import signal
import subprocess
import time
from contextlib import suppress

import psutil

from chaos.world import Scenario, World

_TITLES = {
    "ingress": "ray::ServeReplica:dp-icl:Ingress",
    "engine": "ray::ServeReplica:dp-icl:EngineDeployment",
    "embedder": "ray::ServeReplica:dp-icl:EmbedderDeployment",
    "private work": "ray::ServeReplica:dp-icl:PrivateWork",
    "controller": "ray::ServeController",
    "proxy": "ray::ProxyActor",
    "raylet": "raylet/raylet",
    "gcs": "gcs_server",
    "dpicl serve": "dpicl serve",
}
_POSTGRES = ("postgres backend", "postmaster")
_AGAIN_S = 1.0  # pause before PostgreSQL is started again, as its own supervisor would do


def inflict(world: World, seconds: float) -> None:
    """Kill processes until the time is up: one of each kind, in random order, then one of each kind again.

    In three cases out of four, the next kill waits until the service answers again. Otherwise it hits a service that is
    starting.
    """
    ends = time.monotonic() + seconds
    kinds: list[str] = []
    while time.monotonic() < ends:
        kinds = kinds or world.draw.sample([*_TITLES, *_POSTGRES], len(_TITLES) + len(_POSTGRES))
        killed = kill(world, kinds.pop())
        if killed and world.draw.random() < 0.75:
            world.note(killed, time.monotonic(), within=max(1.0, ends - time.monotonic()))
        elif killed:
            world.faults.append((killed, None))
        time.sleep(world.draw.uniform(0.5, 4.0))


def kill(world: World, kind: str) -> str:
    """Kill one process of a kind; return the kind, or an empty string if no such process runs."""
    if kind in _TITLES:
        found = world.supervisor.processes(_TITLES[kind])
    else:
        assert world.postgres is not None
        server = world.postgres.processes()
        found = server[:1] if kind == "postmaster" else [one for one in server[1:] if _serves(one)]
    if not found:
        return ""
    with suppress(psutil.NoSuchProcess):
        os.kill(world.draw.choice(found).pid, signal.SIGKILL)
    if kind == "postmaster":
        start_again(world)
    return kind


def start_again(world: World) -> None:
    """Start PostgreSQL as soon as it can start: it refuses to while children of the old postmaster live."""
    assert world.postgres is not None
    for _ in range(20):
        time.sleep(_AGAIN_S)
        with suppress(subprocess.SubprocessError):
            world.postgres.start()
            return
    world.wrong.append("PostgreSQL did not start again")


def _serves(process: psutil.Process) -> bool:
    """Whether this is a PostgreSQL backend that serves a connection."""
    with suppress(psutil.NoSuchProcess):
        return "postgres chaos" in " ".join(process.cmdline())
    return False


SCENARIO = Scenario("kill", inflict, seconds=600, postgresql=True, remote=True, answers=20_000)
