"""Engines that pass their calls on, and the one that other tests ask, keep the promises of all others."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pytest
from ray import serve

from exemplar_store import Slot
from service.engines.task import ZeroShot
from service.engines.with_notice import WithNotice
from service.serving.application import EngineDeployment, RemoteEngine, deployment
from tests.service.engines.contract import LABELS, POOL, QUERY, DownContract, EngineContract, Running, compared
from tests.service.engines.isolated import assert_isolated
from tests.service.engines.majority import MajorityEngine


class TestMajority(EngineContract, DownContract):
    @pytest.fixture
    def engine(self) -> MajorityEngine:
        return MajorityEngine()

    @pytest.fixture
    def down(self, engine: MajorityEngine, request: pytest.FixtureRequest) -> Running:
        engine.down = True
        return request.getfixturevalue("running")


class TestWithNotice(TestMajority):
    @pytest.fixture
    def running(self, engine: MajorityEngine) -> Iterator[Running]:
        with asyncio.Runner() as runner:
            yield Running(WithNotice(engine, "Made up."), runner.run)


@deployment
class Deployed(EngineDeployment.func_or_class):
    def __init__(self, engine: MajorityEngine) -> None:
        self._engine = engine

    async def alive(self) -> None:
        """The embedder need not run."""


@pytest.mark.model
class TestRemote(TestMajority):
    slots, changed = 20, 3

    @pytest.fixture
    def running(self, engine: MajorityEngine) -> Iterator[Running]:
        handle = serve.run(Deployed.bind(engine), _local_testing_mode=True)
        with asyncio.Runner() as runner:
            yield Running(RemoteEngine(handle, handle), runner.run)


class Leaky(MajorityEngine):
    """Gives a slot that abstains the output of the slot before it."""

    async def contributions(self, *arguments: Any) -> list[np.ndarray | str | None]:
        said = await super().contributions(*arguments)
        return [said[at - 1] if output is None else output for at, output in enumerate(said)]


def test_a_slot_that_repeats_another_is_found() -> None:
    def ask(slots: Sequence[Slot]) -> list[Any]:
        return list(map(compared, asyncio.run(Leaky().contributions(LABELS, QUERY, slots, ZeroShot()))))

    with pytest.raises(AssertionError):
        assert_isolated(ask, POOL, seed=0)
