"""``Idempotency-Key``: the POSTs that take it, and that each makes its change only once."""

import json
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import Any

import pytest
from fastapi.routing import APIRoute

from exemplar_store.encryption import unseal
from service.gateway.api.once import OnceRoute
from service.operations.services import Services
from service.serving.web import create_app
from tests.service.conftest import PLAN
from tests.service.gateway.api.test_api import Api, problem

_KB = "/v1/knowledge-bases"
_COHORT = {"epsilon": 2, "delta": 1e-5, "public_size": 900}
_ROW = b'{"unit_id": "new", "text": "a new toy", "label": "red"}\n'
_SMALL = PLAN.replace("epsilon: 4", "epsilon: 1").replace("1.0e-4", "1.0e-5")
_SIGN = f"{_KB}/toys/plans?confirm=worse_than_free"

CHANGING: dict[str, tuple[str, dict[str, Any], dict[str, Any]]] = {
    _KB: (
        _KB,
        {"json": {"name": "care", "epsilon": 5, "delta": 1e-4, "public_size": 900}},
        {"json": {"name": "cars", "epsilon": 5, "delta": 1e-4, "public_size": 900}},
    ),
    f"{_KB}/{{knowledge_base}}/archive": (f"{_KB}/toys/archive?confirm=permanent", {}, {"json": {}}),
    f"{_KB}/{{knowledge_base}}/exemplars": (
        f"{_KB}/toys/exemplars",
        {"content": _ROW, "headers": {"Content-Type": "application/x-ndjson"}},
        {"content": _ROW.replace(b"new", b"old"), "headers": {"Content-Type": "application/x-ndjson"}},
    ),
    f"{_KB}/{{knowledge_base}}/plans": (_SIGN, {"content": _SMALL}, {"content": _SMALL + "\n"}),
    f"{_KB}/{{knowledge_base}}/cohorts": (f"{_KB}/toys/cohorts", {"json": _COHORT}, {"json": _COHORT | {"epsilon": 1}}),
    f"{_KB}/{{knowledge_base}}/cohorts/{{cohort}}/close": (f"{_KB}/toys/cohorts/1/close", {}, {"json": {}}),
    f"{_KB}/{{knowledge_base}}/plans/{{version}}/retire": (f"{_KB}/toys/plans/1/retire", {}, {"json": {}}),
    "/v1/groups": (
        "/v1/groups",
        {"json": {"name": "care", "epsilon": 5, "delta": 1e-4}},
        {"json": {"name": "cars", "epsilon": 5, "delta": 1e-4}},
    ),
    "/v1/keys": (
        "/v1/keys",
        {"json": {"name": "ana", "role": "analyst"}},
        {"json": {"name": "bo", "role": "analyst"}},
    ),
    "/v1/keys/{key_id}/rotate": ("/v1/keys/{key}/rotate", {"json": {}}, {"json": {"overlap_hours": 1}}),
}
"""For each route, an address, a request to it that changes something, and another request."""

SHOWN_ONCE = {"/v1/keys", "/v1/keys/{key_id}/rotate"}
ELSEWHERE = {
    "/v1/sanitize": "test_sanitizing.py",
}
"""Other routes that change something and take the key, and the modules that test them."""
QUESTIONS = {"/v1/tasks/{task}/answers", "/v1/chat/completions", "/v1/responses"}
"""Routes whose key stands for a question; the stored answer is free for every caller."""
NOTHING = {"/v1/tasks/{task}/preview", "/v1/restore/answers", f"{_KB}/{{knowledge_base}}/plans/measure"}


def test_every_post_is_listed(services: Services) -> None:
    routes = [one for one in create_app(services).routes if isinstance(one, APIRoute) and "POST" in one.methods]
    once = {one.path for one in routes if isinstance(one, OnceRoute) and one.once}
    assert once == {*CHANGING, *ELSEWHERE}
    assert {one.path for one in routes} - once == QUESTIONS | NOTHING


def test_the_document_shows_which_routes_take_it(services: Services) -> None:
    documented = create_app(services).openapi()["paths"]
    for path in {*CHANGING, *ELSEWHERE, *QUESTIONS}:
        named = [one["name"] for one in documented[path]["post"]["parameters"]]
        assert named.count("idempotency-key") == 1, path
        assert "`Idempotency-Key`" in documented[path]["post"]["responses"]["422"]["description"], path
    for path in NOTHING:
        assert "idempotency-key" not in [one["name"] for one in documented[path]["post"].get("parameters", ())]


@pytest.mark.parametrize("path", CHANGING)
def test_a_request_sent_again_changes_nothing_and_has_the_same_response(api: Api, path: str) -> None:
    address, sent, other = CHANGING[path]
    if "/cohorts/" in path:
        api("admin", "POST", f"{_KB}/toys/cohorts", json=_COHORT)
    address = address.format(key=api.make_key("cy"))
    events = api.services.records.audit.end

    def send(given: dict[str, Any], name: str = "order-1", role: str = "admin") -> Any:
        headers = given.get("headers", {}) | {"Idempotency-Key": name}
        return api(role, "POST", address, **given | {"headers": headers})

    before = events()
    first = send(sent)
    assert (first.status_code in (200, 201), "idempotency-replayed" in first.headers) == (True, False), first.text
    after = events()
    assert after.sequence > before.sequence
    for _ in range(2):
        again = send(sent)
        if path in SHOWN_ONCE:
            assert problem(again, 409, "done-before")["id"] == first.json()["id"]
            assert "dpicl_" not in again.text
        else:
            assert (again.status_code, again.json()) == (first.status_code, first.json())
            assert again.headers["idempotency-replayed"] == "true"
    problem(send(other), 422, "idempotency-conflict")
    assert events() == after
    problem(send(sent, role="analyst"), 403, "wrong-role")  # the same key of another caller is a different one
    assert events() == after


def test_a_secret_is_not_kept_with_the_response(api: Api) -> None:
    made = api("admin", "POST", "/v1/keys", json={"name": "a", "role": "analyst"}, headers={"Idempotency-Key": "k"})
    (row,) = rows(api)
    kept = unseal(api.services.records.requests._aead, row.body, row.attempt.encode())
    assert json.loads(kept) == {"id": made.json()["id"]}


def test_only_one_of_several_requests_at_once_is_done(api: Api) -> None:
    def send(_: int) -> Any:
        return api("admin", "POST", _SIGN, content=_SMALL, headers={"Idempotency-Key": "k"})

    with ThreadPoolExecutor(4) as threads:
        responses = list(threads.map(send, range(4)))
    done = [one for one in responses if one.status_code == 201]
    assert {one.json()["signed"]["version"] for one in done} == {2}
    for one in responses:
        if one not in done:  # for a moment, the change is made and its response not kept yet
            under_way = one.json()["type"].endswith("request-in-progress")
            problem(one, 409, "request-in-progress" if under_way else "done-before")
            assert one.headers.get("retry-after") == ("5" if under_way else None)
    assert len(api.services.records.ledger.budgets.plans("toys")) == 2


def test_a_refused_request_may_be_corrected_and_a_dry_run_does_not_count(api: Api) -> None:
    def send(path: str, content: str = _SMALL) -> Any:
        return api("admin", "POST", path, content=content, headers={"Idempotency-Key": "k"})

    assert send(f"{_SIGN}&dry_run=true").status_code == 200
    problem(send(_SIGN, "nonsense"), 422, "invalid-plan")
    problem(send(_SIGN, _SMALL.replace("epsilon: 1", "epsilon: 9")), 402, "budget-exceeded")
    assert rows(api) == []
    assert send(_SIGN).json()["signed"]["version"] == 2
    problem(api("admin", "POST", _SIGN, content=_SMALL, headers={"Idempotency-Key": ""}), 422, "invalid-request")


def test_a_change_whose_response_was_lost_is_not_made_again(api: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    def send() -> Any:
        return api("admin", "POST", _SIGN, content=_SMALL, headers={"Idempotency-Key": "k"})

    def stop(*_args: object) -> None:
        raise RuntimeError

    with monkeypatch.context() as patch:
        patch.setattr(api.services.records.requests, "keep", stop)
        problem(send(), 500, "internal-error")
    problem(send(), 409, "done-before")
    monkeypatch.setattr("service.records.requests_once.LEASE", timedelta(0))
    problem(send(), 409, "done-before")
    assert len(api.services.records.ledger.budgets.plans("toys")) == 2


def rows(api: Api) -> list[Any]:
    with api.services.records.database.connect() as connection:
        return list(connection.exec_driver_sql("SELECT * FROM requests"))
