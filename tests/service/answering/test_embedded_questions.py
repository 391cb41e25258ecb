"""Exits after a question was embedded: all are on the grain, since embedding takes as long as others keep it busy."""

import asyncio
import contextlib
import time
from collections.abc import Sequence
from pathlib import Path
from unittest.mock import Mock

import numpy as np
import pytest
import sqlalchemy as sa

from accounting.ledger.charges import AnswersExhaustedError, IdempotencyConflictError
from accounting.ledger.quotas import QuotaExhaustedError
from accounting.ledger.witness import WitnessUnavailableError
from service.answering import answering as pipeline
from service.answering.answering import BusyError
from service.answering.latency import Departure
from service.answering.queries import InvalidQueryError
from service.engines.errors import EngineBusyError, EngineUnavailableError
from service.operations.services import Services, open_services
from tests.service.answering.topic_shop import BY_SIMILARITY, embed, opened
from tests.service.conftest import Embedding, FixedGrain, MajorityEngine

pytestmark = pytest.mark.slow

GRAIN_S = 0.4
EMBEDDING_S = 0.1


class Slow(Embedding):
    """Takes its time, and fails if it is to."""

    fails = False

    def __init__(self) -> None:
        super().__init__(self.slowly)

    def slowly(self, texts: Sequence[str]) -> np.ndarray:
        time.sleep(EMBEDDING_S)
        if self.fails:
            raise RuntimeError("no embedder")
        return embed(texts)


@pytest.fixture
def services(tmp_path: Path) -> Services:
    services = open_services(opened(tmp_path, BY_SIMILARITY), MajorityEngine(), Slow())
    services.answering.grains = FixedGrain(GRAIN_S)
    return services


async def leaves(services: Services, expected: type[Exception] | None, **options: object) -> float:
    """Grains after which a question leaves that ends so."""
    key = {"key_id": "k", **options}
    began = time.monotonic()
    with contextlib.nullcontext() if expected is None else pytest.raises(expected):
        await services.answering.answer("shop.mood", "a lamp of mine", **key)  # type: ignore[arg-type]
    return (time.monotonic() - began) / GRAIN_S


def used_up(services: Services) -> type[Exception]:
    for number in range(3):
        asyncio.run(services.answering.answer("shop.mood", f"lamp {number}", key_id="k"))
    return AnswersExhaustedError


def without_a_witness(services: Services) -> type[Exception]:
    away = Mock(trouble=None, catch_up=Mock(side_effect=WitnessUnavailableError("away")))
    services.answering.ledger._witness = away
    return WitnessUnavailableError


def without_a_database(services: Services) -> type[Exception]:
    services.answering.ledger.charge = Mock(side_effect=sa.exc.OperationalError("", {}, Exception()))
    return sa.exc.OperationalError


def without_blocks(services: Services) -> type[Exception]:
    services.answering.blocks.held = Mock(side_effect=EngineBusyError("they are being read"))
    return BusyError


def without_an_embedder(services: Services) -> type[Exception]:
    services.answering.stages.embedder.fails = True
    return EngineUnavailableError


def without_an_engine(services: Services) -> type[Exception]:
    services.engine.engine.down = True  # type: ignore[attr-defined]
    return EngineUnavailableError


def on_no_topic(services: Services) -> type[Exception]:
    services.answering._topic = Mock(side_effect=InvalidQueryError("on no topic"))
    return InvalidQueryError


def answered(services: Services) -> None:
    return None


EXITS = [
    answered,
    used_up,
    without_a_witness,
    without_a_database,
    without_blocks,
    without_an_embedder,
    without_an_engine,
    on_no_topic,
]


@pytest.mark.parametrize("ends", EXITS)
def test_whatever_becomes_of_a_question_it_leaves_a_grain_after_it_was_embedded(services: Services, ends) -> None:
    expected = ends(services)
    assert asyncio.run(leaves(services, expected)) >= 1.0


def test_the_grains_of_an_answer_are_counted_from_when_its_question_was_embedded(services: Services, monkeypatch):
    made: list[Departure] = []

    def noted(grain_s: float) -> Departure:
        made.append(Departure(grain_s))
        return made[-1]

    monkeypatch.setattr(pipeline, "Departure", noted)
    asyncio.run(leaves(services, None))
    assert len(made) == 1


def test_a_quota_and_an_idempotency_key_are_refused_on_the_grain_too(services: Services) -> None:
    zero = services.records.keys.create("z", "analyst", quota=0)[0].id
    key = services.records.keys.create("a", "analyst")[0].id
    asyncio.run(services.answering.answer("shop.mood", "a lamp", key_id=key, idempotency_key="X"))
    for expected, options in (
        (QuotaExhaustedError, {"key_id": zero}),
        (IdempotencyConflictError, {"key_id": key, "idempotency_key": "X"}),
        (ValueError, {"key_id": key, "idempotency_key": "X" * 301}),
    ):
        assert asyncio.run(leaves(services, expected, **options)) >= 1.0


async def test_an_answer_that_has_left_does_not_wait_again() -> None:
    departure = Departure(0.05)
    departure.fix()
    await departure.wait()
    began = time.monotonic()
    await departure.wait_for_refusal()
    assert time.monotonic() - began < 0.04
