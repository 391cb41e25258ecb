"""How long an answer takes: a whole number of *grains* from its charge, so that its time tells nothing of the sample.

That holds while the work takes less than one grain (docs/privacy/observable.md). How long a language model takes only
its operator can know, so with one the grain must be set.
"""

from __future__ import annotations

import asyncio
import math

from service.settings import Settings

BUILT_IN_GRAIN_S = 0.1
"""Of the built-in engine, whose answers take a small part of this."""

UNPADDED = "Latency is not padded here: how long an answer takes can tell of private exemplars."


class UnknownLatencyError(ValueError):
    """The settings leave open how long the engine's answers take."""


def latency_grain_s(settings: Settings, *, language_model: bool) -> float:
    """The grain in seconds; 0 where the settings do without in so many words.

    Args:
        settings: with a grain or without.
        language_model: whether the engine runs one.

    Raises:
        UnknownLatencyError: it does, and no grain is set.
    """
    if settings.latency_unpadded:
        return 0.0
    if settings.latency_grain_ms is not None:
        return settings.latency_grain_ms / 1000
    if language_model:
        raise UnknownLatencyError(
            "how long a language model takes depends on private exemplars, so every answer must be made to take as "
            "long as the slowest: set DPICL_LATENCY_GRAIN_MS well above what `dpicl plan try --engine-config` measures "
            "on public exemplars. DPICL_LATENCY_UNPADDED=true does without, and all answers then say so"
        )
    return BUILT_IN_GRAIN_S


async def whole_grains(started: float, grain_s: float) -> int:
    """Wait until a whole number of grains has passed, and say how many; more than one: the promise did not hold.

    Args:
        started: by the event loop's clock.
        grain_s: 0 does not wait and counts none.
    """
    if grain_s <= 0:
        return 0
    loop = asyncio.get_running_loop()
    grains = max(1, math.ceil((loop.time() - started) / grain_s))
    await asyncio.sleep(started + grains * grain_s - loop.time())
    return grains
