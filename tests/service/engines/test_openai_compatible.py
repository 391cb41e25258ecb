"""The remote engine against a real server on the loopback interface that misbehaves in every way we could think of."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import json
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import pytest
from pydantic import ValidationError

from exemplar_store import Exemplar
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.errors import EngineBusyError, EngineUnavailableError, UnanswerableQueryError, UnusableReplyError
from service.engines.factory import open_engine
from service.engines.prompts import showing
from service.engines.remote import chat_endpoint
from service.engines.remote.completion import Unusable
from service.engines.remote.engine import OpenAiCompatibleEngine
from service.engines.task import Prompt, TaskSpec, ZeroShot
from service.records.telemetry.logs import configure_logs
from tests.service.engines.chat_server import Asked, Behaviour, ChatServer, completion, majority, response, saying
from tests.service.engines.contract import DownContract, EngineContract, Running

KEY = "canary-key-5b1f"
QUERY = {"text": "canary-query-91c2"}
COLOURS = TaskSpec(
    "toys.colour@1",
    ("red", "blue", "dark blue"),
    Prompt("Which colour?", "{text}: {label}", "{text}:"),
    knowledge_base="toys",
)
STORIES = TaskSpec(
    "toys.story@1",
    (),
    Prompt("Tell a story.", "{text}: {label}", "{text}:"),
    kind="generate",
    candidates=5,
    public_answers=("a red kite",),
    knowledge_base="toys",
)
CANARY = re.compile("canary")


def slot(number: int) -> tuple[Exemplar, ...]:
    return tuple(
        Exemplar(fields={"text": f"canary-exemplar-{number}-{i}", "label": "blue"}, embedding=None) for i in range(2)
    )


SLOTS = [slot(number) for number in range(6)]
ODD = "canary-exemplar-3-"
"""Words in the prompt of the slot that goes wrong."""


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPICL_REMOTE_API_KEY", KEY)
    monkeypatch.setattr(chat_endpoint, "_FIRST_WAIT_S", 0.01)  # to keep the tests short
    configure_logs(logging.DEBUG)


@pytest.fixture(autouse=True)
def nothing_leaks(caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]):
    """Whatever a test does, no prompt, key or body of a server is printed or logged, nor a line for each request."""
    caplog.set_level(logging.DEBUG)
    yield
    records = [record for phase in ("setup", "call") for record in caplog.get_records(phase)]
    logged = [f"{record.getMessage()} {record.args} {record.exc_text}" for record in records]
    assert not CANARY.search(str(logged)), logged
    assert not [record.name for record in records if record.name.startswith(("httpx", "httpcore"))]
    printed = "".join(capfd.readouterr())
    assert not CANARY.search(printed), printed


def with_server(
    behaviour: Behaviour,
    test: Callable[[OpenAiCompatibleEngine, ChatServer], Awaitable[Any]],
    *,
    models: bytes | None = None,
    **settings: Any,
) -> Any:
    """Run a test with a server and an engine that asks it."""

    async def run() -> Any:
        async with ChatServer(behaviour, models) as server:
            engine = engine_for(server.url, **settings)
            try:
                return await asyncio.wait_for(test(engine, server), 30)
            finally:
                engine.close()
                await asyncio.sleep(0)

    return asyncio.run(run())


def engine_for(url: str, **settings: Any) -> OpenAiCompatibleEngine:
    config = OpenAiCompatibleConfig(
        name="openai_compatible", base_url=url, model="tiny", isolation="best_effort", **settings
    )
    return open_engine(config, None)


def contributions(behaviour: Behaviour, task: TaskSpec = COLOURS, slots=SLOTS, **settings: Any):
    """The outputs, and the server that was asked."""

    async def test(engine: OpenAiCompatibleEngine, server: ChatServer):
        zero_shot = ZeroShot()
        return list(await engine.contributions(task, QUERY, slots, zero_shot)), server

    return with_server(behaviour, test, **settings)


def zero_shot(behaviour: Behaviour, task: TaskSpec = COLOURS, **settings: Any) -> ZeroShot:
    return with_server(behaviour, lambda engine, _: engine.zero_shot(task, QUERY), **settings)


def no_canary(error: BaseException) -> None:
    """Check that no canary is in the error, in any error that it came from, or in what those carry."""
    seen: BaseException | None = error
    while seen is not None:
        assert type(seen).__module__.split(".")[0] not in ("httpx", "httpcore", "json"), repr(seen)
        assert not CANARY.search(f"{seen} {seen!r} {seen.args} {vars(seen)}")
        seen = seen.__cause__ or seen.__context__


def when(condition: Callable[[Asked], bool], then: Behaviour, otherwise: Behaviour) -> Behaviour:
    async def behave(asked: Asked) -> bytes:
        return await (then if condition(asked) else otherwise)(asked)

    return behave


odd = partial(when, lambda asked: ODD in asked.prompt)
at_first = partial(when, lambda asked: asked.attempt == 1)


class TestContract(EngineContract, DownContract):
    slots, changed = 12, 2

    @pytest.fixture
    def server(self) -> Iterator[tuple[asyncio.Runner, ChatServer]]:
        with asyncio.Runner() as runner:
            server = runner.run(ChatServer(majority).__aenter__())
            yield runner, server
            runner.run(server.stop())

    @pytest.fixture
    def running(self, server: tuple[asyncio.Runner, ChatServer]) -> Iterator[Running]:
        runner, asked = server
        engine = engine_for(asked.url, max_attempts=2)
        yield Running(engine, runner.run)
        engine.close()

    @pytest.fixture
    def down(self, server: tuple[asyncio.Runner, ChatServer], running: Running) -> Running:
        runner, asked = server
        runner.run(asked.stop())
        return running


# What is asked, and what becomes of the replies.


def test_a_slot_votes_for_the_label_that_the_model_writes() -> None:
    outputs, server = contributions(odd(saying("**Dark blue**."), saying("Red")), slots=[*SLOTS, ()])
    assert outputs[-1] is None
    assert [output.tolist() for output in outputs[:-1]] == [[0, 0, 1] if n == 3 else [1, 0, 0] for n in range(6)]
    assert len(server.asked) == len(SLOTS)  # none for the empty slot
    first = server.asked[0]
    assert first.path == "/v1/chat/completions"
    assert first.headers["authorization"] == f"Bearer {KEY}"
    assert set(first.body) == {"model", "messages", "temperature", "max_tokens"}
    assert (first.body["model"], first.body["temperature"]) == ("tiny", 0)
    assert [message["role"] for message in first.body["messages"]] == ["user"]
    assert {asked.prompt for asked in server.asked} == {
        "Which colour?\nAnswer with one of: red, blue, dark blue.\n\n"
        f"canary-exemplar-{n}-0: blue\n\ncanary-exemplar-{n}-1: blue\n\n{QUERY['text']}:"
        for n in range(6)
    }


def test_public_exemplars_are_sent_with_every_prompt_before_a_slots_own() -> None:
    """Zero-shot sees them, each slot before its own, and who writes a sentence of released words."""
    public = ({"text": "a lit lamp", "label": "RED"}, {"text": "a pool", "label": "blue"})
    prompts = [replace(task.prompt, labels=task.labels, label_field="label") for task in (COLOURS, STORIES)]
    colours, stories = (
        replace(task, prompt=showing(prompt, public), public_exemplars=public)
        for task, prompt in zip((COLOURS, STORIES), prompts, strict=True)
    )

    async def ask(engine: OpenAiCompatibleEngine, server: ChatServer) -> list[str]:
        without = await engine.zero_shot(colours, QUERY)
        await engine.contributions(colours, QUERY, [*SLOTS[:2], ()], without)
        await engine.reconstruct(stories, QUERY, ["kite"], False, without)
        return [asked.prompt for asked in server.asked]

    asked, first = with_server(saying("red"), ask), "a lit lamp: red\n\na pool: blue\n\n"
    named = "Which colour?\nAnswer with one of: red, blue, dark blue.\n\n"
    own = [f"canary-exemplar-{n}-0: blue\n\ncanary-exemplar-{n}-1: blue\n\n" for n in range(2)]
    assert asked[0] == f"{named}{first}{QUERY['text']}:"
    assert sorted(asked[1:3]) == [f"{named}{first}{exemplars}{QUERY['text']}:" for exemplars in own]
    said = f"a lit lamp: RED\n\na pool: blue\n\nWord suggestions: kite\n{QUERY['text']}:"
    assert asked[3:] == [f"Tell a story.\n\n{said}"]


def test_a_reply_that_means_no_label_abstains_and_is_not_asked_again() -> None:
    outputs, server = contributions(saying("I cannot tell"))
    assert outputs == [None] * 6
    assert len(server.asked) == 6
    assert zero_shot(saying("blue")).probabilities.tolist() == [0, 1, 0]


def test_labels_constrained_by_a_schema() -> None:
    outputs, server = contributions(saying('{"label": "dark blue"}'), constrain_labels=True)
    assert [output.tolist() for output in outputs] == [[0, 0, 1]] * 6
    asked = server.asked[0].body["response_format"]["json_schema"]["schema"]
    assert asked["properties"]["label"]["enum"] == list(COLOURS.labels)


def test_an_exemplar_that_does_not_fit_the_template_costs_its_own_slot_alone() -> None:
    odd = (Exemplar(fields={"text": "canary"}, embedding=None),)
    outputs, server = contributions(saying("red"), slots=[SLOTS[0], odd, SLOTS[1]])
    assert [output is None for output in outputs] == [False, True, False]
    assert len(server.asked) == 2


def test_texts_are_stripped_and_empty_ones_abstain() -> None:
    behave = odd(saying(" \n"), saying("  once upon a time\n"))
    outputs, server = contributions(behave, STORIES, max_answer_tokens=7)
    assert outputs == ["once upon a time"] * 3 + [None] + ["once upon a time"] * 2
    assert {asked.body["max_tokens"] for asked in server.asked} == {7}
    assert not any("seed" in asked.body for asked in server.asked)  # greedy: there is nothing to draw


def test_a_seed_depends_on_its_own_prompt_alone() -> None:
    def seeds(slots) -> dict[str, int]:
        _, server = contributions(saying("x"), STORIES, slots=slots, temperature=0.7)
        assert all(asked.body["temperature"] == 0.7 for asked in server.asked)
        return {asked.prompt: asked.body["seed"] for asked in server.asked}

    all_of_them = seeds(SLOTS)
    assert len(set(all_of_them.values())) == 6
    assert all(0 <= seed < 2**31 for seed in all_of_them.values())
    assert seeds(SLOTS[::-1]) == all_of_them
    alone = seeds([(), SLOTS[4]])
    assert len(alone) == 1
    assert alone.items() <= all_of_them.items()
    changed = seeds([slot(77), *SLOTS[1:]])
    assert len(changed.items() & all_of_them.items()) == 5


def test_zero_shot_texts_are_the_likeliest_the_public_ones_and_samples() -> None:
    async def behave(asked: Asked) -> bytes:
        if asked.body["temperature"] == 0:
            return completion(" the likeliest ")
        assert asked.body["temperature"] == 1
        return completion("a red kite" if asked.body["seed"] % 2 else f"sample {asked.body['seed']}")

    async def test(engine: OpenAiCompatibleEngine, server: ChatServer):
        return [(await engine.zero_shot(STORIES, QUERY)).texts for _ in range(2)], server.asked

    (texts, again), asked = with_server(behave, test)
    assert texts == again
    assert texts[:2] == ("the likeliest", "a red kite")
    assert len(set(texts)) == len(texts) <= 5
    drawn = [one.body["seed"] for one in asked if one.body["temperature"] == 1][:3]
    assert len(set(drawn)) == 3
    prompt = f"Tell a story.\n\n{QUERY['text']}:"
    assert sorted(drawn) == sorted(
        int.from_bytes(hashlib.sha256(f"{n}\n{prompt}".encode()).digest()[:4]) >> 1 for n in (1, 2, 3)
    )


def test_zero_shot_texts_begin_with_one_that_the_model_wrote() -> None:
    behave = when(lambda asked: asked.body["temperature"] == 0, saying(""), saying("sampled"))
    assert zero_shot(behave, STORIES).texts == ("sampled", "a red kite")


def test_a_sentence_is_made_of_released_words() -> None:
    async def test(engine: OpenAiCompatibleEngine, server: ChatServer):
        sentence = await engine.reconstruct(STORIES, QUERY, ["kite", "wind"], True, ZeroShot())
        return sentence, server.asked

    sentence, (asked,) = with_server(saying(" A kite in the wind. "), test)
    assert sentence.text == "A kite in the wind."
    assert "remote" in sentence.method
    assert "kite, wind" in asked.prompt
    assert asked.body["temperature"] == 0


@pytest.mark.parametrize("behaviour", [saying("  "), saying("<think>a kite"), saying("x" * 5_000_000)])
def test_no_sentence_is_the_engines_failure(behaviour: Behaviour) -> None:
    with pytest.raises(EngineUnavailableError) as caught:
        with_server(
            behaviour, lambda engine, _: engine.reconstruct(STORIES, QUERY, ["kite"], True, ZeroShot()), max_attempts=1
        )
    no_canary(caught.value)


def test_extra_members_are_sent_replace_the_engines_and_leave_out() -> None:
    extra = {"max_completion_tokens": 9, "temperature": 1, "chat_template_kwargs": {"think": False}}
    _, server = contributions(saying("red"), extra_body={"max_tokens": None, **extra})
    assert "max_tokens" not in server.asked[0].body
    assert extra.items() <= server.asked[0].body.items()


# What goes wrong.


async def hangs(_asked: Asked) -> bytes:
    await asyncio.sleep(60)
    raise AssertionError


def always(reply: bytes) -> Behaviour:
    async def behave(_asked: Asked) -> bytes:
        return reply

    return behave


def logged(capfd: pytest.CaptureFixture[str]) -> list[dict[str, Any]]:
    """The lines of our own log since the last time."""
    lines = "".join(capfd.readouterr()).splitlines()
    return [line for line in map(json.loads, filter(lambda line: line.startswith("{"), lines)) if "advice" in line]


def completed(content: Any) -> Behaviour:
    return always(completion(content))


def body(document: Any) -> bytes:
    return response(200, json.dumps(document))


CUT_CHUNKS = (
    b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    b'40\r\n{"choices": [{"message": {"content": "red", "role": "canary-body'
)
GARBAGE = {
    "hang": hangs,
    "not json": always(response(200, "<html>canary-body</html>")),
    "empty": always(response(200, "")),
    "half a character": always(completion("red \ud800")),
    "not utf-8": always(response(200, b'{"choices": [{"message": {"content": "red \xff"}}]}')),
    "deep": always(response(200, "[" * 200_000)),
    "huge": always(completion("red " * 2_000_000)),
    # A little of that is very much when it is unpacked.
    "compressed unasked": always(
        response(200, gzip.compress(completion("red").partition(b"\r\n\r\n")[2]), Content_Encoding="gzip")
    ),
    "shorter than announced": always(
        completion("red").replace(b"Content-Length: ", b"Connection: close\r\nContent-Length: 9")
    ),
    "a cut chunked stream": always(CUT_CHUNKS),
    "no http": always(b"canary-body\r\n\r\n"),
    "endless headers": always(b"HTTP/1.1 200 OK\r\n" + b"X: canary-body\r\n" * 20_000),
    "cut at once": always(b"Connection: close"),
    **{str(status): always(response(status, "canary-body")) for status in (408, 409, 429, 500, 529)},
    "429 in a 200": always(body({"error": {"code": 429, "message": "canary-body"}})),
    "503 in a 200, as text": always(body({"error": {"code": "503", "message": "canary-body"}})),
}


def message(finish_reason: str = "stop", **members: Any) -> Behaviour:
    """A chat completion with these members of its message."""
    return always(body({"choices": [{"message": members, "finish_reason": finish_reason}]}))


THOUGHT = [{"type": "thinking", "thinking": [{"type": "text", "text": "red, canary-body"}]}]
UNUSABLE = {
    "null": (always(body(None)), Unusable.NO_COMPLETION),
    "a list": (always(body(["canary-body"])), Unusable.NO_COMPLETION),
    "no choices": (always(body({"error": "canary-body"})), Unusable.NO_COMPLETION),
    "choices of another kind": (always(body({"choices": {"0": "canary-body"}})), Unusable.NO_COMPLETION),
    "no message": (always(body({"choices": [{"text": "canary-body"}]})), Unusable.NO_COMPLETION),
    "content of another kind": (message(content={"text": "red"}), Unusable.NO_COMPLETION),
    "a part without its text": (message(content=[{"type": "text"}]), Unusable.NO_COMPLETION),
    "a stream": (
        always(response(200, 'data: {"choices": ["canary-body"]}\n\ndata: [DONE]\n\n')),
        Unusable.NO_COMPLETION,
    ),
    "empty choices": (always(body({"choices": []})), Unusable.NO_CHOICES),
    "no content": (completed(None), Unusable.EMPTY),
    "blank": (saying(" \n"), Unusable.EMPTY),
    "an image": (message(content=[{"type": "image_url", "image_url": {"url": "canary-body"}}]), Unusable.EMPTY),
    "a thought apart": (message(content="", reasoning_content="red, canary-body"), Unusable.THOUGHTS),
    "a thought as a part": (message(content=THOUGHT), Unusable.EMPTY),
    "a thought that has not ended": (message("length", content=None, reasoning="red, canary-body"), Unusable.CUT),
    "a thought in the text": (saying("<think>\nred, canary-body\n</think>\n\nred"), Unusable.THOUGHTS),
    "a thought whose beginning was in the prompt": (saying("red, canary-body\n</think>\n\nred"), Unusable.THOUGHTS),
    "a refusal": (message(content=None, refusal="canary-body"), Unusable.REFUSED),
    "a filtered text": (message("content_filter", content="red"), Unusable.REFUSED),
    "a tool call": (message("tool_calls", content=None, tool_calls=[{"id": "canary-body"}]), Unusable.TOOL_CALL),
}
REFUSALS = {status: always(response(status, f"canary-body {KEY}")) for status in (302, 400, 401, 403, 404, 413, 422)}


@pytest.mark.slow
@pytest.mark.parametrize(("name", "tries"), [*((name, 3) for name in GARBAGE), *((status, 1) for status in REFUSALS)])
def test_a_slot_that_fails_for_good_abstains_alone_after_its_tries(name: str | int, tries: int) -> None:
    """The others go wrong once, if that is tried again."""
    wrong, others = {**GARBAGE, **REFUSALS}[name], saying("blue")
    behave = odd(wrong, at_first(wrong, others) if tries > 1 else others)
    outputs, server = contributions(behave, max_attempts=3, request_timeout_s=0.5 if name == "hang" else 20)
    assert [output is None for output in outputs] == [n == 3 for n in range(6)]
    assert all(output.tolist() == [0, 1, 0] for output in outputs if output is not None)
    assert Counter(ODD in asked.prompt for asked in server.asked) == {True: tries, False: 10 if tries > 1 else 5}


@pytest.mark.parametrize("name", GARBAGE)
def test_a_probe_that_fails_for_good_discloses_no_more_than_that(name: str) -> None:
    with pytest.raises(EngineUnavailableError) as caught:
        zero_shot(GARBAGE[name], max_attempts=2, request_timeout_s=0.3)
    no_canary(caught.value)
    assert isinstance(caught.value, EngineBusyError) is (name in ("429", "429 in a 200"))


LABEL_NEEDED = {
    "no label": ({}, saying("canary-body"), Unusable.NO_LABEL),
    "a label that has not come": ({}, message("length", content="Let me canary-body"), Unusable.CUT),
    "a label that has not ended": ({}, message("length", content="d"), Unusable.CUT),
    "no schema": ({"constrain_labels": True}, saying("red"), Unusable.OFF_SCHEMA),
    "a schema that has not ended": (
        {"constrain_labels": True},
        message("length", content='{"label": "r'),
        Unusable.CUT,
    ),
}


@pytest.mark.parametrize("name", [*UNUSABLE, *LABEL_NEEDED])
def test_a_reply_with_nothing_to_use_fails_the_probe_and_its_advice_is_logged(
    name: str, capfd: pytest.CaptureFixture[str]
) -> None:
    """The slot that gets one abstains alone, and nothing is asked again."""
    settings, wrong, unusable = LABEL_NEEDED[name] if name in LABEL_NEEDED else ({}, *UNUSABLE[name])
    right = saying('{"label": "blue"}' if settings else "blue")
    outputs, server = contributions(odd(wrong, right), **settings)
    assert [output is None for output in outputs] == [n == 3 for n in range(6)]
    assert len(server.asked) == 6
    assert logged(capfd) == []  # what a slot gets is private

    kind = UnanswerableQueryError if unusable is Unusable.REFUSED else UnusableReplyError
    for told in (replace(COLOURS, asker="ann"), replace(COLOURS, measuring=True)):
        if told.measuring and unusable in (Unusable.NO_LABEL, Unusable.EMPTY):
            assert zero_shot(wrong, told, **settings).probabilities.tolist() == [1 / 3] * 3  # made up, so no matter
            continue
        with pytest.raises(kind) as caught:
            zero_shot(wrong, told, **settings)
        no_canary(caught.value)
        assert unusable.advice in str(caught.value)
        assert [(line["event"], line["advice"]) for line in logged(capfd)] == [
            ("remote_reply_unusable", unusable.advice)
        ]


@pytest.mark.parametrize("name", UNUSABLE)
def test_texts_with_nothing_to_use_fail_the_probe_if_there_is_no_other(name: str) -> None:
    wrong, unusable = UNUSABLE[name]
    outputs, _ = contributions(odd(wrong, saying("a story")), STORIES)
    assert [output is None for output in outputs] == [n == 3 for n in range(6)]
    with pytest.raises((UnusableReplyError, UnanswerableQueryError), match=re.escape(unusable.advice)):
        zero_shot(wrong, STORIES)


def test_the_text_parts_of_a_reply_are_one_text() -> None:
    parts = [*THOUGHT, {"type": "text", "text": "dark"}, {"type": "text", "text": " blue"}]
    outputs, server = contributions(completed(parts))
    assert [output.tolist() for output in outputs] == [[0, 0, 1]] * 6
    assert len(server.asked) == 6


@pytest.mark.parametrize("status", REFUSALS)
def test_a_refused_probe_shows_the_operator_the_status(status: int, capfd: pytest.CaptureFixture[str]) -> None:
    kind = UnanswerableQueryError if status in (400, 413, 422) else EngineUnavailableError
    with pytest.raises(kind) as caught:
        zero_shot(REFUSALS[status], replace(COLOURS, asker="ann"))
    no_canary(caught.value)
    printed = "".join(capfd.readouterr())
    assert f'"status": {status}' in printed
    assert not CANARY.search(printed)
    assert ("DPICL_REMOTE_API_KEY" in printed) is (status in (401, 403))


def test_a_probe_that_fails_in_one_of_its_prompts_fails() -> None:
    with pytest.raises(EngineUnavailableError):
        zero_shot(when(lambda asked: asked.body["temperature"] > 0, REFUSALS[401], saying("fine")), STORIES)


def test_a_probe_takes_no_longer_than_it_may() -> None:
    started = time.monotonic()
    with pytest.raises(EngineUnavailableError) as caught:
        zero_shot(hangs, timeout_s=0.3)
    assert time.monotonic() - started < 10
    no_canary(caught.value)


def test_no_server_listens() -> None:
    async def test(engine: OpenAiCompatibleEngine, server: ChatServer):
        await server.stop()
        for ask in (engine.zero_shot(COLOURS, QUERY), engine.health()):
            with pytest.raises(EngineUnavailableError) as caught:
                await ask
            no_canary(caught.value)
        return await engine.contributions(COLOURS, QUERY, SLOTS, ZeroShot())

    assert list(with_server(saying("blue"), test, max_attempts=2)) == [None] * 6


@pytest.mark.slow
def test_the_server_is_left_alone_as_long_as_it_asks() -> None:
    busy = always(response(429, "canary-body", Retry_After="1"))
    outputs, server = contributions(at_first(busy, saying("blue")), slots=SLOTS[:1])
    assert outputs[0].tolist() == [0, 1, 0]
    assert server.asked[1].at - server.asked[0].at >= 1


def test_waits_grow_differ_and_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(chat_endpoint, "_FIRST_WAIT_S", 0.5)
    for attempt, longest in [(1, 0.5), (2, 1), (4, 4), (9, 8)]:
        waits = [chat_endpoint._wait_s(attempt, 0) for _ in range(50)]
        assert longest / 2 <= min(waits) < max(waits) <= longest
    assert chat_endpoint._wait_s(1, 3) > 3


# Slots do not hold each other up, and load has bounds.


@pytest.mark.parametrize("most", [1, 3])
def test_no_more_requests_at_once_than_allowed(most: int) -> None:
    async def behave(_asked: Asked) -> bytes:
        await asyncio.sleep(0.03)
        return completion("blue")

    async def test(engine: OpenAiCompatibleEngine, server: ChatServer):
        two = [engine.contributions(COLOURS, QUERY, SLOTS, ZeroShot()) for _ in range(2)]
        return await asyncio.gather(*two), server.most_at_once

    outputs, at_once = with_server(behave, test, max_concurrency=most)
    assert all(output is not None for one in outputs for output in one)
    assert at_once == most


@pytest.mark.slow
def test_a_slot_that_waits_for_its_next_try_keeps_no_other_from_being_asked() -> None:
    async def behave(asked: Asked) -> bytes:
        if "exemplar-0-" in asked.prompt and asked.attempt == 1:
            return response(503, "", Retry_After="1")
        return completion("blue")

    outputs, server = contributions(behave, max_concurrency=1)
    assert all(output is not None for output in outputs)
    assert ["exemplar-0-" in asked.prompt for asked in server.asked] == [True] + [False] * 5 + [True]


@pytest.mark.slow
def test_answers_are_kept_when_time_is_up_and_the_rest_abstain() -> None:
    async def test(engine: OpenAiCompatibleEngine, server: ChatServer):
        outputs = await engine.contributions(COLOURS, QUERY, SLOTS, ZeroShot())
        while not server.hung_up:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        return outputs

    outputs = with_server(odd(hangs, saying("blue")), test, timeout_s=1)
    assert [output is None for output in outputs] == [n == 3 for n in range(6)]


def test_queries_are_refused_while_too_many_prompts_are_in_flight() -> None:
    async def test(engine: OpenAiCompatibleEngine, server: ChatServer):
        # The plan's ten slots count, whatever the sample came to: how many are empty is private.
        busy = asyncio.create_task(
            engine.contributions(replace(COLOURS, ensemble=10), QUERY, [SLOTS[0], ()], ZeroShot())
        )
        while not server.asked:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        with pytest.raises(EngineBusyError):
            await engine.zero_shot(COLOURS, QUERY)
        busy.cancel()
        with pytest.raises(asyncio.CancelledError):
            await busy
        server.behaviour = saying("blue")
        await engine.zero_shot(COLOURS, QUERY)
        while not server.hung_up:  # noqa: ASYNC110
            await asyncio.sleep(0.01)
        assert len(server.asked) == 2  # nothing is asked for a caller who gives up

    with_server(hangs, test, max_queued_prompts=10)


@pytest.mark.parametrize("task", [COLOURS, STORIES], ids=["labels", "texts"])
def test_a_query_counts_until_its_answer_leaves_however_soon_its_slots_were_answered(task: TaskSpec) -> None:
    """Callers see whether another query is accepted: that reveals when an answer left, and nothing of a sample."""

    async def test(engine: OpenAiCompatibleEngine, server: ChatServer):
        loop = asyncio.get_running_loop()
        leaves = loop.time() + 0.5
        asked = replace(task, ensemble=10, latency_grain_s=0.5)
        public = await engine.zero_shot(asked, QUERY)
        await engine.contributions(asked, QUERY, [SLOTS[0], ()], public)
        refused = 0
        while True:
            began = loop.time()
            try:
                await engine.zero_shot(task, QUERY)
                break
            except EngineBusyError:
                refused += 1
                await asyncio.sleep(0.01)
        assert refused
        assert began >= leaves

    with_server(saying("blue"), test, max_queued_prompts=10)


def test_what_a_server_sets_for_one_slot_comes_back_with_no_other() -> None:
    async def behave(_asked: Asked) -> bytes:
        return completion("blue").replace(b"\r\n\r\n", b"\r\nSet-Cookie: slot=canary; Path=/\r\n\r\n", 1)

    outputs, server = contributions(behave, max_concurrency=1)
    assert all(output is not None for output in outputs)
    assert not any("cookie" in asked.headers for asked in server.asked)


# The engine itself.


@pytest.mark.parametrize("models", [response(200, "{}"), response(404, ""), response(429, "")])
def test_a_healthy_endpoint(models: bytes) -> None:
    with_server(saying(""), lambda engine, _: engine.health(), models=models)


@pytest.mark.slow
@pytest.mark.parametrize("models", [response(401, "canary"), response(403, ""), response(503, "canary"), b"canary\r\n"])
def test_an_endpoint_that_is_not_healthy(models: bytes) -> None:
    with pytest.raises(EngineUnavailableError) as caught:
        with_server(saying(""), lambda engine, _: engine.health(), models=models)
    no_canary(caught.value)


def test_it_describes_itself_as_remote() -> None:
    info = asyncio.run(engine_for("https://models.example:8443/v1").describe())
    assert (info.remote, info.is_llm) == (True, True)
    assert "best effort" in info.isolation
    assert "models.example" in info.notice


def test_closing_ends_the_connections() -> None:
    async def test(engine: OpenAiCompatibleEngine, server: ChatServer):
        await engine.zero_shot(COLOURS, QUERY)
        assert len(server._serving) == 1
        engine.close()
        while server._serving:  # noqa: ASYNC110
            await asyncio.sleep(0.01)

    with_server(saying("blue"), test)
    engine = engine_for("http://127.0.0.1:9/v1")
    with pytest.raises(EngineUnavailableError):
        asyncio.run(engine.health())
    engine.close()  # its loop is gone
    engine_for("http://127.0.0.1:9/v1").close()  # it never had one


@pytest.mark.parametrize("key", ["canary\nkey", "canary kéy", "canary\x7f"])
def test_a_key_that_cannot_be_is_refused_without_being_shown(key: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPICL_REMOTE_API_KEY", key)
    with pytest.raises(EngineUnavailableError, match="DPICL_REMOTE_API_KEY") as caught:
        engine_for("http://127.0.0.1:9/v1")
    no_canary(caught.value)


def test_no_key_sends_none(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPICL_REMOTE_API_KEY", "\n")
    _, server = contributions(saying("blue"))
    assert "authorization" not in server.asked[0].headers


BAD_CONFIGS = (
    *({"base_url": url} for url in ("ftp://host/v1", "https://name:password@host/v1", "https://host/v1?key=1")),
    *({"isolation": isolation} for isolation in ("strict", None)),
    *({"extra_body": body} for body in ({"messages": []}, {"n": 2}, {"stream": True})),
    *({"api_key": "secret"}, {"chat": False}),
)


@pytest.mark.parametrize("change", BAD_CONFIGS, ids=str)
def test_configs_that_cannot_be(change: dict[str, Any]) -> None:
    good = {"name": "openai_compatible", "base_url": "https://host/v1", "model": "m", "isolation": "best_effort"}
    OpenAiCompatibleConfig.model_validate(good)
    with pytest.raises(ValidationError):
        OpenAiCompatibleConfig.model_validate({**good, **change})
