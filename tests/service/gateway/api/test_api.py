"""The REST surface, over the real pipeline, ledger and store."""

import asyncio
import json
import re
import sqlite3
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from unittest.mock import AsyncMock, Mock

import pytest
import sqlalchemy as sa
import yaml
from fastapi.testclient import TestClient

from accounting.plans.plan import calibrate_plan, load_plan, parse_plan
from accounting.replay.trail import verify
from service.answering.latency import Measured
from service.answering.plans.signing import sign
from service.engines.errors import UnusableReplyError
from service.gateway.api import gate
from service.operations.services import Services
from service.records.replaying import replay
from service.serving.web import create_app
from service.sources.counts import UNIT_A_ROW
from tests.service.conftest import PLAN, MajorityEngine

_JSON, _FORM = {"Content-Type": "application/json"}, {"Content-Type": "application/x-www-form-urlencoded"}
_NDJSON = {"Content-Type": "application/x-ndjson"}


class Api:
    """A client with an admin's and an analyst's key."""

    def __init__(self, services: Services):
        self.client = TestClient(create_app(services), raise_server_exceptions=True)
        self.services = services
        self.tokens = {role: services.records.keys.create(role, role)[1] for role in ("admin", "analyst")}

    def __call__(self, role: str | None, method: str, path: str, **options):
        headers = dict(options.pop("headers", {}))
        if role:
            headers["Authorization"] = f"Bearer {self.tokens[role]}"
        return self.client.request(method, path, headers=headers, **options)

    def ask(self, query: object = "a toy", task: str = "toys.colour", role: str = "analyst", **options):
        return self(role, "POST", f"/v1/tasks/{task}/answers", json={"query": query, **options})

    def left(self) -> int:
        return self("analyst", "GET", "/v1/tasks/toys.colour").json()["answers_left"]

    def make_key(self, name: str, **options) -> str:
        """Create another analyst's key, which requests may use by its name from now on; return its id."""
        made = self("admin", "POST", "/v1/keys", json={"name": name, "role": "analyst", **options})
        assert made.status_code == 201, made.text
        self.tokens[name] = made.json()["token"]
        return made.json()["id"]

    def sign(self, old: str, new: str) -> None:
        """Sign another version of the plan."""
        sign(self.services.records, calibrate_plan(load_plan(PLAN.replace(old, new)), public_size=60), "test")


def problem(response, status: int, slug: str) -> dict:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/problem+json"
    document = response.json()
    assert document["type"] == f"/problems/{slug}"
    assert document["status"] == status
    assert document["error"]["message"] == document["detail"]
    return document


def test_a_refusal_of_a_command_is_a_problem_of_its_kind(api: Api) -> None:
    toys, new = "/v1/knowledge-bases/toys", {"name": "care", "epsilon": 5, "delta": 1e-4}
    cohort = {"epsilon": 50, "delta": 1e-5, "public_size": 900}
    assert api("admin", "POST", "/v1/groups", json=new).status_code == 201
    refused = problem(api("admin", "POST", f"{toys}/cohorts", json=cohort), 422, "unconfirmed")
    assert (refused["confirm"], len(refused["problems"])) == ("weak_promise", 1)
    assert api("admin", "POST", f"{toys}/cohorts?confirm=weak_promise", json=cohort).json()["cohort"] == 2
    assert api("admin", "POST", f"{toys}/cohorts/1/close").json()["closed_at"]
    for number in (1, 2, 9):  # closed, the newest, unknown
        problem(api("admin", "POST", f"{toys}/cohorts/{number}/close"), 409, "cohort-refused")
    listed = api("analyst", "GET", f"{toys}/cohorts").json()["data"]
    assert [(one["lifetime"]["epsilon"], one["plans"], one["closed_at"] is None) for one in listed] == [
        (8, [1], False),
        (50, [], True),
    ]
    problem(api("admin", "POST", "/v1/groups", json=new), 409, "group-refused")
    problem(api("admin", "POST", "/v1/groups", json={**new, "name": "No Name"}), 422, "invalid-request")
    problem(api("admin", "PUT", "/v1/groups/car/knowledge-bases/toys"), 404, "unknown-group")
    problem(api("admin", "PUT", "/v1/groups/care/knowledge-bases/toy"), 404, "unknown-knowledge-base")
    joining = "/v1/groups/care/knowledge-bases/toys"
    assert api("admin", "PUT", joining).json()["knowledge_bases"] == ["toys"]
    problem(api("admin", "PUT", joining), 409, "group-refused")
    assert problem(api("admin", "POST", f"{toys}/archive"), 422, "unconfirmed")["confirm"] == "permanent"
    assert api("admin", "POST", f"{toys}/archive?confirm=permanent").json()["archived_at"]
    for refused in ("/archive?confirm=permanent", "/plans", "/plans?dry_run=true"):
        problem(api("admin", "POST", toys + refused, content=PLAN), 409, "knowledge-base-archived")
    assert api("admin", "DELETE", f"{toys}/units/u1").json() == {"exemplars": 1}
    problem(api("admin", "DELETE", toys), 409, "knowledge-base-not-empty")
    assert replay(api.services.records, recompute=False).problems == []
    for body in ({}, {"remote_engine": None}, {"remote_engine": True, "public_size": 7}):
        problem(api("admin", "PATCH", toys, json=body), 422, "invalid-request")


def test_an_analyst_asks_and_reads_the_release_again(api: Api) -> None:
    response = api.ask()
    assert response.status_code == 200, response.text
    answer = response.json()
    told = {"id", "task", "label", "score", "scores", "votes", "zero_shot", "created_at", "cost", "engine"}
    assert set(answer) == told, "public values only"
    assert (answer["task"], answer["cost"]) == ("toys.colour@1", {"charged": 1, "answers_left": 19})
    assert {answer["label"], answer["zero_shot"]} <= set(answer["scores"]) == {"red", "blue"}
    assert sum(answer["scores"].values()) == pytest.approx(1, abs=2e-4)
    assert answer["score"] == max(answer["scores"].values()) == answer["scores"][answer["label"]]
    assert set(answer["votes"]) == {"red", "blue"}
    assert response.headers["x-should-retry"] == "false"
    again = api.ask({"text": "a toy"}, "toys.colour@1").json()
    assert again["cost"] == {"charged": 0, "answers_left": 19}
    for role in ("analyst", "admin"):
        release = api(role, "GET", f"/v1/releases/{answer['id']}").json()
        assert release == {k: v for k, v in answer.items() if k not in ("cost", "engine")}


def test_an_abstention_is_a_way_to_show_an_answer(api: Api) -> None:
    """An abstention is charged like any other answer. With another threshold, the same release is shown for free."""
    api.sign("    answers: 20", "    answers: 20\n    abstain_below: 1")  # nothing is certain under this noise
    assert api("analyst", "GET", "/v1/tasks/toys.colour").json()["abstain_below"] == 1
    silent = api.ask(task="toys.colour@2").json()
    assert (silent["abstained"], silent["cost"]["charged"]) == (True, 1)
    assert "label" not in silent
    told = api.ask(task="toys.colour@2", abstain_below=silent["score"]).json()
    assert (told["abstained"], told["cost"]["charged"], told["id"]) == (False, 0, silent["id"])
    assert told["score"] == silent["score"] == told["scores"][told["label"]]


def test_the_score_is_a_probability_where_the_plan_was_fitted(api: Api) -> None:
    """The plan decides it for every answer; the number and the threshold do not change."""
    api.sign("vote: hard", "vote: hard, calibration: {fitted_to: 300}")
    assert "fitted_to" not in api("analyst", "GET", "/v1/tasks/toys.colour@1").json()
    assert api("analyst", "GET", "/v1/tasks/toys.colour").json()["fitted_to"] == 300
    answer = api.ask(task="toys.colour@2").json()
    assert not {"score", "scores"} & answer.keys()
    assert answer["probability"] == max(answer["probabilities"].values()) == answer["probabilities"][answer["label"]]
    assert api.ask(task="toys.colour@2", abstain_below=1).json()["abstained"] is (answer["probability"] < 1)
    body = {"model": "toys.colour@2", "messages": [{"role": "user", "content": "a toy"}], "abstain_below": 1}
    (choice,) = api("analyst", "POST", "/v1/chat/completions", json=body).json()["choices"]
    assert "a probability of" in choice["message"]["refusal"]


def test_a_threshold_for_an_answer_without_a_score_is_refused(api: Api) -> None:
    api.sign("vote: hard", "vote: hard, decide: argmax")
    problem(api.ask(task="toys.colour@2", abstain_below=0.5), 422, "invalid-query")
    answer = api.ask(task="toys.colour@2").json()
    assert set(answer) == {"id", "task", "label", "votes", "zero_shot", "created_at", "cost", "engine"}


def test_a_task_describes_itself(api: Api) -> None:
    task = api("analyst", "GET", "/v1/tasks/toys.colour").json()
    assert task == {
        "task": "toys.colour@1",
        "kind": "classify",
        "mechanism": "rnm_gaussian",
        "labels": ["red", "blue"],
        "query_fields": ["text"],
        "answers": 20,
        "answers_left": 20,
    }


def test_a_service_whose_witness_is_lost_is_not_ready(api: Api, tmp_path: Path) -> None:
    """Every new question would be refused."""
    asyncio.run(api.services.heartbeat.beat())
    assert api(None, "GET", "/readyz").status_code == 200
    with closing(sqlite3.connect(tmp_path / "service.witness.sqlite")) as witness:
        witness.execute("DROP TABLE witnessed_events")
    problem(api.ask(), 503, "witness-unavailable")
    problem(api(None, "GET", "/readyz"), 503, "witness-unavailable")


def test_exhausted_is_402_and_names_the_task(api: Api) -> None:
    for i in range(20):
        api.ask(f"toy {i}")
    response = api.ask("one more")
    document = problem(response, 402, "answers-exhausted")
    assert "'colour'" in document["detail"]
    assert document["error"]["type"] == "insufficient_quota"
    assert response.headers["x-should-retry"] == "false"


def test_engine_down_is_503_and_free(api: Api, toy_engine: MajorityEngine) -> None:
    toy_engine.down = True
    response = api.ask()
    problem(response, 503, "engine-unavailable")
    assert response.headers["retry-after"] == "5"
    beat = api.services.heartbeat.beat
    asyncio.run(beat())
    problem(api(None, "GET", "/readyz"), 503, "engine-unavailable")
    toy_engine.down = False
    asyncio.run(beat())
    assert api(None, "GET", "/readyz").json() == {"status": "ok"}
    for path in ("/readyz", "/healthz", "/version"):
        assert api(None, "HEAD", path).status_code == 200
    assert api(None, "HEAD", "/v1/tasks").status_code == 405
    assert api.left() == 20


def test_a_language_model_without_answers_is_503_and_free_and_names_what_to_change(
    api: Api, toy_engine: MajorityEngine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(toy_engine, "zero_shot", AsyncMock(side_effect=UnusableReplyError("it thinks: change this")))
    response = api.ask()
    assert problem(response, 503, "unusable-reply")["detail"] == "it thinks: change this; nothing was charged"
    assert response.headers["x-should-retry"] == "false"  # it would reply the same
    assert api.left() == 20
    trail = api("admin", "GET", "/v1/audit?kind=void").json()["data"]
    assert [event["body"]["reason"] for event in trail] == ["unusable-reply"]
    asyncio.run(api.services.heartbeat.beat())
    api.services.grains.report = [Measured("toys.colour@1", 0.0, "toys.colour@1: change this", unusable=True)]
    assert "change this" in problem(api(None, "GET", "/readyz"), 503, "unusable-reply")["detail"]


def test_lists_come_in_pages(api: Api) -> None:
    """Every list has the same three members and takes the same two parameters."""
    for i in range(4):
        api.make_key(f"key {i}")
        kb = {"name": f"kb{i}", "epsilon": 1, "delta": 1e-5, "public_size": 900}
        api("admin", "POST", "/v1/knowledge-bases", json=kb)
        api.ask(f"toy {i}")
    lists = {"/v1/keys?": "id", "/v1/knowledge-bases?": "name", "/v1/releases?task=toys.colour&": "id"}
    for path, name in lists.items():
        whole = api("admin", "GET", path).json()
        assert (whole["has_more"], whole["next"]) == (False, None)
        seen, following = [], f"{path}limit=3"
        while following:
            page = api("admin", "GET", following).json()
            assert 0 < len(page["data"]) <= 3
            assert page["has_more"] is (page["next"] is not None)
            seen, following = seen + [entry[name] for entry in page["data"]], page["next"]
        assert seen == [entry[name] for entry in whole["data"]]
        assert len(set(seen)) == len(seen) >= 4
        problem(api("admin", "GET", f"{path}after=nothing"), 422, "unknown-cursor")
        for bad in ("limit=0", "limit=201", "limit=x", "after="):
            problem(api("admin", "GET", path + bad), 422, "invalid-request")


def test_releases_are_listed_newest_first_by_task_and_knowledge_base(api: Api) -> None:
    asked = [api.ask(f"toy {i}").json()["id"] for i in range(2)]
    for wanted, listed in [
        ("", asked[::-1]),
        ("task=toys.colour@1", asked[::-1]),
        ("task=toys.colour@2", []),
        ("knowledge_base=other", []),
    ]:
        assert [one["id"] for one in api("admin", "GET", f"/v1/releases?{wanted}").json()["data"]] == listed
    problem(api("admin", "GET", "/v1/releases?task=colour"), 422, "invalid-request")


def test_a_key_may_be_for_some_tasks_only(api: Api) -> None:
    api.sign("colour:", "shade:")
    other = {"name": "other", "epsilon": 1, "delta": 1e-5, "public_size": 600}
    assert api("admin", "POST", "/v1/knowledge-bases", json=other).status_code == 201
    api.make_key("bo", scope=["toys.shade", "other"])
    chat = {"model": "toys.colour", "messages": [{"role": "user", "content": "x"}]}
    preview = {"query": "x", "exemplars": [{"text": "a", "label": "red"}]}
    before = api("admin", "GET", "/v1/budgets").json()
    for refused in (
        api.ask(role="bo"),
        api.ask(task="toys.colour@1", role="bo"),
        api("bo", "POST", "/v1/tasks/toys.colour/preview", json=preview),
        api("bo", "POST", "/v1/chat/completions", json=chat),
    ):
        problem(refused, 403, "out-of-scope")
    assert {model["id"] for model in api("bo", "GET", "/v1/models").json()["data"]} <= {"toys.shade", "toys.shade@2"}
    assert api("admin", "GET", "/v1/budgets").json() == before
    api.make_key("wide", scope=["toys"])
    assert api.ask(role="wide").status_code == 200
    assert "toys.colour" in {model["id"] for model in api("wide", "GET", "/v1/models").json()["data"]}


def test_a_key_that_is_rotated_or_revoked_is_refused(api: Api) -> None:
    address = f"/v1/keys/{api.make_key('temp', expires_in_days=30)}"
    first = api.tokens["temp"]
    rotated = api("admin", "POST", f"{address}/rotate", json={"overlap_hours": 1}).json()
    for api.tokens["temp"] in (first, rotated["token"]):
        assert api("temp", "GET", "/v1/budgets").status_code == 200
    again = api("admin", "POST", f"{address}/rotate", json={}).json()
    refused = problem(api("temp", "GET", "/v1/budgets"), 401, "invalid-key")
    assert refused["detail"] == "this API key is unknown, was revoked or has expired; ask an admin for another"
    api.tokens["temp"] = again["token"]
    assert "token" not in json.dumps(api("admin", "GET", "/v1/keys").json())
    assert api("admin", "DELETE", address).status_code == 204
    problem(api("temp", "GET", "/v1/budgets"), 401, "invalid-key")
    problem(api("admin", "PATCH", address, json={"quota": 1, "rate_per_minute": None}), 404, "unknown-key")
    problem(api("admin", "POST", f"{address}/rotate", json={"overlap_hours": -1}), 422, "invalid-request")
    for method, path in (("DELETE", "/v1/keys/nobody"), ("POST", "/v1/keys/nobody/rotate")):
        problem(api("admin", method, path, json={}), 404, "unknown-key")


def test_an_admin_creates_fills_plans_and_an_analyst_asks(api: Api) -> None:
    body = {"name": "animals", "epsilon": 2, "delta": 1e-4, "public_size": 20}
    refused = problem(api("admin", "POST", "/v1/knowledge-bases", json=body), 422, "unconfirmed")
    assert (refused["confirm"], len(refused["problems"])) == ("weak_promise", 1)
    small = "/v1/knowledge-bases?confirm=weak_promise"
    assert api("admin", "POST", small, json=body).status_code == 201
    problem(api("admin", "POST", small, json=body), 409, "knowledge-base-exists")
    exemplars = "/v1/knowledge-bases/animals/exemplars"
    lines = "".join(json.dumps({"unit_id": i, "text": f"t{i}", "label": "red", "id": i}) + "\n" for i in range(20))
    uploaded = api("admin", "POST", exemplars, content=lines, headers=_NDJSON).json()
    notice, values = uploaded.pop("notice"), uploaded.pop("values")
    assert uploaded.pop("incomplete") == {}
    assert uploaded == {
        **{"exemplars": 20, "units": 20, "already_there": 0, "replaced": 0, "returned": 0, "ignored_fields": ["id"]},
        **{"skipped_units": 0, "skipped_rows": 0},
        "rows": 20,
    }
    assert notice == UNIT_A_ROW
    assert sum(values["label"].values()) == 20
    csv, csv_headers = "owner,text,label\nzoe,cat,blue\nzoe,dog,blue\n", {"Content-Type": "text/csv; charset=utf-8"}
    further = api("admin", "POST", f"{exemplars}?unit_id=owner", content=csv, headers=csv_headers).json()
    assert (further["exemplars"], further["units"], further["notice"]) == (2, 1, None)

    plan = PLAN.replace("toys", "animals").replace("epsilon: 4", "epsilon: 1.5")
    plans = "/v1/knowledge-bases/animals/plans"
    refused = problem(api("admin", "POST", plans, content=plan.replace("20", "many")), 422, "invalid-plan")
    assert [found.partition(": ")[0] for found in refused["problems"]] == ["tasks.colour.answers"]
    preview = api("admin", "POST", f"{plans}?dry_run=true", content=plan)
    assert (preview.status_code, preview.json()["signed"]) == (200, None)
    assert len(preview.json()["alternatives"]["colour"]) == 6
    refused = problem(api("admin", "POST", plans, json=yaml.safe_load(plan)), 422, "unconfirmed")
    assert refused["confirm"] == "worse_than_free"
    assert api("analyst", "GET", plans).json()["data"] == []
    plans += "?confirm=worse_than_free"
    signed = api("admin", "POST", plans, json=yaml.safe_load(plan))
    assert (signed.status_code, signed.json()["signed"]["tasks"]) == (201, ["animals.colour@1"])
    assert api("analyst", "GET", plans).json()["data"][0]["digest"] == signed.json()["signed"]["digest"]
    assert problem(api("admin", "POST", plans, content=plan), 409, "plan-signed-already")["again"] == 1
    document = problem(api("admin", "POST", plans + "&again=1", content=plan), 402, "budget-exceeded")
    assert "exceeds" not in preview.json()
    again = api("admin", "POST", plans + "&dry_run=true", content=plan).json()
    assert again["exceeds"] == document["detail"].rstrip(".")

    assert api.ask("fox", "animals.colour").status_code == 200
    budgets = {b["knowledge_base"]: b for b in api("analyst", "GET", "/v1/budgets").json()["knowledge_bases"]}
    assert (budgets["animals"]["promised"]["epsilon"], budgets["animals"]["free"]["epsilon"]) == (1.5, 0.5)


def test_a_refused_upload_explains_why(api: Api) -> None:
    def refused(body: str | bytes, media_type: str, status: int, kind: str, name: str = "toys") -> dict:
        path = f"/v1/knowledge-bases/{name}/exemplars"
        return problem(api("admin", "POST", path, content=body, headers={"Content-Type": media_type}), status, kind)

    row = '{"unit_id": "new", "text": "t%d", "label": "red"}\n'
    bad = refused(row % 1 + '{"unit_id": "new", "text": ""}', "application/x-ndjson", 422, "bad-row")
    assert bad["detail"].startswith("row 2, field 'text'")
    refused("".join(row % i for i in range(1001)), "application/x-ndjson", 422, "unit-too-large")
    refused("x", "application/pdf", 415, "unsupported-media-type")
    refused("", "text/csv", 404, "unknown-knowledge-base", "no")
    table = "unit_id;text;label\nnew;ein Bär;red\n"
    for media_type in ("text/csv", "application/octet-stream"):
        late = refused(table.encode("cp1252"), media_type, 422, "bad-row")["detail"]
        assert late.startswith("row 2: is not UTF-8 at byte 10")
        assert "text/csv; charset=windows-1252" in late
    for charset in ("klingon", "base64"):
        assert charset in refused(table, f"text/csv; charset={charset}", 415, "unsupported-media-type")["detail"]
    refused(table.encode("utf-8-sig"), "text/csv; charset=windows-1252", 415, "unsupported-media-type")
    refused(table.encode("utf-16-le"), "text/csv", 415, "unsupported-media-type")
    refused(b"\x1f\x8b", "text/csv", 415, "unsupported-media-type")
    refused(row % 1, "application/x-ndjson; charset=latin-1", 415, "unsupported-media-type")
    refused(table.encode("cp1252"), "text/csv; charset=ascii", 422, "bad-row")
    for encoding, charset in (("cp1252", "windows-1252"), ("utf-8", "UTF-8"), ("utf-16", ""), ("euc-kr", "EUC-KR")):
        body = table.replace("ein Bär", "곰" if charset == "EUC-KR" else "ein Bär").encode(encoding)
        named = {"Content-Type": f'text/csv; header=present; charset="{charset}"' if charset else "text/csv"}
        uploaded = api("admin", "POST", "/v1/knowledge-bases/toys/exemplars", content=body, headers=named).json()
        assert uploaded["exemplars"] == (encoding in ("cp1252", "euc-kr")), "the others are there already"
    assert api("admin", "DELETE", "/v1/knowledge-bases/toys/units/new").json() == {"exemplars": 2}
    problem(api("admin", "DELETE", "/v1/knowledge-bases/toys/units/new"), 404, "unknown-unit")
    problem(api("admin", "DELETE", "/v1/knowledge-bases/toys/units/%E2%80%8B"), 422, "invalid-request")
    assert api("admin", "DELETE", "/v1/knowledge-bases/toys/units/u3%E2%80%8B").json() == {"exemplars": 1}


def test_forgotten_units_are_left_out_if_asked(api: Api) -> None:
    toys = "/v1/knowledge-bases/toys"
    rows = "".join(json.dumps({"unit_id": unit, "text": "a", "label": "b"}) + "\n" for unit in ("u3", "new"))
    api("admin", "DELETE", f"{toys}/units/u3")
    path = f"{toys}/exemplars?skip_forgotten=true"
    done = api("admin", "POST", path, content=rows, headers={"Content-Type": "application/x-ndjson"}).json()
    assert [done[name] for name in ("exemplars", "returned", "skipped_units", "skipped_rows")] == [1, 0, 1, 1]
    problem(api("admin", "DELETE", f"{toys}/units/u3"), 404, "unknown-unit")


@pytest.mark.parametrize(
    ("error", "status", "kind"),
    [
        (RuntimeError("secret text of an exemplar"), 500, "internal-error"),
        (sa.exc.OperationalError("SELECT secret", {}, OSError("secret")), 503, "database-unavailable"),
        (sa.exc.InternalError("SELECT secret", {}, OSError("secret")), 503, "database-unavailable"),  # of a standby
    ],
    ids=["bug", "gone", "standby"],
)
def test_a_failure_reveals_nothing(api: Api, error: Exception, status: int, kind: str, monkeypatch, capsys) -> None:
    monkeypatch.setattr(api.services.records.ledger.budgets, "statuses", Mock(side_effect=error))
    response = api("analyst", "GET", "/v1/budgets")
    assert "secret" not in json.dumps(problem(response, status, kind))
    assert response.headers["x-should-retry"] == "false"
    assert "secret" not in capsys.readouterr().out


def test_large_bodies_are_refused_before_they_are_read(api: Api) -> None:
    def endless():
        for _ in range(100):
            sent.append(1)
            yield b"x" * 65536

    sent: list[int] = []
    response = api(None, "POST", "/v1/tasks/toys.colour/answers", content=endless())
    problem(response, 413, "body-too-large")


def test_only_routes_of_plans_and_uploads_take_large_bodies(api: Api) -> None:
    large = b"#" * (gate.MAX_BODY_BYTES + 1)
    problem(api("admin", "POST", "/v1/knowledge-bases/toys/plans", content=large), 422, "invalid-plan")
    rows = b'{"unit_id": "u9", "text": "t", "label": "red"}\n' + b"\n" * len(large)
    exemplars = "/v1/knowledge-bases/toys/exemplars"
    assert api("admin", "POST", exemplars, content=rows, headers=_NDJSON).json()["exemplars"] == 1
    form = {**_FORM, "Origin": "http://testserver"}
    upload = "/admin/knowledge-bases/toys/exemplars"
    assert api(None, "POST", upload, content=large, headers=form, follow_redirects=False).status_code == 303
    for elsewhere in ("/v1/tasks/x/plans", "/exemplars", "/admin/exemplars"):
        problem(api("admin", "POST", elsewhere, content=large), 413, "body-too-large")
    for method, path in (("PUT", exemplars), ("PUT", upload), ("GET", "/v1/knowledge-bases/toys/plans")):
        problem(api("admin", method, path, content=large), 413, "body-too-large")


def test_floods_of_headers_are_refused(api: Api) -> None:
    for flood in ({f"x-{n}": "y" * 100 for n in range(1000)}, {"x-huge": "y" * 65536}):
        problem(api("analyst", "GET", "/v1/budgets", headers=flood), 431, "headers-too-large")


def test_bodies_that_do_not_come_are_given_up(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gate, "BODY_WITHIN_S", 0.05)
    pieces = [{"type": "http.request", "body": b'{"query": ', "more_body": True}]
    sent = []

    async def receive():
        if not pieces:
            await asyncio.sleep(60)
        return pieces.pop()

    async def send(message):
        sent.append(message)

    path = "/v1/tasks/toys.colour/answers"
    scope = {"type": "http", "method": "POST", "path": path, "query_string": b"", "headers": []}
    asyncio.run(create_app(services)(scope, receive, send))
    assert sent[0]["status"] == 408
    assert json.loads(sent[1]["body"])["type"] == "/problems/body-too-slow"


def test_nul_in_an_address_is_refused(api: Api) -> None:
    for path in ("/v1/tasks/toys%00.colour", "/v1/releases/%00", "/v1/knowledge-bases/a%00", "/v1/keys?after=%00"):
        problem(api("analyst", "GET", path), 400, "bad-address")


def test_a_parameter_that_takes_one_value_is_given_once(api: Api) -> None:
    """The framework would take the last, and an admin would read the wrong page or knowledge base without noticing."""
    for path in ("/v1/keys?limit=1&limit=2", "/v1/audit?kind=key&knowledge_base=a&knowledge_base=b"):
        refused = problem(api("admin", "GET", path), 422, "invalid-request")
        assert "2 times" in refused["detail"]
    assert api("admin", "GET", "/v1/audit?kind=key&kind=plan&unknown=1&unknown=2").is_success


def test_every_response_names_its_request_once(api: Api) -> None:
    taken_over, others = ("9f8e-Ab", "x" * 64), ("x" * 65, "a b", "a\\nlevel=error", "")
    for given in (*taken_over, *others):
        for path in ("/healthz", "/v1/budgets", "/nowhere", "/healthz?a=%00"):
            response = api(None, "GET", path, headers={"x-request-id": given})
            (name,) = response.headers.get_list("x-request-id")
            assert name == given if given in taken_over else re.fullmatch("[0-9a-f]{32}", name)


def test_a_task_shows_how_long_its_answers_take_once_that_was_measured(api: Api) -> None:
    def latency(*measured: Measured) -> dict | None:
        api.services.grains.report = measured
        return api("analyst", "GET", "/v1/tasks/toys.colour").json().get("latency")

    measured = Measured("toys.colour@1", 24.0, work_s=12.0, typical_s=9.5, cold="raise it")
    told = {"typical_s": 9.5, "largest_s": 12.0, "grain_s": 24.0, "kept_blocks": 0, "cold": "raise it"}
    assert latency() is latency(replace(measured, problem="it could not be measured")) is None
    assert latency(measured) == told
    kept = replace(measured, typical_s=0.0, cold="", blocks=7)
    assert latency(kept) == told | {"typical_s": None, "kept_blocks": 7, "cold": None}


def test_shutting_down_waits_for_paid_answers(services: Services) -> None:
    drained = []

    async def drain() -> None:
        drained.append(True)

    services.answering.drain = drain  # type: ignore[method-assign]
    with TestClient(create_app(services)):
        assert drained == []
    assert drained == [True]


def test_an_invalid_question_costs_nothing(api: Api) -> None:
    for body, headers, kind, said in (
        (b'{"query": ', _JSON, "invalid-request", "at character 11"),
        (b'["a toy"]', _JSON, "invalid-request", "JSON object"),
        (b"query=a+toy", _FORM, "invalid-request", "Content-Type"),
        (b"", _JSON, "invalid-request", "JSON object"),
        (b"{}", _JSON, "invalid-request", "query"),
        (b'{"query": 3}', _JSON, "invalid-request", "query"),
        (b'{"query": ""}', _JSON, "invalid-query", "text"),
        (b'{"query": {"title": "x"}}', _JSON, "invalid-query", "text"),
        (b'{"query": "x", "seed": 1}', _JSON, "invalid-request", "seed"),
        (b'{"query": "x", "abstain_below": 1.01}', _JSON, "invalid-request", "abstain_below"),
        (b'{"query": "x", "abstain_below": "0.5"}', _JSON, "invalid-request", "abstain_below"),
        (b'{"query": "x"}', {**_JSON, "Idempotency-Key": ""}, "invalid-request", "idempotency-key"),
        (b'{"query": "\xff"}', _JSON, "unreadable-body", "body"),
    ):
        answer = api("analyst", "POST", "/v1/tasks/toys.colour/answers", content=body, headers=headers)
        assert said in problem(answer, 400 if kind == "unreadable-body" else 422, kind)["detail"]
    assert api.left() == 20


def test_an_unknown_knowledge_base_is_distinguished_from_an_unknown_task(api: Api) -> None:
    assert "'toys'?" in problem(api.ask(task="toy.colour"), 404, "unknown-knowledge-base")["detail"]
    assert "?" not in problem(api.ask(task="elsewhere.colour"), 404, "unknown-knowledge-base")["detail"]
    assert "toys.colour@1" in problem(api.ask(task="toys.color"), 404, "unknown-task")["detail"]


def test_unknown_paths_are_problems_too(api: Api) -> None:
    problem(api("admin", "GET", "/v2/anything"), 404, "not-found")
    for path, allowed in (("/v1/keys", "GET, POST"), ("/v1/knowledge-bases/toys", "DELETE, GET, PATCH")):
        refused = api("admin", "PUT", path)
        problem(refused, 405, "method-not-allowed")
        assert refused.headers["allow"] == allowed


def test_the_plans_of_the_openapi_document_are_plans(api: Api) -> None:
    body = api(None, "GET", "/openapi.json").json()["paths"]["/v1/knowledge-bases/{knowledge_base}/plans"]["post"]
    examples = body["requestBody"]["content"]["application/json"]["examples"]
    assert {parse_plan(example["value"]).knowledge_base for example in examples.values()} == {"support"}


def test_a_quota_is_below_the_budget_and_shown_in_headers(api: Api) -> None:
    key = api.make_key("few", quota=1, rate_per_minute=100)
    first = api.ask(role="few")
    assert first.status_code == 200, first.text
    assert first.headers["ratelimit-policy"] == '"answers";q=1, "requests";q=100;w=60'
    assert first.headers["ratelimit"] == '"answers";r=1, "requests";r=99;t=1'
    assert api.ask(role="few").json()["id"] == first.json()["id"]
    refused = api.ask("another toy", role="few")
    problem(refused, 402, "quota-exhausted")
    assert refused.headers["x-should-retry"] == "false"
    assert refused.headers["ratelimit"].startswith('"answers";r=0')
    limits = {"quota": 2, "rate_per_minute": 100}
    assert api("admin", "PATCH", f"/v1/keys/{key}", json=limits).json()["charged"] == 1
    assert api.ask("another toy", role="few").status_code == 200
    for change, quota, rate in (({"rate_per_minute": 9}, 2, 9), ({"quota": None}, None, 9), ({"quota": 3}, 3, 9)):
        changed = api("admin", "PATCH", f"/v1/keys/{key}", json=change).json()
        assert (changed["quota"], changed["rate_per_minute"]) == (quota, rate), "what is left out stays"
    problem(api("admin", "PATCH", f"/v1/keys/{key}", json={}), 422, "invalid-request")
    api("admin", "PATCH", f"/v1/keys/{key}", json={"quota": None, "rate_per_minute": 1})
    api.ask("another toy", role="few")  # the one request of this minute, unless earlier ones used it up
    slow = api.ask("another toy", role="few")
    problem(slow, 429, "rate-limited")
    assert 0 < int(slow.headers["retry-after"]) <= 60


def test_a_voided_question_counts_for_the_rate_of_its_key(api: Api, toy_engine: MajorityEngine) -> None:
    api.make_key("few", rate_per_minute=2)
    toy_engine.down = True
    assert [api.ask(f"toy {i}", role="few").status_code for i in range(3)] == [503, 503, 429]
    assert api.left() == 20


@pytest.mark.slow
def test_the_audit_trail_is_read_by_pages_and_exported_whole(api: Api) -> None:
    asked = api.ask().json()
    address, kinds = "/v1/audit?limit=2", []
    while address:
        page = api("admin", "GET", address).json()
        kinds += [event["kind"] for event in page["data"]]
        address = page["next"]
    assert kinds[-2:] == ["charge", "release"]
    exported = api("admin", "GET", "/v1/audit/export")
    assert exported.headers["content-type"].startswith("application/x-ndjson")
    report = verify(exported.text.splitlines())
    assert (report.problems, report.events) == ([], len(kinds))
    (release,) = api("admin", "GET", "/v1/audit?kind=release&kind=void&knowledge_base=toys").json()["data"]
    assert release["body"]["release"] == asked["id"]
    assert asked["label"] not in release["body"].values()
    problem(api("admin", "GET", "/v1/audit?after=x"), 422, "unknown-cursor")


def test_acts_of_admins_are_in_the_trail_without_private_data(api: Api) -> None:
    toys = "/v1/knowledge-bases/toys"
    row = json.dumps({"unit_id": "canary-unit", "text": "canary-text", "label": "red"})
    for method, path, options in (
        ("POST", f"{toys}/exemplars", {"content": row, "headers": _NDJSON}),
        ("DELETE", f"{toys}/units/canary-unit", {}),
        ("PATCH", toys, {"json": {"remote_engine": True}}),
    ):
        assert api("admin", method, path, **options).is_success
    done = api("admin", "GET", "/v1/audit?knowledge_base=toys&limit=200")
    kinds = ["exemplars.ingested", "upload.ended", "unit.forgotten", "remote_engine.changed"]
    last = done.json()["data"][-4:]
    assert [event["kind"] for event in last] == kinds
    (me,) = [key.id for key in api.services.records.keys.list() if key.role == "admin"]
    assert {event["body"]["by"] for event in last} == {me}
    assert "canary" not in done.text
