"""The clock of all the service's processes jumps by hours, forwards and backwards (libfaketime)."""

from __future__ import annotations

import sysconfig
import time
from collections import Counter
from collections.abc import Mapping
from pathlib import Path

import httpx

from chaos.toys import QUESTION_CANARY
from chaos.world import Scenario, World

_OFFSETS_H = (7, 0, -5, 0, 30, 0)
_SESSION_H = 8
_LIBRARIES = (
    Path(sysconfig.get_path("platlib")) / "libfaketimeMT.so.1",
    *Path("/usr/lib").glob("*/faketime/libfaketimeMT.so.1"),
)


def inflict(world: World, seconds: float) -> None:
    """Set the clock to each offset for its share of the time.

    A key with a rate limit must not be locked out once the clock is right again, and a session must end with its time.
    """
    limited = httpx.Client(headers={"Authorization": f"Bearer {world.tokens['slow']}"}, timeout=60)
    browser = httpx.Client(base_url=world.url, headers={"Origin": world.url}, timeout=60)
    browser.post("/admin/sign-in", data={"key": world.tokens["admin"]})
    signed_in = {}
    for hours in _OFFSETS_H:
        (world.folder / "clock").write_text(f"{hours * 3600:+d}")
        began = time.monotonic()
        time.sleep(1.5)  # until every process has read it
        world.note(f"clock {hours:+d} h", time.monotonic())
        for _ in range(40):  # the whole of its burst
            world.load.ask(limited, "toys.colour", f"{QUESTION_CANARY} limited{world.draw.getrandbits(40):x}")
        signed_in[f"{hours:+d} h"] = status = browser.get("/admin/").status_code
        if (status == 200) != (hours < _SESSION_H) and hours:
            world.wrong.append(f"a session was answered with {status} {hours} hours after it began")
        time.sleep(max(0.0, began + seconds / len(_OFFSETS_H) - time.monotonic()))
    time.sleep(2.5)  # one more request of 30 a minute
    after = [world.load.ask(limited, "toys.colour", f"{QUESTION_CANARY} after").status for _ in range(2)]
    if 200 not in after:
        world.wrong.append(f"a key with a rate limit is locked out after the clock was set right: {after}")
    world.notes |= {"limited key afterwards": dict(Counter(map(str, after))), "session": signed_in}
    limited.close()
    browser.close()


def _environment(folder: Path) -> Mapping[str, str]:
    library = next((path for path in _LIBRARIES if path.is_file()), None)
    if library is None:
        raise FileNotFoundError("the scenario clock needs libfaketime: apt-get install libfaketime")
    (folder / "clock").write_text("+0")
    return {
        "LD_PRELOAD": str(library),
        "FAKETIME_TIMESTAMP_FILE": str(folder / "clock"),
        "FAKETIME_CACHE_DURATION": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",  # as a clock that is set leaves it
    }


SCENARIO = Scenario("clock", inflict, seconds=60, environment=_environment)
