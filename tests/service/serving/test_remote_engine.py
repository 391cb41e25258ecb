"""An engine asked through its deployment, by Serve's own handle for use in one process."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from ray import serve
from ray.serve.handle import DeploymentHandle

from exemplar_store import Exemplar
from service.engines.errors import EngineUnavailableError
from service.engines.passing_on import Method, PassesOn
from service.engines.task import Prompt, TaskSpec, ZeroShot
from service.serving.application import EngineDeployment, RemoteEngine, deployment

TASK = TaskSpec("toys.colour", ("red", "blue"), Prompt("", "", ""))
SLOTS = [(), (Exemplar({"text": "a kite", "label": "red"}, np.ones(2, np.float32), None),)]
QUERY = {"text": "a boat"}


class Recorded(PassesOn):
    """An engine that returns the call it gets, or raises an error that quotes the call, where ``fails`` is set."""

    fails = False

    async def pass_on(self, method: Method, arguments: Mapping[str, Any]) -> Any:
        if self.fails:
            raise EngineUnavailableError(f"cannot {method.name} {arguments}")
        return method.name, dict(arguments)

    def close(self) -> None:
        pass


@deployment
class RecordedDeployment(EngineDeployment.func_or_class):
    def __init__(self) -> None:
        self._engine = Recorded()

    async def fail(self) -> None:
        self._engine.fails = True


@pytest.fixture
def handle() -> DeploymentHandle[Any]:
    return serve.run(RecordedDeployment.bind(), _local_testing_mode=True)


@pytest.fixture
def engine(handle: DeploymentHandle[Any]) -> RemoteEngine:
    return RemoteEngine(handle, handle)


async def test_the_engine_gets_all_arguments(engine: RemoteEngine) -> None:
    assert await engine.turn(TASK, 7, 0.5) == ("turn", {"task": TASK, "tokens": 7, "takes_s": 0.5})
    for name, slots, arguments in (
        ("contributions", "slots", {"task": TASK, "query": QUERY, "zero_shot": ZeroShot()}),
        ("write", "slots", {"task": TASK, "query": QUERY, "zero_shot": ZeroShot()}),
        ("keep", "blocks", {"task": TASK}),
    ):
        called, got = await getattr(engine, name)(**{slots: SLOTS}, **arguments)
        assert (called, got.keys()) == (name, {slots, *arguments})
        assert [[exemplar.fields for exemplar in slot] for slot in got[slots]] == [[], [SLOTS[1][0].fields]]


async def test_an_error_on_exemplars_reveals_nothing_of_them(
    engine: RemoteEngine, handle: DeploymentHandle[Any]
) -> None:
    await handle.fail.remote()
    assert await engine.contributions(TASK, QUERY, SLOTS, ZeroShot()) == []
    with pytest.raises(EngineUnavailableError, match=r"^the engine could not write an answer$"):
        await engine.write(TASK, QUERY, SLOTS, ZeroShot())
    with pytest.raises(EngineUnavailableError, match=r"^the engine could not read exemplars ahead$"):
        await engine.keep(TASK, SLOTS)


async def test_a_refusal_is_raised_here(engine: RemoteEngine, handle: DeploymentHandle[Any]) -> None:
    await handle.fail.remote()
    with pytest.raises(EngineUnavailableError, match=r"^cannot zero_shot .* boat"):
        await engine.zero_shot(TASK, QUERY)


@pytest.mark.parametrize("name", ["close", "__class__", "check_health"])
async def test_only_the_protocols_methods_can_be_asked_for(handle: DeploymentHandle[Any], name: str) -> None:
    with pytest.raises(KeyError):
        await handle.ask.remote(name, {})
