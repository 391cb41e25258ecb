"""MCP, asked by the official client over a port of this machine, over the real pipeline."""

import json
import re
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from typing import Any

import httpx2
import pytest
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.exceptions import MCPError

from service.gateway.mcp import INSTRUCTIONS
from service.operations.services import Services
from service.problem_kinds import ProblemKind
from tests.processes import listening
from tests.service.gateway.api.test_api import Api


@pytest.fixture
def api(services: Services) -> Api:
    return Api(services)


@pytest.fixture
def url(api: Api) -> Iterator[str]:
    with listening(api.client.app) as url:
        yield url


@asynccontextmanager
async def connected(url: str, token: str, **headers: str) -> AsyncIterator[Client]:
    headers = {"authorization": f"Bearer {token}", **headers}
    async with (
        httpx2.AsyncClient(headers=headers) as http,
        Client(streamable_http_client(f"{url}/mcp", http_client=http)) as client,
    ):
        yield client


async def call(client: Client, tool: str, **arguments: Any) -> Any:
    """Call a tool; return its result."""
    result = await client.call_tool(tool, arguments)
    assert not result.is_error, result.content
    return result.structured_content


async def refused(client: Client, tool: str, **arguments: Any) -> str:
    """Call a tool that refuses; return its message."""
    result = await client.call_tool(tool, arguments)
    assert result.is_error
    (said,) = result.content
    return said.text


async def test_an_agent_lists_asks_and_reads_the_budget(api: Api, url: str) -> None:
    async with connected(url, api.tokens["analyst"]) as client:
        assert client.instructions == INSTRUCTIONS
        offered = {tool.name: tool for tool in (await client.list_tools()).tools}
        assert offered.keys() == {"tasks", "ask", "budget"}
        (task,) = (await call(client, "tasks"))["tasks"]
        assert (task["task"], task["query_fields"], task["answers_left"]) == ("toys.colour@1", ["text"], 20)
        first = await call(client, "ask", task="toys.colour", query="a toy")
        assert first["label"] in ("red", "blue")
        assert first["cost"] == {"charged": 1, "answers_left": 19}
        again = await call(client, "ask", task="toys.colour", query={"text": "a toy"})
        assert (again["id"], again["cost"]["charged"]) == (first["id"], 0)
        assert api.ask("a toy").json()["id"] == first["id"], "the same release by REST"
        budget = await call(client, "budget")
        assert [one["knowledge_base"] for one in budget["knowledge_bases"]] == ["toys"]


async def test_a_question_may_abstain_and_has_no_other_arguments(api: Api, url: str) -> None:
    async with connected(url, api.tokens["analyst"]) as client:
        for wrong in ({"abstain_under": 0.9}, {"temperature": 0, "no name": 1}):
            said = await refused(client, "ask", task="toys.colour", query="a toy", **wrong)
            assert min(wrong, key=len) in said or "not a name" in said
            assert "it has task, query, abstain_below. Nothing was charged" in said
        assert "it has none" in await refused(client, "tasks", limit=3)
        assert "abstain_below" in await refused(client, "ask", task="toys.colour", query="a toy", abstain_below=2)
        assert api.left() == 20
        sure = await call(client, "ask", task="toys.colour", query="a toy")
        quiet = await call(client, "ask", task="toys.colour", query="a toy", abstain_below=1)
        assert quiet["abstained"] == (sure["score"] < 1)
        assert quiet["id"] == sure["id"]


async def test_a_refusal_names_what_must_not_be_repeated(api: Api, url: str) -> None:
    async with connected(url, api.tokens["analyst"]) as client:
        unknown = await refused(client, "ask", task="toys.size", query="a toy")
        assert "toys.size" in unknown
        assert "Nothing was charged" in unknown
        assert unknown.endswith("Do not call again with this question: report it to the user.")
        for number in range(20):
            await call(client, "ask", task="toys.colour", query=f"toy {number}")
        assert "Do not call again" in await refused(client, "ask", task="toys.colour", query="one more")
        assert (await call(client, "ask", task="toys.colour", query="toy 3"))["cost"]["charged"] == 0
    async with connected(url, api.tokens["admin"]) as client:
        assert "Do not call again" in await refused(client, "ask", task="toys.colour", query="a toy")
        assert (await call(client, "tasks"))["tasks"]


@pytest.mark.parametrize(
    "query", ['"a \\ud83d b"', '{"text": "a \\uDC00"}', '{"te\\ud800xt": "a"}', '"\\ud83d \\ude00"']
)
def test_half_a_surrogate_pair_is_refused_by_its_name(api: Api, url: str, query: str) -> None:
    def ask(written: str) -> httpx2.Response:
        call = {"name": "ask", "arguments": {"task": "toys.colour", "query": "QUERY"}}
        message = json.dumps({"jsonrpc": "2.0", "id": 7, "method": "tools/call", "params": call})
        headers = {"authorization": f"Bearer {api.tokens['analyst']}", "content-type": "application/json"}
        sent = message.replace('"QUERY"', written)
        return httpx2.post(f"{url}/mcp", content=sent, headers=headers | {"accept": "application/json"})

    refused = ask(query)
    assert (refused.status_code, refused.json()["id"]) == (400, 7)
    assert "half a surrogate pair" in refused.json()["error"]["message"]
    assert api.left() == 20
    assert ask('"a whole one: \\ud83d\\ude00, and \\\\ud83d written out"').json()["result"]["isError"] is False
    assert api.left() == 19


@pytest.mark.parametrize(
    ("message", "says"),
    [
        ('{"jsonrpc": "2.0", "id": 7, "method": "ping", "method": "tools/list"}', "an object gives 'method' twice"),
        ('{"jsonrpc": "2.0", "id": NaN, "method": "ping"}', "NaN is not a number"),
        ('{"jsonrpc": "2.0", "id": 7,', "at character 28"),
        ('{"jsonrpc": "2.0", "id": 7, "method": "\xff"}', "it is not UTF-8"),
        ("[" * 2000, "it has too many levels"),
    ],
)
def test_json_that_others_read_in_another_way_is_refused(api: Api, url: str, message: str, says: str) -> None:
    headers = {"authorization": f"Bearer {api.tokens['analyst']}", "content-type": "application/json"}
    sent = message.encode("latin-1")
    refused = httpx2.post(f"{url}/mcp", content=sent, headers=headers | {"accept": "application/json"})
    assert refused.status_code == 400
    assert refused.json()["error"]["code"] == -32700
    assert says in refused.json()["error"]["message"]


async def test_a_retired_plan_is_gone(api: Api, url: str) -> None:
    api.services.records.ledger.budgets.retire("toys", 1, by="test")
    async with connected(url, api.tokens["analyst"]) as client:
        for task in ("toys.colour", "toys.colour@1"):
            said = await refused(client, "ask", task=task, query="a toy")
            assert ProblemKind.PLAN_RETIRED.title in said
            assert "plan 1 of 'toys' is retired" in said
            assert "report it to the user" in said
        assert (await call(client, "tasks"))["tasks"] == []


async def test_a_key_is_limited_as_over_rest(api: Api, url: str) -> None:
    api.make_key("slow", rate_per_minute=4)
    async with connected(url, api.tokens["slow"]) as client:
        said = [await client.call_tool("tasks", {}) for _ in range(5)]
    assert said[-1].is_error
    assert re.search(r"Call again in \d+ s\.$", said[-1].content[0].text)
    api.make_key("elsewhere", scope=["toys.colour"])
    async with connected(url, api.tokens["elsewhere"]) as client:
        assert len((await call(client, "tasks"))["tasks"]) == 1


async def test_a_failure_of_the_service_shows_no_details(
    api: Api, url: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def broken(*_: Any, **__: Any) -> None:
        raise RuntimeError("an exemplar: the secret")

    monkeypatch.setattr(type(api.services.answering), "answer", broken)
    async with connected(url, api.tokens["analyst"]) as client:
        said = await refused(client, "ask", task="toys.colour", query="my question")
    assert "secret" not in said
    assert "report it to the user" in said
    assert "secret" not in caplog.text
    assert "my question" not in caplog.text


@pytest.mark.parametrize("authorization", [None, "Bearer dpicl_wrong", "Basic x"])
def test_no_tool_is_shown_without_a_key(url: str, authorization: str | None) -> None:
    headers = {"authorization": authorization} if authorization else {}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = httpx2.post(f"{url}/mcp", json=body, headers={**headers, "accept": "application/json, text/event-stream"})
    assert (answer.status_code, "www-authenticate" in answer.headers) == (401, True)
    assert "tools" not in answer.text


@pytest.mark.parametrize("method", ["GET", "DELETE"])
def test_no_stream_stays_open(api: Api, url: str, method: str) -> None:
    """An open stream would hold a place, and keep the service from stopping, for as long as its client likes."""
    headers = {"authorization": f"Bearer {api.tokens['analyst']}", "accept": "application/json, text/event-stream"}
    assert httpx2.request(method, f"{url}/mcp", headers=headers, timeout=10).status_code == 405


@pytest.mark.parametrize("headers", [{"host": "evil.example.org"}, {"origin": "https://evil.example.org"}])
async def test_other_names_are_refused(api: Api, url: str, headers: dict[str, str]) -> None:
    """A page of another site may lead a browser to this machine under another name."""
    with pytest.raises((MCPError, ExceptionGroup, httpx2.HTTPStatusError)):
        async with connected(url, api.tokens["analyst"], **headers) as client:
            await client.list_tools()


async def test_descriptions_are_the_same_for_every_key(api: Api, url: str) -> None:
    described = []
    for role in ("admin", "analyst"):
        async with connected(url, api.tokens[role]) as client:
            described.append(json.dumps([tool.model_dump(mode="json") for tool in (await client.list_tools()).tools]))
    assert described[0] == described[1]
    assert "toys" not in described[0]
