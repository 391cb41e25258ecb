"""Topics as callers and admins meet them: over HTTP, in OpenAI's shape, and on the dashboard's pages."""

from pathlib import Path

import pytest

from service.answering.plans.preview import preview
from service.answering.plans.signing import prepare
from service.operations.budget_report import budget_report
from service.operations.services import Services
from service.records.records import Records
from tests.service.answering.topic_shop import ask, embed, opened, plan, serve
from tests.service.conftest import client_of
from tests.service.gateway.dashboard.dashboard_browser import signed_in


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return opened(tmp_path)


@pytest.fixture
def services(records: Records) -> Services:
    return serve(records)


def test_a_topic_that_is_used_up_is_named_and_others_go_on(services: Services) -> None:
    ann = client_of(services)
    url = "/v1/tasks/shop.mood/answers"
    for number in range(3):
        answer = ann.post(url, json={"query": {"text": f"kettle {number}", "product": "Kettle"}}).json()
        assert (answer["task"], answer["topic"], answer["cost"]["answers_left"]) == (
            "shop.mood@1",
            "kettle",
            2 - number,
        )
        assert ann.get(f"/v1/releases/{answer['id']}").json()["topic"] == "kettle"
    refused = ann.post(url, json={"query": {"text": "one more", "product": "kettle"}})
    assert (refused.status_code, refused.json()["type"].rpartition("/")[2]) == (402, "answers-exhausted")
    assert "'kettle'" in refused.json()["detail"]
    assert ann.post(url, json={"query": {"text": "a lamp", "product": "lamp"}}).status_code == 200
    unknown = ann.post(url, json={"query": {"text": "a radio", "product": "radio"}})
    assert unknown.status_code == 422
    assert "kettle, lamp" in unknown.json()["detail"]
    described = ann.get("/v1/tasks/shop.mood").json()
    assert (described["topics"], described["answers"], described["answers_left"]) == ({"kettle": 0, "lamp": 2}, 3, 2)
    assert described["query_fields"] == ["text", "product"]


def test_openais_shape_names_the_topic(services: Services) -> None:
    ann = client_of(services)
    asked = {"model": "shop.mood", "messages": [{"role": "user", "content": '{"text": "x", "product": "lamp"}'}]}
    answer = ann.post("/v1/chat/completions", json=asked).json()
    assert (answer["model"], answer["dp_icl"]["topic"]) == ("shop.mood@1", "lamp")
    (model,) = ann.get("/v1/models").json()["data"]
    assert (model["id"], model["dp_icl"]["topics"]) == ("shop.mood", {"kettle": 3, "lamp": 2})
    assert ann.get("/v1/models/shop.mood").json()["dp_icl"] == model["dp_icl"]


def test_budgets_and_metrics_count_by_topic_the_busiest_first(services: Services) -> None:
    ann, root = client_of(services), client_of(services, "admin", "root")
    ann.post("/v1/tasks/shop.mood/answers", json={"query": {"text": "x", "product": "lamp"}})
    (base,) = root.get("/v1/budgets").json()["knowledge_bases"]
    (signed,) = base["plans"]
    assert [(task["topic"], task["spent"], task["left"]) for task in signed["tasks"]] == [
        ("lamp", 1, 2),
        ("kettle", 0, 3),
    ]
    assert 0 < signed["epsilon_spent"] < signed["promised"]["epsilon"]
    assert 'dpicl_task_answers_left{knowledge_base="shop",task="shop.mood#lamp@1"} 2.0' in root.get("/metrics").text
    (report,) = budget_report(services.records)
    assert [task.task for task in report.plans[0].tasks] == ["shop.mood#lamp@1", "shop.mood#kettle@1"]


def test_the_preview_shows_how_each_topic_draws(records: Records) -> None:
    described = preview(prepare(records, plan(), embed)).tasks["mood"]
    assert described.gives.startswith("3 answers on each of 2 topics, 6 in all")
    assert {name: (topic.public_size, topic.sampling_probability) for name, topic in described.topics.items()} == {
        "kettle": (40, 1.0),
        "lamp": (40, 1.0),
    }


def test_the_dashboard_shows_what_is_left_on_each_topic(services: Services) -> None:
    for number in range(3):
        ask(services, f"lamp {number}", "lamp")
    admin = signed_in(services)
    overview = admin.read("/")
    assert overview.index("mood#lamp@1") < overview.index("mood#kettle@1")
    assert "other topics" in overview
    plans = admin.read("/knowledge-bases/shop/plans/1")
    assert plans.index("answers are spent") < plans.index("3 answers left")
    for tab in ("", "/usage", "/releases"):
        assert "mood" in admin.read(f"/knowledge-bases/shop{tab}")
