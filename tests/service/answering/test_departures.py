"""Whatever becomes of a question that took an engine's time leaves after a whole grain: refusals, repeats and errors.

An engine or an embedder is busy with private work, so how long they took would show how long that takes. A machine that
is busy makes nothing leave any sooner, so these tests can only fail for a reason.
"""

import asyncio
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from accounting.ledger.charges import AnswersExhaustedError, IdempotencyConflictError
from accounting.ledger.quotas import QuotaExhaustedError
from service.answering.answering import Answering
from service.answering.once.making import grain_s
from service.answering.plans.signing import prepare, promise
from service.answering.queries import InvalidQueryError
from service.engines.errors import EngineUnavailableError, UnanswerableQueryError, UnusableReplyError
from service.operations.services import Services
from tests.service.answering.test_conversations import conversation, remote, rewriting_as
from tests.service.answering.topic_shop import BY_FIELD, BY_SIMILARITY, ask, embed, opened, plan, serve
from tests.service.conftest import Embedding, FixedGrain, MajorityEngine, development
from tests.service.engines.chat_server import completion

GRAIN_S = 0.3


def padded(services: Services, **changes: Any) -> Answering:
    """The pipeline with a grain, which is asked by one key."""
    grains: Any = FixedGrain(GRAIN_S)
    return replace(services.answering, grains=grains, public_grain_s=GRAIN_S, **changes)


async def check_leaves_on_the_grain(answering: Answering, query: Any, error: type[Exception], **options: Any) -> None:
    options = {"key_id": "k", **options}
    arrived = time.monotonic()
    with pytest.raises(error):
        await answering.answer(options.pop("task", "shop.mood"), query, **options)
    assert time.monotonic() - arrived >= GRAIN_S


def used_up(services: Services) -> dict[str, Any]:
    for number in range(3):
        ask(services, f"kettle {number}", None)
    return {}


def without_quota(services: Services) -> dict[str, Any]:
    key, _ = services.records.keys.create("ana", "analyst", quota=1)
    asyncio.run(services.answering.answer("shop.mood", "a lamp", key_id=key.id))
    return {"key_id": key.id}


def a_name_used_before(services: Services) -> dict[str, Any]:
    asyncio.run(services.answering.answer("shop.mood", "a lamp", key_id="k", idempotency_key="mine"))
    return {"idempotency_key": "mine"}


@pytest.mark.parametrize(
    ("before", "error"),
    [
        (used_up, AnswersExhaustedError),
        (without_quota, QuotaExhaustedError),
        (a_name_used_before, IdempotencyConflictError),
    ],
)
def test_a_question_that_is_refused_once_it_was_embedded(
    tmp_path: Path, before: Callable[[Services], dict[str, Any]], error: type[Exception]
) -> None:
    services = serve(opened(tmp_path, BY_SIMILARITY))
    options = before(services)
    asyncio.run(check_leaves_on_the_grain(padded(services), "another kettle", error, **options))


def failing(_texts: Any) -> np.ndarray:
    raise OSError("the embedder is down")


@pytest.mark.parametrize(
    ("topics", "order"), [(BY_SIMILARITY, "random"), (BY_SIMILARITY, "nearest"), (BY_FIELD, "nearest")]
)
def test_a_question_that_cannot_be_embedded(tmp_path: Path, topics: str, order: str) -> None:
    services = serve(opened(tmp_path, topics, ensemble=f"ensemble: 10\n    order: {order}"))
    stages: Any = replace(services.answering.stages, embedder=Embedding(failing))
    query = {"text": "a kettle", "product": "kettle"} if topics == BY_FIELD else "a kettle"
    asyncio.run(check_leaves_on_the_grain(padded(services, stages=stages), query, EngineUnavailableError))
    assert set(services.records.ledger.topics_left(services.records.ledger.budgets.task("shop.mood")).values()) == {3}


class Refusing(MajorityEngine):
    """Fails without exemplars."""

    def __init__(self, error: Exception) -> None:
        super().__init__()
        self.error = error

    async def zero_shot(self, *_: Any) -> Any:
        raise self.error


@pytest.mark.parametrize("topics", [BY_SIMILARITY, BY_FIELD])
@pytest.mark.parametrize(
    ("fails", "error"),
    [
        (EngineUnavailableError("down"), EngineUnavailableError),
        (UnanswerableQueryError("too long"), InvalidQueryError),
        (UnusableReplyError("empty"), UnusableReplyError),
        (OSError("the network"), EngineUnavailableError),
    ],
)
def test_a_question_that_the_engine_refuses(
    tmp_path: Path, topics: str, fails: Exception, error: type[Exception]
) -> None:
    services = serve(opened(tmp_path, topics))
    stages: Any = replace(services.answering.stages, engine=Refusing(fails))
    query = {"text": "a kettle", "product": "kettle"} if topics == BY_FIELD else "a kettle"
    asyncio.run(check_leaves_on_the_grain(padded(services, stages=stages), query, error))


def test_sorting_units_by_topic_takes_whole_grains(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are few here, and the grain depends on the public size alone. The shortest is shortened here."""
    monkeypatch.setattr("service.answering.once.making._SHORTEST_GRAIN_S", 3 * GRAIN_S)
    records = opened(tmp_path, None, settings=development(tmp_path, latency_unpadded=False))
    calibrated = prepare(records, plan(), embed)
    begun = time.monotonic()
    promise(records, calibrated, "test")
    assert time.monotonic() - begun >= grain_s(80) >= 3 * GRAIN_S


async def test_a_conversation_is_rewritten_for_a_whole_grain(tmp_path: Path) -> None:
    """Its answer is stored, so that nothing else takes time; the same conversation again is not rewritten."""
    async with remote(tmp_path) as (services, _server):
        answering = services.answering
        await answering.answer("toys.colour", conversation(), key_id="ann")
        arrived = time.monotonic()
        another = padded(services)
        answer = await another.answer("toys.colour", conversation(), key_id="ann")
        assert (answer.charged, time.monotonic() - arrived >= GRAIN_S) == (False, True)


async def test_a_conversation_that_cannot_be_rewritten(tmp_path: Path) -> None:
    async with remote(tmp_path, rewriting_as(completion(""))) as (services, _server):
        await check_leaves_on_the_grain(padded(services), conversation(), UnusableReplyError, task="toys.colour")
