"""Every parameter that OpenAI documents is honoured, ignored or refused, alike on both doors."""

from __future__ import annotations

from typing import Any

from fastapi.testclient import TestClient
from openai.types.chat import completion_create_params as chat
from openai.types.responses import response_create_params as responses

from service.operations.services import Services
from tests.service.conftest import client_of

TOOL = {"type": "function", "name": "f", "function": {"name": "f"}}
Case = tuple[dict[str, Any] | None, dict[str, Any] | None]
"""A parameter in chat completions and in responses; None: that door has no such parameter."""


def both(**parameters: Any) -> Case:
    return parameters, parameters


TAKEN: list[Case] = [
    *(both(**{name: 0}) for name in ("temperature", "top_p", "top_logprobs")),
    *(both(**{name: "x"}) for name in ("user", "safety_identifier", "prompt_cache_key")),
    *(both(**{name: flag}) for name in ("store", "parallel_tool_calls") for flag in (True, False)),
    *(both(service_tier=tier) for tier in ("auto", "default", "flex", "priority")),
    *(both(tool_choice=choice) for choice in ("none", "auto")),
    *(both(**{name: None}) for name in ("metadata", "moderation", "stream_options", "tools")),
    *(({"verbosity": level}, {"text": {"verbosity": level}}) for level in ("low", "medium", "high")),
    *(({"reasoning_effort": level}, {"reasoning": {"effort": level}}) for level in ("none", "minimal", "low", "high")),
    *(({"response_format": form}, {"text": {"format": form}}) for form in ({"type": "text"}, None)),
    ({"response_format": None}, {"text": {}}),
    (
        {"response_format": {"type": "text"}, "verbosity": "low"},
        {"text": {"format": {"type": "text"}, "verbosity": "low"}},
    ),
    both(metadata={"a": "b"}),
    both(tools=[]),
    both(prompt_cache_retention="24h"),
    both(prompt_cache_options={"ttl": "30m"}),
    ({"max_completion_tokens": 1}, {"max_output_tokens": 1}),
    ({"max_tokens": 1}, None),
    ({"stream": True, "stream_options": {"include_usage": True}}, {"stream": True, "stream_options": {}}),
    both(stream=True, stream_options={"include_obfuscation": False}),
    both(stream=False),
    ({"logprobs": False}, {"include": []}),
    (None, {"include": ["reasoning.encrypted_content", "file_search_call.results"]}),
    (None, {"reasoning": {"effort": "medium", "summary": "auto"}}),
    (None, {"truncation": "auto"}),
    (None, {"max_tool_calls": 3}),
    (None, {"background": False}),
    (None, {"context_management": [{"type": "compaction", "compact_threshold": 1000}]}),
    *(({name: 0.5}, None) for name in ("presence_penalty", "frequency_penalty")),
    *((one, None) for one in ({"seed": 7}, {"n": 1}, {"logit_bias": {}}, {"modalities": ["text"]}, {"stop": []})),
    ({"functions": [], "function_call": "none"}, None),
]
REFUSED: list[Case] = [
    both(tools=[TOOL]),
    both(tools=[{"type": "web_search"}]),
    *(both(tool_choice=choice) for choice in ("required", {"type": "function", "name": "f"})),
    both(top_logprobs=3),
    ({"logprobs": True}, {"include": ["message.output_text.logprobs"]}),
    *(
        ({"response_format": form}, {"text": {"format": form}})
        for form in ({"type": "json_object"}, {"type": "json_schema", "name": "x", "schema": {}})
    ),
    both(moderation={"model": "omni-moderation-latest"}),
    both(temperature="hot"),
    (None, {"text": {"tone": "nice"}}),
    *(({name: value}, None) for name, value in {"n": 2, "stop": ["\n"], "logit_bias": {"5": 1}, "audio": {}}.items()),
    *(({name: {}}, None) for name in ("prediction", "web_search_options")),
    ({"functions": [{"name": "f"}]}, None),
    ({"modalities": ["text", "audio"]}, None),
    *((None, {name: "x"}) for name in ("previous_response_id", "conversation")),
    *((None, {name: {"id": "x"}}) for name in ("prompt", "image")),
    *((None, {name: value}) for name, value in {"background": True, "access_programs": ["x"]}.items()),
    (None, {"instructions": "Be nice."}),
    *(({"messages": [{"role": role, "content": "Be nice."}]}, None) for role in ("system", "developer")),
]
DOORS = ("/v1/chat/completions", "/v1/responses")


def statuses(client: TestClient, case: Case) -> dict[str, int]:
    """The status of an answer with a case's parameters on each door that has them; every answer is the same release."""
    found = {}
    for path, parameters in zip(DOORS, case, strict=True):
        if parameters is not None:
            question = {"messages": [{"role": "user", "content": "a toy"}]} if "chat" in path else {"input": "a toy"}
            messages = {"messages": parameters["messages"] + question["messages"]} if "messages" in parameters else {}
            response = client.post(path, json={"model": "toys.colour"} | question | parameters | messages)
            found[path] = response.status_code
    return found


def documented() -> tuple[set[str], set[str]]:
    """The parameters in OpenAI's own client."""
    completion = [chat.CompletionCreateParamsBase, chat.CompletionCreateParamsStreaming]
    response = [responses.ResponseCreateParamsBase, responses.ResponseCreateParamsStreaming]
    asked = {"model", "messages"}, {"model", "input"}
    named = [{name for shape in shapes for name in shape.__annotations__} for shapes in (completion, response)]
    return named[0] - asked[0], named[1] - asked[1]


def test_every_documented_parameter_is_tried() -> None:
    for door, wanted in enumerate(documented()):
        assert wanted <= {name for case in TAKEN + REFUSED for name in case[door] or ()}


def test_parameters_that_change_nothing_pass_on_both_doors(services: Services) -> None:
    client = client_of(services)
    for case in TAKEN:
        assert set(statuses(client, case).values()) == {200}, case
    assert client.get("/v1/tasks/toys.colour").json()["answers_left"] == 19


def test_parameters_that_cannot_be_granted_are_refused_on_both_doors(services: Services) -> None:
    client = client_of(services)
    for case in REFUSED:
        assert set(statuses(client, case).values()) == {422}, case
    assert client.get("/v1/tasks/toys.colour").json()["answers_left"] == 20


def test_a_refusal_names_the_parameter_as_openai_does(services: Services) -> None:
    client = client_of(services)
    for door, parameters, named in (
        (0, {"n": 2}, "n"),
        (0, {"foo": 1}, "foo"),
        (1, {"text": {"format": {"type": "json_object"}}}, "text"),
        (1, {"n": 1, "foo": 1}, None),
    ):
        question = {"input": "a toy"} if door else {"messages": [{"role": "user", "content": "a toy"}]}
        error = client.post(DOORS[door], json={"model": "toys.colour"} | question | parameters).json()["error"]
        assert error.keys() == {"message", "type", "param", "code"}
        assert error["param"] == named
        assert ("foo: not known here; leave it out" in error["message"]) == ("foo" in parameters)
