"""Sanitised questions, from the pipeline to a real server on the loopback interface that notes what arrives."""

from __future__ import annotations

import asyncio
import hashlib
import inspect
import re
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sqlalchemy as sa
from pydantic import ValidationError

from accounting.plans.plan import CalibratedPlan, calibrate_plan, load_plan
from service.answering.answering import Answer, RemoteEngineForbiddenError
from service.answering.plans.signing import sign
from service.answering.queries import InvalidQueryError
from service.answering.stages import Stages
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.errors import EngineUnavailableError
from service.engines.passing_on import METHODS, Method, PassesOn
from service.engines.remote import chat_endpoint
from service.engines.remote.engine import OpenAiCompatibleEngine
from service.engines.task import Prompt, SanitizedQuery, TaskSpec, ZeroShot
from service.operations.roles import Actor
from service.operations.services import SanitizersMissingError, Services, open_services
from service.operations.trials import Trying, try_
from service.records import text_ledger
from service.records.records import Records
from service.records.text_ledger import TextBudgetExhaustedError
from tests.service.conftest import PLAN, TEXT_PLAN, Embedding, development, make_records, nearly_noiseless, states
from tests.service.engines.chat_server import Asked, Behaviour, ChatServer, completion, majority, response, saying
from tests.service.engines.contract import LABELS, TEXTS, Case, EngineContract, Running

pytestmark = pytest.mark.model

PUBLIC = [f"the {thing} is here" for thing in ("moon", "sun", "river", "hill", "road", "tree")]
"""The texts that whole questions may become."""
SECRET = "zebrafish quagga okapi"  # pragma: allowlist secret
"""Words that no sanitiser knows, and so can put into no text."""
QUESTION = f"Is the {SECRET} red?"


RED = saying("red")


async def refusing(_asked: Asked) -> bytes:
    return response(500, "")


def embed(texts: Sequence[str]) -> np.ndarray:
    """A point of the circle for each text, all of them on one side."""
    angles = [int.from_bytes(hashlib.sha256(text.encode()).digest()[:4]) / 2**32 - 0.5 for text in texts]
    return np.column_stack([np.cos(angles), np.sin(angles)]).astype(np.float32)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch, cache: Path) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(cache))
    monkeypatch.setattr(chat_endpoint, "_FIRST_WAIT_S", 0.01)


@pytest.fixture
def records(tmp_path: Path, calibrated: CalibratedPlan) -> Records:
    return world(tmp_path, calibrated)


def world(folder: Path, calibrated: CalibratedPlan, blue: int = 12, **settings: Any) -> Records:
    """Toys with a task for labels and one for texts, whose exemplars may leave."""
    records = toys(folder, blue, **settings)
    records.store.allow_remote_engine("toys", True)
    sign(records, calibrated, "test")
    texts = load_plan(TEXT_PLAN.format(epsilon=3, answers=5, mechanism="type: embedding_mean"))
    sign(records, calibrate_plan(texts, public_size=60), "test")
    return records


def toys(folder: Path, blue: int = 12, **settings: Any) -> Records:
    """Toys without a plan."""
    return make_records(
        folder,
        epsilon=100,
        blue=blue,
        settings=development(folder, **{"sanitizer_words": 60, **settings}),
    )


def services(
    records: Records, url: str, *, exemplars: str = "remote", realign: str | None = None, **sanitize: Any
) -> Services:
    config = OpenAiCompatibleConfig.model_validate(
        {
            "name": "openai_compatible",
            "base_url": url,
            "model": "tiny",
            "isolation": "best_effort",
            "max_attempts": 2,
            "sanitize": {"epsilon": 6, "mechanism": "nearest_rr", **sanitize},
            "exemplars": exemplars,
            "realign": {"base_url": realign, "model": "small"} if realign else None,
        }
    )
    embedder = Embedding(embed)
    local = NearestExemplarEngine(embedder) if exemplars == "local" else None
    engine = OpenAiCompatibleEngine(config)
    return open_services(records, engine, embedder, sanitize=config.sanitize, local=local, realign=config.realign)


@asynccontextmanager
async def serving(
    records: Records,
    behaviour: Behaviour = RED,
    prepare: Callable[[Services], None] = lambda services: services.sanitizers.prepare(),
    **options: Any,
) -> AsyncIterator[tuple[Services, ChatServer]]:
    async with ChatServer(behaviour) as server:
        opened = services(records, server.url, **options)
        prepare(opened)
        yield opened, server
        opened.engine.close()


def ask(
    records: Records, *questions: tuple[str, str, str], **options: Any
) -> tuple[list[Answer | Exception], list[str]]:
    """The answers to these questions, each with its task and its key, and all prompts that arrived."""

    async def run() -> tuple[list[Answer | Exception], list[str]]:
        async with serving(records, **options) as (opened, server):
            given: list[Answer | Exception] = []
            for task, question, key in questions:
                try:
                    given.append(await opened.answering.answer(f"toys.{task}", question, key_id=key))
                except Exception as error:
                    given.append(error)
            return given, [asked.prompt for asked in server.asked]

    return asyncio.run(run())


class TestContract(EngineContract):
    slots, changed = 12, 1

    @pytest.fixture
    def running(self, tmp_path: Path) -> Iterator[Running]:
        with asyncio.Runner() as runner:
            server = runner.run(ChatServer(majority).__aenter__())
            opened = services(toys(tmp_path), server.url)
            opened.sanitizers.prepare()
            yield Running(opened.engine, runner.run)
            opened.engine.close()
            runner.run(server.stop())

    @pytest.fixture(params=[LABELS, TEXTS], ids=["labels", "texts"])
    def case(self, request: pytest.FixtureRequest) -> Case:
        """A person's question, whose sanitised text is remembered."""
        return Case(replace(request.param, asker="ann"))


def questions_in(prompts: Sequence[str]) -> set[str]:
    """The question of each prompt: what follows the last exemplar."""
    return {prompt.split("\n\n")[-1] for prompt in prompts}


def test_all_that_is_asked_about_a_question_is_one_sanitised_text(records: Records) -> None:
    """This holds for zero-shot, candidates, slots and retries, for labels and texts, after a failure and a restart."""

    async def fails_first(asked: Asked) -> bytes:
        return response(500, "") if asked.attempt == 1 else completion("red")

    given, prompts = ask(records, ("colour", QUESTION, "ann"), ("story", QUESTION, "ann"), behaviour=fails_first)
    assert [answer.charged for answer in given] == [True, True]
    assert len(prompts) > 20
    (question,) = questions_in(prompts)
    assert re.fullmatch(r"Is the \w+ \w+ \w+ \w+\?:", question)
    assert not re.search(SECRET.replace(" ", "|"), "".join(prompts))
    assert any("toy " in prompt for prompt in prompts)
    assert records.texts.cost("ann").words == 4
    assert records.texts.cost("ann", "toys.colour@1").words == 4

    down, before = ask(records, ("colour", f"{SECRET} again", "ann"), behaviour=refusing)
    assert isinstance(down[0], EngineUnavailableError)
    _, after = ask(records, ("colour", f"{SECRET} again", "ann"))
    assert questions_in(before) == questions_in(after)
    assert len(questions_in(after)) == 1
    assert records.texts.cost("ann").words == 7
    assert states(records, "colour") == {"released": 2, "voided": 1}


def test_a_whole_question_becomes_one_public_text(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    """Zero-shot, candidates and slots see the same one, charged once, not per word, without ``sanitizer_words``."""
    (tmp_path / "public.txt").write_text("\n".join(PUBLIC))
    records = world(tmp_path, calibrated, sanitizer_words=0, public_texts=tmp_path / "public.txt", text_epsilon_cap=9)
    whole = {"mechanism": "whole_rr", "epsilon": 4}
    long = f"{QUESTION} {SECRET * 9}"
    given, prompts = ask(records, ("colour", long, "ann"), ("story", long, "ann"), **whole)
    assert [type(answer) for answer in given] == [Answer] * 2
    assert len(prompts) > 20
    (question,) = questions_in(prompts)
    assert question.removesuffix(":") in PUBLIC
    assert not re.search(SECRET.replace(" ", "|"), "".join(prompts))
    ask(records, ("colour", "Red?", "ann"), **whole)
    cost = records.texts.cost("ann")
    assert (cost.texts, cost.words, cost.epsilon) == (2, 2, pytest.approx(8))
    capped, nothing = ask(records, ("colour", "And blue?", "ann"), **whole)
    assert isinstance(capped[0], TextBudgetExhaustedError)
    assert nothing == []
    notice = asyncio.run(services(records, "http://127.0.0.1:9/v1", **whole).engine.describe()).notice
    assert "ε is at most 4" in notice


def test_another_key_has_another_text(records: Records) -> None:
    """Eight words at ε = 1 are equal by chance about once in 10¹²."""
    long = f"{SECRET} {SECRET} {SECRET}"
    _, prompts = ask(records, ("colour", long, "ann"), ("story", long, "bob"), epsilon=1)
    assert len(questions_in(prompts)) == 2
    assert records.texts.cost("ann").words == records.texts.cost("bob").words == 9


def test_exemplars_that_stay(records: Records) -> None:
    """The remote model gives zero-shot answers only; slots are answered here, whether or not exemplars may leave."""
    records.store.allow_remote_engine("toys", False)
    refused, nothing = ask(records, ("colour", QUESTION, "ann"))
    assert isinstance(refused[0], RemoteEngineForbiddenError)
    assert nothing == []
    assert states(records) == {}
    given, prompts = ask(records, ("colour", QUESTION, "ann"), ("story", QUESTION, "ann"), exemplars="local")
    assert [answer.release.answer.get("label", "text") for answer in given] == ["red", "text"]
    (question,) = questions_in(prompts)
    assert not re.search("toy ", "".join(prompts))
    assert not re.search(SECRET.replace(" ", "|"), question)


def test_exemplars_that_stay_inform_the_answer(tmp_path: Path) -> None:
    """The remote model answers blue, the exemplars are red: only they can have made the answer red."""
    records = world(tmp_path, blue=0, calibrated=nearly_noiseless(load_plan(PLAN.replace("epsilon: 4", "epsilon: 90"))))
    given, prompts = ask(records, ("colour", QUESTION, "ann"), behaviour=saying("blue"), exemplars="local")
    assert given[0].release.answer["label"] == "red"
    assert len(prompts) == 1


class Noting(PassesOn):
    """A remote engine that notes what it is asked."""

    def __init__(self) -> None:
        self.asked: dict[str, Mapping[str, Any]] = {}

    async def pass_on(self, method: Method, arguments: Mapping[str, Any]) -> ZeroShot:
        self.asked[method.name] = arguments
        return ZeroShot()

    def close(self) -> None:
        pass


async def test_no_method_of_the_remote_engine_sees_the_question(records: Records) -> None:
    """Every method of the protocols is called. Give an argument of a new type a value here that holds the question."""
    opened = services(records, "http://127.0.0.1:9/v1")
    opened.sanitizers.prepare()
    sanitizing = opened.engine.engine
    sanitizing.remote = remote = Noting()
    task, query = TaskSpec("toys.colour", ("red", "blue"), Prompt("", "", "{text}:")), {"text": QUESTION}
    values = {"TaskSpec": task, "Mapping[str, str]": query, "ZeroShot": await sanitizing.zero_shot(task, query)}
    values |= {"Sequence[Slot]": [()], "Sequence[str]": ["released"], "int": 1, "float": 1.0, "bool": True}
    for name in METHODS.keys() - {"describe", "health"}:
        _, *parameters = inspect.signature(getattr(PassesOn, name)).parameters.values()
        await getattr(sanitizing, name)(*(values[parameter.annotation] for parameter in parameters))
    assert remote.asked.keys() == METHODS.keys() - {"describe", "health"}
    assert not re.search(SECRET.replace(" ", "|"), str(remote.asked))
    assert {type(asked["query"]) for asked in remote.asked.values() if "query" in asked} == {SanitizedQuery}


async def test_a_trial_is_charged_to_the_person_who_asks(records: Records) -> None:
    """The name of a person in the trail is longer than the id of a key."""
    person = Actor("s" * 95 + " at " + "i" * 91, "Ana", "person", "admin")
    trying = Trying(query=QUESTION, exemplars=[{"text": "a ball", "label": "red"}])
    async with serving(records, exemplars="local") as (opened, _):
        plan = calibrate_plan(load_plan(PLAN), 60)
        assert (await try_(person, opened.trials, plan, "colour", trying, "text", None)).slots
    assert records.texts.cost(person.id).words == 4


async def test_a_text_is_fitted_to_the_question_by_a_model_here(records: Records, monkeypatch) -> None:
    """It sees the question and the released text, but not the remote key; the remote model never sees its reply."""
    monkeypatch.setenv("DPICL_REMOTE_API_KEY", "for-the-remote-one")
    asking = [("story", QUESTION, "ann")] * 2 + [("colour", QUESTION, "ann")]
    async with ChatServer(saying(f" A {SECRET} story. ")) as here:
        given, prompts = await asyncio.to_thread(ask, records, *asking, realign=here.url)
    assert [answer.realigned for answer in given] == [f"A {SECRET} story."] * 2 + [None]
    assert [answer.charged for answer in given] == [True, False, True]
    assert not re.search(SECRET.replace(" ", "|"), "".join(prompts))
    assert SECRET not in str([answer.release.answer for answer in given])
    assert len(here.asked) == 2
    for one in here.asked:
        assert f"\n{QUESTION}:\n" in one.prompt
        assert given[0].release.answer["text"] in one.prompt
        assert "authorization" not in one.headers
    down = partial(ask, records, ("story", QUESTION, "ann"), realign="http://127.0.0.1:9/v1")
    ((without,), _) = await asyncio.to_thread(down)
    assert without.realigned is None
    assert without.release.answer["text"]


def _no_words(opened: Services) -> None:
    """The words are not embedded yet."""


def _no_memory(opened: Services) -> None:
    opened.sanitizers.prepare()
    with opened.records.database.begin() as connection:
        connection.execute(sa.text("DROP TABLE sanitized_texts"))


def _no_embedder(opened: Services) -> None:
    opened.sanitizers.prepare()
    opened.embedder.embed = lambda texts: 1 / 0


def _no_table(opened: Services) -> None:
    opened.sanitizers.prepare()
    opened.sanitizers._folder = Path("/dev/null")


def _no_wrapper(opened: Services) -> None:
    """A fault of ours: the pipeline asks the remote engine itself."""
    opened.sanitizers.prepare()
    opened.answering.stages = Stages(opened.engine.engine.remote, opened.embedder, 9.0)


@pytest.mark.parametrize("fault", [_no_words, _no_memory, _no_embedder, _no_table, _no_wrapper])
@pytest.mark.parametrize(("exemplars", "mechanism"), [("remote", "nearest_rr"), ("local", "whole_rr")])
def test_whatever_breaks_nothing_is_sent_and_nothing_charged(
    fault: Callable[[Services], None], exemplars: str, mechanism: str, tmp_path: Path, calibrated: CalibratedPlan
) -> None:
    (tmp_path / "public.txt").write_text("\n".join(PUBLIC))
    records = world(tmp_path, calibrated, public_texts=tmp_path / "public.txt")
    given, prompts = ask(
        records, ("colour", QUESTION, "ann"), prepare=fault, epsilon=5.5, exemplars=exemplars, mechanism=mechanism
    )
    assert isinstance(given[0], EngineUnavailableError)
    assert SECRET not in str(given[0])
    assert prompts == []
    assert states(records) == {"voided": 1}


def test_a_draw_that_is_not_stored_is_not_sent(records: Records, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> float:
        raise sa.exc.OperationalError("", {}, OSError("disk full"))

    monkeypatch.setattr(text_ledger, "_add", fails)
    given, prompts = ask(records, ("colour", QUESTION, "ann"))
    assert isinstance(given[0], EngineUnavailableError)
    assert prompts == []


def test_a_cap(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    records = world(tmp_path, calibrated, text_epsilon_cap=25)
    given, prompts = ask(
        records, ("colour", QUESTION, "ann"), ("colour", "is the okapi blue?", "ann"), ("story", QUESTION, "ann")
    )
    assert isinstance(given[1], TextBudgetExhaustedError)
    assert isinstance(given[2], Answer)
    assert len(questions_in(prompts)) == 1
    assert [states(records, task) for task in ("colour", "story")] == [{"released": 1, "voided": 1}, {"released": 1}]


def test_too_many_unknown_words(records: Records) -> None:
    given, prompts = ask(records, ("colour", " ".join(f"x{'q' * i}" for i in range(501)), "ann"))
    assert isinstance(given[0], InvalidQueryError)
    assert prompts == []


def test_its_description_names_what_leaves(records: Records) -> None:
    remote, local = (
        asyncio.run(services(records, "http://127.0.0.1:9/v1", exemplars=exemplars).engine.describe())
        for exemplars in ("remote", "local")
    )
    assert "not the exemplars" in remote.notice
    assert (remote.remote, remote.reads_embeddings) == (True, False)
    assert "do not leave" in local.notice
    assert (local.remote, local.reads_embeddings) == (False, True)


def test_configs_that_cannot_be(tmp_path: Path, calibrated: CalibratedPlan) -> None:
    opening = partial(services, world(tmp_path, calibrated, sanitizer_words=0), "http://127.0.0.1:9/v1")
    with pytest.raises(SanitizersMissingError, match="DPICL_SANITIZER_WORDS"):
        opening()
    with pytest.raises(SanitizersMissingError, match="DPICL_PUBLIC_TEXTS"):
        opening(mechanism="whole_rr")
    whole = {"mechanism": "whole_rr", "keep": ["case"]}
    elsewhere = ("https://elsewhere.org/v1", "http://127.0.0.1.elsewhere.org", "http://localhost@elsewhere.org")
    wrong = (whole, {"epsilon": 26}, {"epsilon": 0}, {"mechanism": "rot13"}, {"keep": ["names"]})
    for change in (*wrong, *({"realign": url} for url in elsewhere)):
        with pytest.raises(ValidationError):
            opening(**change)
    engine = {"name": "openai_compatible", "base_url": "http://x", "model": "m", "isolation": "best_effort"}
    with pytest.raises(ValidationError, match="sanitize"):
        OpenAiCompatibleConfig(**engine, exemplars="local")
