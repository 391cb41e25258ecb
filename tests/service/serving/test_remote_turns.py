"""Turns of several processes, by Serve's own handle for use in one process."""

import asyncio

from ray import serve

from service.answering.turns import turn
from service.serving.application import RemoteTurns, TurnsDeployment


async def test_processes_take_turns_with_each_other() -> None:
    handle = serve.run(TurnsDeployment.bind(), _local_testing_mode=True)
    asking, inside, most = [RemoteTurns(handle) for _ in range(3)], 0, 0

    async def ask(turns: RemoteTurns) -> None:
        nonlocal inside, most
        async with turn(turns) as taken:
            inside += 1
            most = max(most, inside)
            await asyncio.sleep(0.02)
            inside -= 1
            await taken.end(0.01)

    await asyncio.gather(*(ask(turns) for turns in asking * 3))
    assert most == 1
    number = await asking[0].begin(5.0, 60.0)
    assert 4.0 < await asking[1].wait_s() <= 5.0
    await asking[0].end(number)
    assert await asking[2].wait_s() == 0.0
