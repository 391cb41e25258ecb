"""The OpenAI surface, asked by OpenAI's own client, over the real pipeline."""

import json
import re
from pathlib import Path
from typing import Any

import httpx2
import openai
import pytest

from accounting.plans.plan import load_plan
from service.answering.plans.signing import prepare, sign
from service.gateway.openai.requests import Ignored
from service.operations.services import Services
from tests.service.conftest import PLAN
from tests.service.gateway.api.test_api import Api

TWO_FIELDS = PLAN.replace("toys", "boxes").replace('"{text}:', '"{size} {text}:')


class Asked(Api):
    """A client that also asks through OpenAI's client, and keeps every request that reached the application."""

    def __init__(self, services: Services):
        super().__init__(services)
        self.requests: list[httpx2.Request] = []
        self.client.event_hooks["request"].append(self.requests.append)

    def openai(self, role: str = "analyst") -> openai.OpenAI:
        return openai.OpenAI(api_key=self.tokens[role], base_url="http://testserver/v1", http_client=self.client)

    def complete(self, *messages: str | dict, model: str = "toys.colour", **options):
        given = [{"role": "user", "content": one} if isinstance(one, str) else one for one in messages]
        return self.openai().chat.completions.create(model=model, messages=given, **options)


@pytest.fixture
def asked(services: Services) -> Asked:
    return Asked(services)


def test_a_completion_is_a_release(asked: Asked) -> None:
    completion = asked.complete("a toy")
    (choice,) = completion.choices
    assert choice.message.role == "assistant"
    assert choice.message.content in ("red", "blue")
    assert (choice.finish_reason, choice.index) == ("stop", 0)
    assert (completion.model, completion.usage.total_tokens) == ("toys.colour@1", 0)
    ours = completion.dp_icl
    assert ours["cost"] == {"charged": 1, "answers_left": 19}
    told = {"id", "task", "label", "score", "scores", "votes", "zero_shot", "created_at", "cost", "engine"}
    assert set(ours) == told, "public values only"
    assert set(completion.model_dump(exclude_unset=True)) == {
        "id", "object", "created", "model", "choices", "usage", "dp_icl"
    }  # fmt: skip
    assert ours["label"] == choice.message.content
    assert ours["engine"]["name"] == "majority"
    release = asked("analyst", "GET", f"/v1/releases/{completion.id}").json()
    assert release["label"] == choice.message.content
    # The same question at the other address is the same release.
    answer = asked.ask("a toy").json()
    assert (answer["id"], answer["cost"]["charged"]) == (completion.id, 0)


@pytest.mark.parametrize("stream", [False, True])
def test_an_abstention_is_a_refusal(asked: Asked, stream: bool) -> None:
    said = asked.complete("a toy", stream=stream, extra_body={"abstain_below": 1})
    message: Any = next(iter(said)).choices[0].delta if stream else said.choices[0].message
    assert message.content is None
    assert re.fullmatch(r"Abstained: the label has a score of 0\.\d+, less than the threshold\.", message.refusal)


def test_a_stream_has_the_same_content(asked: Asked) -> None:
    whole = asked.complete("a toy")
    chunks = list(asked.complete("a toy", stream=True, stream_options={"include_usage": True}))
    assert "".join(c.choices[0].delta.content or "" for c in chunks if c.choices) == whole.choices[0].message.content
    assert {chunk.id for chunk in chunks} == {whole.id}
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert [c.choices[0].finish_reason for c in chunks if c.choices] == [None, "stop"]
    assert chunks[1].dp_icl == {**whole.dp_icl, "cost": {"charged": 0, "answers_left": 19}}
    assert (chunks[-1].choices, chunks[-1].usage.total_tokens) == ([], 0)
    without_usage = list(asked.complete("a toy", stream=True))
    assert [len(chunk.choices) for chunk in without_usage] == [1, 1]


def test_a_stream_on_the_wire(asked: Asked) -> None:
    body = {"model": "toys.colour", "messages": [{"role": "user", "content": "a toy"}], "stream": True}
    response = asked("analyst", "POST", "/v1/chat/completions", json=body)
    assert response.headers["content-type"].startswith("text/event-stream")
    assert response.headers["x-should-retry"] == "false"
    assert len(response.headers["x-request-id"]) == 32
    *events, end, rest = response.text.split("\n\n")
    assert (end, rest) == ("data: [DONE]", "")
    assert all(json.loads(event.removeprefix("data: "))["id"] for event in events)


def test_models_are_tasks(asked: Asked) -> None:
    records = asked.services.records
    sign(records, prepare(records, load_plan(PLAN.replace("epsilon: 4", "epsilon: 3"))), "test")
    models = {model.id: model for model in asked.openai("admin").models.list()}
    assert set(models) == {"toys.colour", "toys.colour@1"}
    assert models["toys.colour"].dp_icl["task"] == "toys.colour@2"
    assert models["toys.colour"].owned_by == "toys"
    for name, model in models.items():
        assert asked.openai().models.retrieve(name) == model
    asked.complete("a toy", model="toys.colour@1")
    left = {model.id: model.dp_icl["answers_left"] for model in asked.openai().models.list()}
    assert left == {"toys.colour": 20, "toys.colour@1": 19}
    with pytest.raises(openai.NotFoundError) as error:
        asked.openai().models.retrieve("toys.shape")
    assert error.value.code == "unknown_task"


def test_a_plan_that_is_signed_meanwhile_is_listed_the_next_time(asked: Asked, monkeypatch: pytest.MonkeyPatch) -> None:
    records, before = asked.services.records, asked.services.records.ledger.budgets.statuses()
    sign(records, prepare(records, load_plan(PLAN.replace("epsilon: 4", "epsilon: 3"))), "test")
    with monkeypatch.context() as patched:
        patched.setattr(records.ledger.budgets, "statuses", lambda: before)  # read just before it was signed
        (model,) = asked.openai().models.list()
    assert (model.id, model.dp_icl["task"]) == ("toys.colour", "toys.colour@1")
    assert {model.id for model in asked.openai().models.list()} == {"toys.colour", "toys.colour@1"}


def test_messages_are_read_as_their_text(asked: Asked) -> None:
    for messages, text in (
        ([{"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "toy"}]}], "a\ntoy"),
        ([{"role": "system", "content": " "}, "a toy"], "a toy"),
        (['{"text": "a toy"}'], '{"text": "a toy"}'),
    ):
        assert asked.complete(*messages).id == asked.ask(text).json()["id"]


HISTORY = [
    {"role": "system", "content": "Answer like a pirate."},
    {"role": "user", "content": "a kite"},
    {"role": "assistant", "content": None, "tool_calls": []},
    {"role": "assistant", "content": "red"},
]


def test_earlier_messages_are_refused_unless_they_may_be_ignored(asked: Asked) -> None:
    befores = (HISTORY[:1], HISTORY[1:], HISTORY, [{**HISTORY[0], "role": "developer"}])
    for before in befores:
        with pytest.raises(openai.UnprocessableEntityError, match="x-dpicl-context") as error:
            asked.complete(*before, "a toy")
        assert error.value.code == "context_not_supported"
    assert asked.left() == 20
    for before in befores:
        ignored = asked.complete(*before, "a toy", extra_headers={"x-dpicl-context": "ignore"})
        assert asked.complete("a toy").id == ignored.id


def test_messages_without_a_question_cost_nothing(asked: Asked) -> None:
    for messages, told in (
        ([], "messages"),
        (["a toy", {"role": "assistant", "content": "It is"}], "assistant"),
        ([""], "empty"),
        ([{"role": "user"}], "empty"),
        ([{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "x"}}]}], "image_url"),
        ([{"role": "user", "content": [{"type": "text"}]}], "query"),
    ):
        with pytest.raises(openai.UnprocessableEntityError, match=told):
            asked.complete(*messages, extra_headers={"x-dpicl-context": "ignore"})
    assert asked.left() == 20


def test_parameters_that_cannot_be_granted_are_refused(asked: Asked) -> None:
    for parameter, told in (
        ({"n": 2}, "n: a question"),
        ({"tools": [{"type": "function", "function": {"name": "f"}}]}, "tools: .*no tool"),
        ({"tool_choice": "required"}, "tool_choice: "),
        ({"response_format": {"type": "json_object"}}, "response_format: .*as it is"),
        ({"stop": ["\n"]}, "stop: "),
        ({"logprobs": True}, "logprobs: .*dp_icl"),
        ({"top_logprobs": 3}, "top_logprobs: "),
        ({"logit_bias": {"50256": -100}}, "logit_bias: "),
        ({"modalities": ["text", "audio"]}, "modalities: "),
        ({"extra_body": {"guided_choice": ["red"]}}, "guided_choice: "),
        ({"extra_body": {"temperature": "hot"}}, "temperature: "),
    ):
        with pytest.raises(openai.UnprocessableEntityError, match=told):
            asked.complete("a toy", **parameter)
    assert asked.left() == 20


def test_parameters_that_ask_for_nothing_or_only_tune_sampling_pass(asked: Asked) -> None:
    asked.complete(
        "a toy", n=1, tools=[], tool_choice="none", response_format={"type": "text"}, stop=None, logprobs=False,
        logit_bias={}, modalities=["text"], temperature=0, top_p=0.5, max_tokens=1, max_completion_tokens=9, seed=7,
        presence_penalty=1, frequency_penalty=0.5, user="u", metadata={"a": "b"}, extra_body={"top_k": 4},
    )  # fmt: skip
    assert asked.left() == 19


def sign_two_fields(asked: Asked) -> None:
    """Sign another task, whose queries also have a size."""
    records = asked.services.records
    records.create_knowledge_base(
        "boxes", epsilon=8, delta=2e-4, public_size=60, fields=["text", "size", "label"], embedded_field="text"
    )
    sign(records, prepare(records, load_plan(TWO_FIELDS)), "test")


def test_several_fields_come_as_an_object(asked: Asked) -> None:
    sign_two_fields(asked)
    fields = {"text": "a toy", "size": "large"}
    completion = asked.complete(json.dumps(fields), model="boxes.colour")
    assert asked.ask(fields, "boxes.colour").json()["id"] == completion.id
    for text in ("a large toy", '["a toy"]', '{"text": "a toy", "size": 3}', "[" * 50_000):
        with pytest.raises(openai.UnprocessableEntityError, match="size, text"):
            asked.complete(text, model="boxes.colour")
    with pytest.raises(openai.UnprocessableEntityError, match="size"):
        asked.complete('{"text": "a toy"}', model="boxes.colour")


def test_exhausted_is_an_error_that_is_not_retried(asked: Asked) -> None:
    for i in range(20):
        asked.complete(f"toy {i}")
    before = len(asked.requests)
    with pytest.raises(openai.APIStatusError) as error:
        asked.complete("one more")
    assert (error.value.status_code, error.value.code) == (402, "answers_exhausted")
    assert error.value.type == "insufficient_quota"
    assert len(asked.requests) == before + 1
    assert asked.complete("toy 7").dp_icl["cost"] == {"charged": 0, "answers_left": 0}


def test_an_idempotency_key_names_one_question(asked: Asked) -> None:
    """The key is the caller's name for a question, over either API."""
    named = {"Idempotency-Key": "k1"}
    asked.complete("one", extra_headers=named)
    with pytest.raises(openai.UnprocessableEntityError) as error:
        asked.complete("two", extra_headers=named)
    assert error.value.code == "idempotency_conflict"
    answer = asked("analyst", "POST", "/v1/tasks/toys.colour/answers", json={"query": "two"}, headers=named)
    assert answer.status_code == 422


def test_the_page_names_every_parameter_that_is_ignored() -> None:
    page = (Path(__file__).parents[4] / "docs" / "analyst.md").read_text()
    ignored = page.partition("**Parameters.** Ignored")[2].partition("Refused")[0]
    assert set(re.findall(r"`(\w+)`", ignored)) == set(Ignored.model_fields)
