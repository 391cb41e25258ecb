"""Full disks: SQLite's, the upload spool's, and PostgreSQL's."""

import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import httpx

from chaos import toys
from chaos.faults.kill import start_again
from chaos.world import Scenario, World

_FULL_S = 8.0


def _small_disks(database_mib: int) -> Callable[[World], Callable[[], None]]:
    """Preparation that mounts small file systems for the databases and for temporary files; mounting needs root."""

    def mount(world: World) -> Callable[[], None]:
        sizes = {world.folder / "base": database_mib, world.folder / "tmp": 8}
        for path, mib in sizes.items():
            subprocess.run(
                ["/bin/mount", "-t", "tmpfs", "-o", f"size={mib}m,mode=0711", "tmpfs", str(path)], check=True
            )

        def unmount() -> None:
            for path in sizes:
                subprocess.run(["/bin/umount", "--lazy", str(path)], check=True)

        return unmount

    return mount


def inflict(world: World, seconds: float) -> None:
    """Fill the database's disk several times, then the spool's disk, with an upload that does not fit."""
    ends = time.monotonic() + seconds
    while True:
        _fill(world.folder / "base" / "ballast")
        time.sleep(_FULL_S)
        (world.folder / "base" / "ballast").unlink()
        if world.postgres is not None and not world.postgres.processes():
            start_again(world)
        world.note("disk of the database", time.monotonic(), within=60)
        if time.monotonic() > ends:
            break
    began = time.monotonic()
    world.notes["uploads to a full disk"] = dict(Counter(_upload(world) for _ in range(2)))
    world.note("disk of the spool", began, within=60)


def _fill(ballast: Path) -> None:
    with suppress(OSError), ballast.open("wb", buffering=0) as stream:
        while True:
            stream.write(os.urandom(64 * 1024))


def _upload(world: World) -> str:
    """Upload more than the spool's disk holds: the service must report a failure, and store none of it."""
    rows = "".join(row.replace("It flies", "x" * 10_000) + "\n" for row in toys.rows(range(500, 2500)).splitlines())
    headers = {"Authorization": f"Bearer {world.tokens['admin']}", "Content-Type": "application/x-ndjson"}
    address = f"{world.url}/v1/knowledge-bases/toys/exemplars"
    response = httpx.post(address, content=rows, headers=headers, timeout=120, trust_env=False)
    world.load.look(f"the answer {response.status_code} to an upload", response.content)
    if response.status_code < 500 or "type" not in response.json():
        world.wrong.append(f"an upload that fits no disk was answered with {response.status_code}")
    return str(response.status_code)


SCENARIO = Scenario("disk", inflict, seconds=30, prepare=_small_disks(24))
POSTGRES = Scenario("disk-postgresql", inflict, seconds=30, postgresql=True, prepare=_small_disks(120))
