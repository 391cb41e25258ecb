"""A key that is for some tasks lists these and no others, and asks these and no others, on every face."""

from collections.abc import Callable, Iterator
from typing import Any

import pytest

from accounting.plans.plan import calibrate_plan, load_plan
from service.answering.plans.signing import sign
from service.operations.services import Services
from tests.processes import listening
from tests.service.conftest import PLAN
from tests.service.gateway.api.test_api import Api
from tests.service.gateway.test_mcp import call, connected, refused

# The names of one begin with those of others.
SCOPES = {
    "a task": (["toys.colour2"], {"toys.colour2@2"}),
    "a knowledge base": (["toys2"], {"toys2.colour@1"}),
    "another": (["toys"], {"toys.colour@1", "toys.colour2@2"}),
    "two": (["toys2", "toys.colour"], {"toys2.colour@1", "toys.colour@1"}),
    "everything": ([], {"toys2.colour@1", "toys.colour@1", "toys.colour2@2"}),
}
EVERY = SCOPES["everything"][1]


@pytest.fixture
def api(services: Services) -> Api:
    """Of two knowledge bases one has a plan, and the other two."""
    records, api = services.records, Api(services)
    api.sign("colour:", "colour2:")
    new = {"epsilon": 8, "delta": 2e-4, "public_size": 60, "fields": ["text", "label"], "embedded_field": "text"}
    records.create_knowledge_base("toys2", **new)
    sign(records, calibrate_plan(load_plan(PLAN.replace("toys", "toys2")), public_size=60), "test")
    for name, (scope, _may) in SCOPES.items():
        api.make_key(name, scope=scope)
    return api


@pytest.fixture
def url(api: Api) -> Iterator[str]:
    with listening(api.client.app) as url:
        yield url


async def by_rest(api: Api, key: str, _url: str) -> set[str]:
    return {task["task"] for task in api(key, "GET", "/v1/tasks").json()["tasks"]}


async def as_models(api: Api, key: str, _url: str) -> set[str]:
    return {model["dp_icl"]["task"] for model in api(key, "GET", "/v1/models").json()["data"]}


async def by_mcp(api: Api, key: str, url: str) -> set[str]:
    async with connected(url, api.tokens[key]) as client:
        return {task["task"] for task in (await call(client, "tasks"))["tasks"]}


@pytest.mark.parametrize("lists", [by_rest, as_models, by_mcp])
async def test_a_key_lists_what_it_may_ask(api: Api, url: str, lists: Callable[..., Any]) -> None:
    assert {key: await lists(api, key, url) for key in SCOPES} == {key: may for key, (_scope, may) in SCOPES.items()}


WAYS: dict[str, Callable[[str], tuple[str, dict[str, Any]]]] = {
    "an answer": lambda task: (f"/v1/tasks/{task}/answers", {"query": "x"}),
    "a trial": lambda task: (
        f"/v1/tasks/{task}/preview",
        {"query": "x", "exemplars": [{"text": "a", "label": "red"}]},
    ),
    "a chat": lambda task: ("/v1/chat/completions", {"model": task, "messages": [{"role": "user", "content": "x"}]}),
    "a stream": lambda task: (
        "/v1/chat/completions",
        {"model": task, "messages": [{"role": "user", "content": "x"}], "stream": True},
    ),
    "a response": lambda task: ("/v1/responses", {"model": task, "input": "x"}),
}


@pytest.mark.parametrize("way", WAYS)
def test_a_key_asks_what_it_lists(api: Api, way: str) -> None:
    for key, (_scope, may) in SCOPES.items():
        for task in EVERY:
            for address in (task, task.partition("@")[0]):
                path, body = WAYS[way](address)
                response = api(key, "POST", path, json=body)
                assert (response.status_code == 200) is (task in may), (key, address, response.text)
                assert response.status_code in (200, 403)
    charged = {
        task.address: task.charged for status in api.services.records.ledger.budgets.statuses() for task in status.tasks
    }
    assert charged == dict.fromkeys(EVERY, 0 if way == "a trial" else 1)  # the same question is charged once


async def test_an_agent_asks_what_it_lists(api: Api, url: str) -> None:
    for key, (_scope, may) in SCOPES.items():
        async with connected(url, api.tokens[key]) as client:
            for task in sorted(EVERY):
                if task in may:
                    await call(client, "ask", task=task, query="x")
                else:
                    assert "Nothing was charged" in await refused(client, "ask", task=task, query="x")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/sanitize", {"texts": ["x"]}),
        ("/v1/restore/answers", {"bundle": "none@1", "bundle_sha256": "0" * 64, "query": "x", "profile": 0}),
    ],
)
def test_a_key_for_some_tasks_sanitises_and_restores_nothing(api: Api, path: str, body: dict[str, Any]) -> None:
    statuses = {key: api(key, "POST", path, json=body).status_code for key in SCOPES}
    assert {key for key, status in statuses.items() if status == 403} == SCOPES.keys() - {"everything"}
