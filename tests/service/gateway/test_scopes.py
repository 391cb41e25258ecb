"""A key that is for some tasks lists these and no others, and asks these and no others, on every face."""

import asyncio
import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from accounting.plans.plan import calibrate_plan, load_plan
from service.answering.plans.signing import sign
from service.operations.services import Services
from tests.processes import listening
from tests.sanitization.restore.made_up import published
from tests.service.conftest import PLAN, serving
from tests.service.gateway.api.test_api import Api
from tests.service.gateway.test_mcp import call, connected, refused
from tests.service.shell import Shell

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


KNOWLEDGE_BASES = {key: {task.partition(".")[0] for task in may} for key, (_scope, may) in SCOPES.items()}
TASKS = {key: may for key, (_scope, may) in SCOPES.items()}


def named(listed: Any) -> set[str]:
    return {one["name"] for one in listed["data"]}


def of_budgets(listed: Any) -> set[str]:
    return {one["knowledge_base"] for one in listed["knowledge_bases"]}


def tasks_of_budgets(listed: Any) -> set[str]:
    return {task["task"] for base in listed["knowledge_bases"] for plan in base["plans"] for task in plan["tasks"]}


def test_a_key_lists_the_knowledge_bases_of_what_it_may_ask(api: Api) -> None:
    for key, may in KNOWLEDGE_BASES.items():
        assert named(api(key, "GET", "/v1/knowledge-bases").json()) == may, key
        budgets = api(key, "GET", "/v1/budgets").json()
        assert of_budgets(budgets) == may, key
        assert tasks_of_budgets(budgets) == TASKS[key], key


async def test_an_agent_is_shown_the_budgets_of_what_it_may_ask(api: Api, url: str) -> None:
    for key, may in KNOWLEDGE_BASES.items():
        async with connected(url, api.tokens[key]) as client:
            budgets = await call(client, "budget")
            assert (of_budgets(budgets), tasks_of_budgets(budgets)) == (may, TASKS[key]), key


async def test_the_command_line_shows_the_budgets_of_what_a_key_may_ask(api: Api, url: str, dpicl: Shell) -> None:
    for key, (_scope, may) in SCOPES.items():
        arguments = ("budget", "--url", url, "--key", api.tokens[key], "--json")
        shown = json.loads(await asyncio.to_thread(dpicl.ok, *arguments))
        assert tasks_of_budgets({"knowledge_bases": shown}) == may, key


def test_a_key_lists_the_groups_of_what_it_may_ask(api: Api) -> None:
    for group, members in (("family", ["toys", "toys2"]), ("none", [])):
        api("admin", "POST", "/v1/groups", json={"name": group, "epsilon": 20, "delta": 1e-3})
        for member in members:
            assert api("admin", "PUT", f"/v1/groups/{group}/knowledge-bases/{member}").status_code == 200
    for key, may in KNOWLEDGE_BASES.items():
        listed = {one["group"]: set(one["knowledge_bases"]) for one in api(key, "GET", "/v1/groups").json()["data"]}
        assert listed == {"family": may, **({"none": set()} if key == "everything" else {})}, key


def test_a_key_lists_the_plans_and_cohorts_of_what_it_may_ask(api: Api) -> None:
    for key, (_scope, may) in SCOPES.items():
        seen = set()
        for base in ("toys", "toys2"):
            plans, cohorts = (api(key, "GET", f"/v1/knowledge-bases/{base}/{what}") for what in ("plans", "cohorts"))
            described = api(key, "GET", f"/v1/knowledge-bases/{base}")
            sees = base in KNOWLEDGE_BASES[key]
            for response in (plans, cohorts, described):
                assert response.status_code == (200 if sees else 403), (key, base)
                assert sees or response.json()["type"] == "/problems/out-of-scope"
            for plan in plans.json()["data"] if sees else ():
                assert [task.split(".")[1].split("@")[0] for task in plan["tasks"]] == list(plan["preview"]["tasks"])
                seen |= set(plan["tasks"])
        assert seen == may, key


def test_a_key_describes_what_it_lists(api: Api) -> None:
    releases = {task: api.ask("x", task, "everything").json()["id"] for task in EVERY}
    for key, (_scope, may) in SCOPES.items():
        for task in EVERY:
            for path in (f"/v1/tasks/{task}", f"/v1/models/{task}", f"/v1/releases/{releases[task]}"):
                assert api(key, "GET", path).status_code == (200 if task in may else 403), (key, path)


def test_a_key_for_some_tasks_lists_no_bundles_and_reads_no_metrics(tmp_path: Path) -> None:
    published(tmp_path / "bundles")
    api = Api(serving(tmp_path, restore_bundles=tmp_path / "bundles"))
    api.make_key("scoped", scope=["toys"])
    for key, status, listed in (("scoped", 403, []), ("analyst", 200, ["clinic@1"])):
        assert api(key, "GET", "/v1/restore/bundles").json()["items"] == listed
        for path in ("/v1/restore/bundles/clinic@1", "/metrics"):
            assert api(key, "GET", path).status_code == status
