"""A remote model that answers with no label: its probe fails, so nothing is charged, and the service is not ready."""

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from accounting.plans.plan import CalibratedPlan
from service.answering.plans.signing import sign
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.errors import UnusableReplyError
from service.engines.remote.engine import OpenAiCompatibleEngine
from service.operations.services import Services, open_services
from service.settings import Settings
from tests.service.conftest import EMBEDDER, answering, make_records, states
from tests.service.engines.chat_server import Asked, Behaviour, ChatServer, completion, saying

THINKING = saying("<think>\nThe examples say blue, so blue.\n</think>\n\nblue")


def with_endpoint(
    folder: Path,
    calibrated: CalibratedPlan,
    behaviour: Behaviour,
    test: Callable[[Services, ChatServer], Awaitable[None]],
    **config: object,
) -> None:
    """A service with measured grains, whose toys may be shown to an endpoint."""
    settings = Settings(database_url=f"sqlite:///{folder / 'service.sqlite'}", development=True)
    records = make_records(folder, settings=settings)
    sign(records, calibrated, "test")
    records.allow_remote_engine("toys", True, by="test")

    async def run() -> None:
        async with ChatServer(behaviour) as server:
            engine = OpenAiCompatibleEngine(
                OpenAiCompatibleConfig(
                    name="openai_compatible", base_url=server.url, model="tiny", isolation="best_effort", **config
                )
            )
            try:
                await test(open_services(records, engine, EMBEDDER), server)
            finally:
                engine.close()

    asyncio.run(run())


@pytest.mark.parametrize(("config", "behaviour"), [({}, THINKING), ({"constrain_labels": True}, saying("blue"))])
def test_questions_are_not_charged_until_the_model_answers_with_labels(
    tmp_path: Path,
    calibrated: CalibratedPlan,
    config: dict[str, bool],
    behaviour: Behaviour,
    capfd: pytest.CaptureFixture[str],
) -> None:
    async def test(services: Services, server: ChatServer) -> None:
        pipeline = answering(services)
        for number in range(3):
            with pytest.raises(UnusableReplyError, match=r"constrain_labels|enable_thinking") as refused:
                await pipeline.answer("toys.colour", f"toy {number}", key_id="k")
            assert "nothing was charged" in str(refused.value)
        assert len(server.asked) == 3  # the probes; no slot was drawn
        assert states(services) == {"voided": 3}
        assert "remote_reply_unusable" in "".join(capfd.readouterr())
        server.behaviour = saying(json.dumps({"label": "blue"}) if config else "blue")
        answer = await pipeline.answer("toys.colour", "toy 0", key_id="k")
        assert (answer.charged, answer.answers_left) == (True, 19)
        assert answer.release.answer["zero_shot"] == "blue"

    with_endpoint(tmp_path, calibrated, behaviour, test, **config)


def test_what_is_measured_before_the_first_question_finds_it(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    async def test(services: Services, server: ChatServer) -> None:
        (measured,) = await services.grains.all()
        assert measured.unusable
        assert "enable_thinking" in measured.problem
        with pytest.raises(UnusableReplyError):
            await services.answering.answer("toys.colour", "toy", key_id="k")
        assert len(server.asked) == 1
        assert states(services) == {}

    with_endpoint(tmp_path, calibrated, THINKING, test)


def test_a_made_up_question_may_have_no_label(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    """That predicts nothing about callers' questions. Exemplars, made up as well, show what a label is."""

    async def behave(asked: Asked) -> bytes:
        return completion("red" if ": red" in asked.prompt else "These letters mean nothing to me.")

    async def test(services: Services, _server: ChatServer) -> None:
        (measured,) = await services.grains.all()
        assert (measured.problem, measured.unusable) == ("", False)

    with_endpoint(tmp_path, calibrated, behave, test)
