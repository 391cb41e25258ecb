"""PostgreSQL crashes under load and comes back: at once, then after longer and longer pauses."""

import time

from chaos.world import Scenario, World

_DOWN_S = (0.0, 3.0, 12.0)


def inflict(world: World, seconds: float) -> None:
    """Stop PostgreSQL without a checkpoint and start it again, until the time is up."""
    assert world.postgres is not None
    ends = time.monotonic() + seconds
    for down in _DOWN_S * 10:
        world.postgres.stop("immediate")
        time.sleep(down)
        world.postgres.start()
        world.note(f"database down for {down:.0f} s", time.monotonic(), within=60)
        time.sleep(world.draw.uniform(0.5, 2))
        if time.monotonic() > ends:
            break


SCENARIO = Scenario("database", inflict, seconds=50, postgresql=True)
