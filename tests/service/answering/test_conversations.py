"""Conversations, from the pipeline to a real server on the loopback interface that notes what it is asked."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import httpx2
import openai
import pytest

from accounting.ledger.charges import AnswersExhaustedError
from accounting.plans.plan import PlanError, calibrate_plan, load_plan
from service.answering.answering import Answer
from service.answering.conversations import ContextNotSupportedError, Conversation, Rewriting, Turn
from service.answering.plans.signing import prepare, sign
from service.answering.queries import InvalidQueryError
from service.answering.stages import Stages
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.errors import EngineUnavailableError, UnusableReplyError
from service.engines.remote import chat_endpoint
from service.engines.remote.engine import OpenAiCompatibleEngine
from service.engines.task import TaskSpec, ZeroShot
from service.operations.services import Services, open_services
from service.records.engine_record import note_engine
from service.records.records import Records
from service.serving.web import create_app
from tests.service.answering.test_sanitizing_engine import QUESTION, SECRET, serving, toys
from tests.service.conftest import EMBEDDER, PLAN, MajorityEngine, bearer, make_records, states
from tests.service.engines.chat_server import Asked, Behaviour, ChatServer, completion, response

REWRITES = PLAN.replace("answers: 20", "answers: 20\n    earlier_turns: rewrite")
STANDALONE = "Is the kite from Spain red?"
TURNS = (("user", "I have a kite."), ("assistant", "From where?"), ("user", "From Spain. Is it red?"))


def conversation(*turns: tuple[str, str]) -> Conversation:
    return Conversation(tuple(Turn(role, text) for role, text in turns or TURNS))  # type: ignore[arg-type]


def is_rewriting(asked: Asked) -> bool:
    return asked.prompt.startswith("Rewrite the user's last message")


def rewriting_as(reply: bytes) -> Behaviour:
    """Answer requests to rewrite a conversation with this reply, and questions with red."""

    async def behave(asked: Asked) -> bytes:
        return reply if is_rewriting(asked) else completion("red")

    return behave


REWRITING = rewriting_as(completion(STANDALONE))


@asynccontextmanager
async def remote(
    folder: Path, behaviour: Behaviour = REWRITING, plan: str = REWRITES, blue: int = 12
) -> AsyncIterator[tuple[Services, ChatServer]]:
    """A service with a task of this plan, and the server of this behaviour that it asks."""
    records = make_records(folder, blue=blue)
    records.store.allow_remote_engine("toys", True)
    sign(records, calibrate_plan(load_plan(plan), public_size=60), "test")
    async with ChatServer(behaviour) as server:
        config = OpenAiCompatibleConfig(
            name="openai_compatible", base_url=server.url, model="tiny", isolation="best_effort", max_attempts=1
        )
        engine = OpenAiCompatibleEngine(config)
        yield open_services(records, engine, EMBEDDER), server
        engine.close()


async def ask(services: Services, query: str | Conversation, key: str = "ann") -> Answer:
    return await services.answering.answer("toys.colour", query, key_id=key)


async def test_openais_client_has_a_conversation(tmp_path: Path) -> None:
    """The rewritten question is shown, charged and stored; the same conversation, or the question itself, is free."""
    async with remote(tmp_path) as (services, server):
        key = services.records.keys.create("ann", "analyst")[1]
        over_app = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=create_app(services)))
        client = openai.AsyncOpenAI(api_key=key, base_url="http://testserver/v1", http_client=over_app)
        messages = [{"role": role, "content": text} for role, text in TURNS]
        first = await client.chat.completions.create(model="toys.colour", messages=messages)
        assert first.choices[0].message.content in ("red", "blue")
        assert (first.dp_icl["question"], first.dp_icl["cost"]["charged"]) == (STANDALONE, 1)
        asked = len(server.asked)
        again = await client.chat.completions.create(model="toys.colour", messages=messages)
        responded = await client.responses.create(model="toys.colour", input=messages)
        alone = await client.chat.completions.create(
            model="toys.colour", messages=[{"role": "user", "content": STANDALONE}]
        )
        assert {again.id, responded.id, alone.id} == {first.id}
        assert again.dp_icl["question"] == responded.dp_icl["question"] == STANDALONE
        assert "question" not in alone.dp_icl
        assert {one.dp_icl["cost"]["charged"] for one in (again, responded, alone)} == {0}
        assert len(server.asked) == asked
        async with httpx2.AsyncClient(
            transport=httpx2.ASGITransport(app=create_app(services)), base_url="http://testserver", headers=bearer(key)
        ) as rest:
            assert "question" not in (await rest.get(f"/v1/releases/{first.id}")).json()
            assert (await rest.get("/v1/tasks/toys.colour")).json()["earlier_turns"] == "rewrite"


async def test_openais_client_ignores_what_came_before_if_it_is_to(tmp_path: Path) -> None:
    async with remote(tmp_path) as (services, server):
        key = services.records.keys.create("ann", "analyst")[1]
        over_app = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=create_app(services)))
        client = openai.AsyncOpenAI(api_key=key, base_url="http://testserver/v1", http_client=over_app)
        told = [{"role": "system", "content": "Answer like a pirate."}]
        turns = [{"role": "assistant", "content": [{"type": "refusal", "refusal": "Abstained"}]}]
        question = [{"role": "user", "content": "Is it red?"}]
        with pytest.raises(openai.UnprocessableEntityError, match="system messages") as error:
            await client.chat.completions.create(model="toys.colour", messages=[*told, *turns, *question])
        assert error.value.code == "context_not_supported"
        with pytest.raises(openai.UnprocessableEntityError, match="instructions"):
            await client.responses.create(model="toys.colour", instructions="Be brief.", input=[*turns, *question])
        assert server.asked == []
        alone = await client.responses.create(model="toys.colour", input=[*turns, *question])
        ignoring = await client.chat.completions.create(
            model="toys.colour", messages=[*told, *question], extra_headers={"x-dpicl-context": "ignore"}
        )
        assert alone.id == ignoring.id
        assert not any(map(is_rewriting, server.asked))


async def test_rewriting_sees_what_the_caller_wrote_and_nothing_private(tmp_path: Path) -> None:
    """There is one such request, at temperature 0, before the charge; other exemplars change no byte of it."""
    charges: list[dict[str, int]] = []
    bodies = []
    for name, blue in (("few", 12), ("many", 40)):

        async def behave(asked: Asked) -> bytes:
            if is_rewriting(asked):
                charges.append(states(services))
            return await REWRITING(asked)

        (folder := tmp_path / name).mkdir()
        async with remote(folder, behave, blue=blue) as (services, server):
            await ask(services, conversation())
            (rewriting,) = filter(is_rewriting, server.asked)
            bodies.append(rewriting.body)
            assert any("toy " in asked.prompt for asked in server.asked), "slots show exemplars"
    assert bodies[0] == bodies[1]
    assert bodies[0]["temperature"] == 0
    (message,) = bodies[0]["messages"]
    said = message["content"].partition("\n\n")[2]
    shown = {"user": "User", "assistant": "Assistant"}
    assert said == "\n\n".join([*(f"{shown[role]}: {text}" for role, text in TURNS), "Rewritten message:"])
    assert charges == [{}, {}]


async def test_another_callers_conversation_is_rewritten_for_that_caller(tmp_path: Path) -> None:
    async with remote(tmp_path) as (services, server):
        first, second = [await ask(services, conversation(), key) for key in ("ann", "bob")]
        assert (first.charged, second.charged) == (True, False)
        assert first.release == second.release
        assert sum(map(is_rewriting, server.asked)) == 2


async def test_a_task_that_does_not_rewrite_names_the_setting(tmp_path: Path) -> None:
    async with remote(tmp_path, plan=PLAN) as (services, server):
        with pytest.raises(ContextNotSupportedError, match=r"toys.colour@1 .*`earlier_turns: rewrite`"):
            await ask(services, conversation())
        assert server.asked == []


@pytest.mark.parametrize(
    ("turns", "told"),
    [
        ([("user", "x" * 15_000), ("user", "y" * 5_001)], "20000 characters"),
        ([("user", "a\0b"), ("user", "Is it red?")], "NUL"),
        ([("user", "Is it red?"), ("user", " ")], "newest message"),
    ],
    ids=["long", "NUL", "empty"],
)
async def test_a_conversation_that_cannot_be_asked(tmp_path: Path, turns: list[tuple[str, str]], told: str) -> None:
    async with remote(tmp_path) as (services, server):
        with pytest.raises(InvalidQueryError, match=told):
            await ask(services, conversation(*turns))
        assert server.asked == []


CUT = response(
    200, json.dumps({"choices": [{"message": {"role": "assistant", "content": "Is the"}, "finish_reason": "length"}]})
)


@pytest.mark.parametrize(
    ("reply", "error", "told"),
    [
        (completion("  "), UnusableReplyError, "no text"),
        (CUT, UnusableReplyError, "cut off .*max_answer_tokens"),
        (response(500, ""), EngineUnavailableError, "status 500"),
        (completion("x" * 20_001), InvalidQueryError, "at most 20000"),
    ],
    ids=["empty", "cut", "down", "long"],
)
async def test_rewriting_that_fails_costs_nothing(
    tmp_path: Path, reply: bytes, error: type[Exception], told: str
) -> None:
    async with remote(tmp_path, rewriting_as(reply)) as (services, server):
        with pytest.raises(error, match=told):
            await ask(services, conversation())
        assert states(services) == {}
        assert all(map(is_rewriting, server.asked))


async def test_an_engine_without_a_language_model_rewrites_nothing(records: Records) -> None:
    sign(records, prepare(records, load_plan(REWRITES)), "test")
    services = open_services(records, MajorityEngine(), EMBEDDER)
    with pytest.raises(ContextNotSupportedError, match="majority"):
        await ask(services, conversation())
    assert (await ask(services, STANDALONE)).charged
    note_engine(records.database, await services.engine.describe())
    with pytest.raises(PlanError, match=r"tasks\.colour\.earlier_turns: majority"):
        prepare(records, load_plan(REWRITES))


def test_a_conversation_becomes_one_text() -> None:
    with pytest.raises(PlanError, match=r"earlier_turns: .* size, text"):
        load_plan(REWRITES.replace('"{text}:', '"{size} {text}:'))


@pytest.mark.model
@pytest.mark.parametrize("exemplars", ["remote", "local"])
def test_each_turn_is_sanitised_before_it_is_rewritten(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, exemplars: str
) -> None:
    """The rewritten question is sanitised, too. A turn that was sanitised before costs nothing in a longer one."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(chat_endpoint, "_FIRST_WAIT_S", 0.01)
    records = toys(tmp_path)
    records.store.allow_remote_engine("toys", True)
    sign(records, calibrate_plan(load_plan(REWRITES), public_size=60), "test")
    turns = [("user", QUESTION), ("assistant", "red"), ("user", f"And the {SECRET}?")]

    async def run() -> list[str]:
        rewriting = rewriting_as(completion("Is the moon red?"))
        async with serving(records, rewriting, exemplars=exemplars) as (opened, server):
            assert (await ask(opened, conversation(*turns))).question == "Is the moon red?"
            costs = records.texts.cost("ann").texts
            await ask(opened, conversation(*turns, ("assistant", "blue"), ("user", f"The {SECRET} again?")))
            assert (costs, records.texts.cost("ann").texts) == (4, 6)
            return [asked.prompt for asked in server.asked]

    prompts = asyncio.run(run())
    assert sum(prompt.startswith("Rewrite") for prompt in prompts) == 2
    assert not [prompt for prompt in prompts if any(word in prompt for word in SECRET.split())]


async def test_a_used_up_task_refuses_before_anything_is_rewritten(tmp_path: Path) -> None:
    """What was answered stays free."""
    async with remote(tmp_path, plan=REWRITES.replace("answers: 20", "answers: 1")) as (services, server):
        first = await ask(services, conversation())
        asked = len(server.asked)
        with pytest.raises(AnswersExhaustedError):
            await ask(services, conversation(*TURNS[:2], ("user", "From Italy. Is it blue?")))
        assert len(server.asked) == asked
        assert (await ask(services, conversation())).release == first.release


class Rewriter(MajorityEngine):
    """A language model whose questions name the task that they are for; ``asked`` has who asked for which."""

    info = replace(MajorityEngine.info, is_llm=True)

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, str]] = []

    async def zero_shot(self, task: TaskSpec, query: Mapping[str, str]) -> ZeroShot:
        self.asked.append((task.name, task.asker))
        return ZeroShot(texts=(f"A question for {task.name}?",), tokens=5)


async def test_a_conversation_is_remembered_for_its_task_and_asker_and_the_newest_longest(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("service.answering.conversations._REMEMBERED", 2)
    engine, task = Rewriter(), load_plan(REWRITES).tasks["colour"]
    rewriting = Rewriting(Stages(engine, EMBEDDER, 60.0), 0.0)

    async def before() -> None:
        return None

    asked = [("toys.colour", "ann"), ("toys.size", "ann"), ("toys.size", "bo")]
    for address, asker in [*asked, *asked[1:], asked[0], asked[2]]:
        question = await rewriting.question(address, task, conversation(), asker=asker, before=before)
        assert question == f"A question for {address}?"
    assert engine.asked == [*asked, asked[0]]  # the oldest was forgotten, and the newer two were known
