"""The Responses API, asked by OpenAI's own client and its Agents SDK, over the real pipeline."""

import json
from typing import Any

import agents
import httpx2
import openai
import pytest
from openai.types.responses import Response, ResponseOutputMessage

from service.operations.services import Services
from tests.service.gateway.api.test_openai_surface import Asked, sign_two_fields

REQUIRED = """
id object created_at completed_at status incomplete_details model previous_response_id instructions output error tools
tool_choice truncation parallel_tool_calls text top_p presence_penalty frequency_penalty top_logprobs temperature
reasoning user usage max_output_tokens max_tool_calls store background service_tier metadata safety_identifier
prompt_cache_key
"""
"""Members of a response that the Open Responses specification requires."""

ORDER = """
created in_progress output_item.added content_part.added {part}.delta {part}.done content_part.done output_item.done
completed
"""


def order(part: str) -> list[str]:
    return [f"response.{name}" for name in ORDER.format(part=part).split()]


@pytest.fixture
def asked(services: Services) -> Asked:
    return Asked(services)


def respond(asked: Asked, given: Any = "a toy", **options: Any) -> Any:
    return asked.openai().responses.create(**{"model": "toys.colour", "input": given, **options})


def words(asked: Asked, **body: Any) -> list[tuple[str, dict]]:
    """The name and data of each event of a stream, after a check of the mark at its end."""
    answer = asked("analyst", "POST", "/v1/responses", json={"model": "toys.colour", "stream": True, **body})
    assert answer.headers["content-type"].startswith("text/event-stream")
    *events, mark, end = answer.text.split("\n\n")
    assert (mark, end) == ("data: [DONE]", "")
    pairs = [event.split("\n") for event in events]
    return [(name.removeprefix("event: "), json.loads(data.removeprefix("data: "))) for name, data in pairs]


def test_a_response_is_a_release(asked: Asked) -> None:
    response = respond(asked)
    assert response.output_text in ("red", "blue")
    assert (response.status, response.model, response.usage.total_tokens) == ("completed", "toys.colour@1", 0)
    assert response.dp_icl["cost"] == {"charged": 1, "answers_left": 19}
    release = asked("analyst", "GET", f"/v1/releases/{response.id}").json()
    assert release["label"] == response.output_text
    # The same question over the other APIs is the same release.
    assert asked.ask("a toy").json()["id"] == asked.complete("a toy").id == response.id
    assert respond(asked, [{"role": "user", "content": "a toy"}]).id == response.id
    assert respond(asked, [{"role": "user", "content": [{"type": "input_text", "text": "a toy"}]}]).id == response.id


def test_a_response_is_what_the_specification_asks_for(asked: Asked) -> None:
    answer = asked("analyst", "POST", "/v1/responses", json={"model": "toys.colour", "input": "a toy"}).json()
    assert answer.keys() == {*REQUIRED.split()} | {"dp_icl"}
    parsed = Response.model_validate(answer, strict=True)
    assert isinstance(parsed.output[0], ResponseOutputMessage)
    echoed = {"metadata": {"a": "b"}, "user": "u", "safety_identifier": "s", "prompt_cache_key": "k"}
    answer = asked("analyst", "POST", "/v1/responses", json={"model": "toys.colour", "input": "a toy", **echoed}).json()
    assert {key: answer[key] for key in echoed} == echoed


def test_a_stream_has_the_events_in_their_order(asked: Asked) -> None:
    whole = respond(asked)
    events = words(asked, input="a toy")
    assert [name for name, _ in events] == order("output_text")
    assert [(data["type"], data["sequence_number"]) for _, data in events] == [
        (name, number) for number, (name, _) in enumerate(events)
    ]
    begun, ended = events[0][1]["response"], events[-1][1]["response"]
    assert (begun["status"], begun["output"], begun["usage"], begun["dp_icl"]) == ("in_progress", [], None, None)
    assert begun.keys() == ended.keys()
    assert ended["id"] == whole.id
    # OpenAI's client reads it, too.
    with asked.openai().responses.stream(model="toys.colour", input="a toy") as stream:
        deltas = [event.delta for event in stream if event.type == "response.output_text.delta"]
        final = stream.get_final_response()
    assert deltas == [final.output_text] == [whole.output_text]


def test_an_abstention_is_a_refusal(asked: Asked) -> None:
    (message,) = respond(asked, extra_body={"abstain_below": 1}).output
    (part,) = message.content
    assert part.type == "refusal"
    assert "threshold" in part.refusal
    events = words(asked, input="a toy", abstain_below=1)
    assert [name for name, _ in events] == order("refusal")


@pytest.mark.parametrize(
    "body",
    [
        {"previous_response_id": "resp_1"},
        {"conversation": "conv_1"},
        {"background": True},
        {"prompt": {"id": "p"}},
        {"tools": [{"type": "web_search"}]},
        {"tool_choice": "required"},
        {"include": ["message.output_text.logprobs"]},
        {"text": {"format": {"type": "json_object"}}},
        {"top_logprobs": 3},
        {"unheard_of": 1},
        {"input": []},
        {"input": [{"role": "user", "content": [{"type": "input_image", "image_url": "data:,x"}]}]},
        {"input": [{"type": "function_call_output", "call_id": "c", "output": "o"}]},
        {"input": [{"role": "assistant", "content": "red"}]},
        {"input": [{"role": "user", "content": "a"}, {"role": "user", "content": "a toy"}]},
        {"instructions": "Answer in French."},
    ],
    ids=lambda body: "-".join(body),
)
def test_a_request_that_cannot_be_granted_is_refused_and_not_charged(asked: Asked, body: dict[str, Any]) -> None:
    answer = asked("analyst", "POST", "/v1/responses", json={"model": "toys.colour", "input": "a toy", **body})
    assert answer.status_code == 422, answer.text
    assert asked.ask("a toy").json()["cost"] == {"charged": 1, "answers_left": 19}


def test_parameters_that_ask_for_nothing_are_accepted(asked: Asked) -> None:
    nothing: dict[str, Any] = {"tools": [], "tool_choice": "auto", "include": [], "text": {"format": {"type": "text"}}}
    nothing |= {"previous_response_id": None, "background": False, "truncation": "auto", "reasoning": {"effort": "low"}}
    assert respond(asked, **nothing, max_output_tokens=50, temperature=0.2, store=True).output_text in ("red", "blue")
    ignoring = {"x-dpicl-context": "ignore"}
    assert respond(asked, instructions="Answer in French.", extra_headers=ignoring).dp_icl["cost"]["charged"] == 0


def test_several_fields_come_as_a_json_object(asked: Asked) -> None:
    sign_two_fields(asked)
    answer = respond(asked, json.dumps({"size": "big", "text": "a toy"}), model="boxes.colour")
    assert answer.output_text in ("red", "blue")
    with pytest.raises(openai.UnprocessableEntityError, match="size, text"):
        respond(asked, "a toy", model="boxes.colour")


async def test_the_agents_sdk_asks(asked: Asked) -> None:
    over_app = httpx2.AsyncClient(transport=httpx2.ASGITransport(app=asked.client.app))
    key = asked.tokens["analyst"]
    client = openai.AsyncOpenAI(api_key=key, base_url="http://testserver/v1", http_client=over_app)
    agents.set_tracing_disabled(True)
    model = agents.OpenAIResponsesModel(model="toys.colour", openai_client=client)
    agent = agents.Agent(name="Sorter", model=model)
    assert (await agents.Runner.run(agent, "a toy")).final_output in ("red", "blue")
    streamed = agents.Runner.run_streamed(agent, "a toy")
    assert [event async for event in streamed.stream_events()]
    assert streamed.final_output in ("red", "blue")


def test_thoughts_before_a_message_are_left_out(asked: Asked) -> None:
    """A client that had another model think sends its items back with the next question."""
    thought = {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "Red?"}]}
    question = {"role": "user", "content": "a thoughtful toy"}
    answer = respond(asked, [thought, question])
    assert answer.dp_icl["cost"]["charged"] == 1
    assert respond(asked, "a thoughtful toy").id == answer.id
    for alone in ([thought], [question, {"type": "function_call", "call_id": "1", "name": "f", "arguments": "{}"}]):
        with pytest.raises(openai.UnprocessableEntityError):
            respond(asked, alone)
