"""Why Serve's `max_ongoing_requests` must never be reached: a burst that its router queues, against one it passes on.

Three replicas call another, which takes 64 calls of 0.1 s at a time. The limit in Serve's router is either the same or
out of reach. Once the router has had calls rejected, it releases its queue at two calls per half second.

    python benchmarks/routing.py            # two to three minutes
    python benchmarks/routing.py --quick    # 150 calls instead of 2,400
"""

from __future__ import annotations

import argparse
import asyncio
import time

import ray
from ray import serve

CALLERS, PER_CALLER, QUICK_PER_CALLER = 6, 400, 25
AT_ONCE, TAKES_S = 64, 0.1
OUT_OF_REACH = 20_000
CORES = {"num_cpus": 0.1}


@serve.deployment
class Called:
    """Takes a fixed time for each call, and a fixed number of calls at once."""

    def __init__(self) -> None:
        self._places = asyncio.Semaphore(AT_ONCE)

    async def __call__(self) -> None:
        async with self._places:
            await asyncio.sleep(TAKES_S)


@serve.deployment
class Caller:
    """Makes many calls at once."""

    def __init__(self, called: serve.handle.DeploymentHandle) -> None:
        self._called = called

    async def __call__(self, calls: int) -> None:
        await asyncio.gather(*(self._called.remote() for _ in range(calls)))


def burst(limit: int, per_caller: int) -> float:
    """Seconds until all calls have returned."""
    called = Called.options(max_ongoing_requests=limit, ray_actor_options=CORES).bind()
    caller = Caller.options(num_replicas=3, max_ongoing_requests=OUT_OF_REACH, ray_actor_options=CORES)
    handle = serve.run(caller.bind(called))

    async def call() -> float:
        await asyncio.gather(*(handle.remote(1) for _ in range(CALLERS)))
        began = time.monotonic()
        await asyncio.gather(*(handle.remote(per_caller) for _ in range(CALLERS)))
        return time.monotonic() - began

    return asyncio.run(call())


def main() -> None:
    """Measure both limits."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="fewer calls")
    per_caller = QUICK_PER_CALLER if parser.parse_args().quick else PER_CALLER
    ray.init(address="local", num_cpus=2, include_dashboard=False, logging_level="ERROR", log_to_driver=False)
    serve.start(proxy_location="Disabled")  # nothing comes over HTTP
    try:
        least = CALLERS * per_caller / AT_ONCE * TAKES_S
        passed_on, queued = burst(OUT_OF_REACH, per_caller), burst(AT_ONCE, per_caller)
        print(f"{CALLERS * per_caller} calls of {TAKES_S} s, {AT_ONCE} at once: {least:.1f} s at least")
        print(f"max_ongoing_requests {OUT_OF_REACH}: {passed_on:.1f} s, {passed_on / least:.1f} times that")
        print(f"max_ongoing_requests {AT_ONCE}: {queued:.1f} s, {queued / passed_on:.1f} times as long")
    finally:
        serve.shutdown()
        ray.shutdown()


if __name__ == "__main__":
    main()
