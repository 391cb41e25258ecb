"""Authorisation: every route of the application against every kind of caller.

The routes are read from the application, so a route without an entry here fails. A refused request must also leave the
database as it was.
"""

import asyncio
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
import sqlalchemy as sa
from fastapi.testclient import TestClient
from starlette.routing import BaseRoute, Mount, Route

from accounting.plans.plan import CalibratedPlan
from service.answering.plans.signing import sign
from service.gateway.dashboard.pages import COOKIE
from service.operations.services import Services, open_services
from service.operations.sessions import LASTS, Sessions
from service.serving.web import create_app
from tests.service.conftest import EMBEDDER, MajorityEngine, bearer, make_records

OURS = {"Origin": "http://testserver"}
FROM_ELSEWHERE = [
    {},
    {"Origin": ""},
    {"Origin": "null"},
    {"Origin": "https://elsewhere.example"},
    OURS | {"Sec-Fetch-Site": "cross-site"},
    OURS | {"Sec-Fetch-Site": "same-site"},
]
_CHAT = {"model": "toys.colour", "messages": [{"role": "user", "content": "x"}]}
_REDACTED = {"bundle": "none@1", "bundle_sha256": "0" * 64, "query": "x", "profile": 0}


EXAMPLES = {
    **dict.fromkeys(("knowledge_base", "name"), "toys"),
    **dict.fromkeys(("task", "model"), "toys.colour"),
    **dict.fromkeys(("release_id", "group"), "none"),
    **dict.fromkeys(("cohort", "number"), "9"),
    **dict.fromkeys(("key_id", "id"), "{key}"),
    **{"bundle": "none@1", "kind": "busy", "unit": "u1", "version": "1"},
}


@dataclass(frozen=True)
class Entry:
    """A request to a route, and the status of the response to callers with the right role.

    Without an example, the address has :data:`EXAMPLES` for its parameters; ``{key}`` stands for a spare key.
    """

    method: str
    path: str
    status: int
    example: str = ""
    options: Mapping[str, Any] = field(default_factory=dict)

    def __str__(self) -> str:
        return f"{self.method} {self.path}"

    @property
    def address(self) -> str:
        return self.example or re.sub(r"{(\w+)(:\w+)?}", lambda parameter: EXAMPLES[parameter[1]], self.path)


ANYONE = [
    Entry("GET", "/", 307),
    Entry("GET", "/docs", 307),
    Entry("GET", "/healthz", 200),
    Entry("GET", "/readyz", 200),
    Entry("GET", "/version", 200),
    Entry("GET", "/openapi.json", 200),
    Entry("GET", "/problems/{kind}", 200),
    Entry("GET", "/admin/static/{version}/{name}", 200, "/admin/static/x/app.css"),
    Entry("GET", "/admin/sign-in", 200),
    Entry("GET", "/admin/sign-in/provider", 404),  # no provider is set; test_dashboard_provider.py sets one
    Entry("GET", "/admin/sign-in/callback", 404),
]
ANYONE_FROM_OUR_PAGE = [
    Entry("POST", "/admin/sign-in", 401, options={"data": {"key": "dpicl_wrong"}}),
    Entry("POST", "/admin/theme", 303, options={"data": {"theme": "dark"}}),
]
SEE = [
    Entry("GET", "/metrics", 200),
    Entry("GET", "/v1/knowledge-bases", 200),
    Entry("GET", "/v1/knowledge-bases/{knowledge_base}", 200),
    Entry("GET", "/v1/knowledge-bases/{knowledge_base}/cohorts", 200),
    Entry("GET", "/v1/groups", 200),
    Entry("GET", "/v1/knowledge-bases/{knowledge_base}/plans", 200),
    Entry("GET", "/v1/budgets", 200),
    Entry("GET", "/v1/tasks", 200),
    Entry("GET", "/v1/tasks/{task}", 200),
    Entry("GET", "/v1/releases/{release_id}", 404),
    Entry("GET", "/v1/releases/{release_id}/receipt", 404),
    Entry("GET", "/v1/models", 200),
    Entry("GET", "/v1/restore/bundles", 200),
    Entry("GET", "/v1/restore/bundles/{bundle}", 404),
    Entry("GET", "/v1/models/{model}", 200),
]
TRY = [Entry("POST", "/v1/tasks/{task}/preview", 422, options={"json": {}})]
ASK = [
    Entry("POST", "/v1/tasks/{task}/answers", 200, options={"json": {"query": "x"}}),
    Entry("POST", "/v1/chat/completions", 200, options={"json": _CHAT}),
    Entry("POST", "/v1/responses", 200, options={"json": {"model": "toys.colour", "input": "x"}}),
    Entry("POST", "/v1/sanitize", 503, options={"json": {"texts": ["x"]}}),
    Entry("POST", "/v1/restore/answers", 422, options={"json": _REDACTED}),
]
_COHORT = {"epsilon": 1, "delta": 1e-5, "public_size": 900}
_NEW = {"name": "cars", **_COHORT}
_ROW = b'{"unit_id": "u", "text": "t", "label": "red"}\n'
_NDJSON = {"Content-Type": "application/x-ndjson"}
DECIDE = [
    Entry("POST", "/v1/knowledge-bases", 201, options={"json": _NEW}),
    Entry("PATCH", "/v1/knowledge-bases/{knowledge_base}", 200, options={"json": {"remote_engine": False}}),
    Entry("POST", "/v1/knowledge-bases/{knowledge_base}/exemplars", 200, options={"content": _ROW, "headers": _NDJSON}),
    Entry("DELETE", "/v1/knowledge-bases/{knowledge_base}/units/{unit:path}", 200),
    Entry("POST", "/v1/knowledge-bases/{knowledge_base}/plans", 422, options={"content": b"x"}),
    Entry("POST", "/v1/knowledge-bases/{knowledge_base}/plans/measure", 422, options={"json": {}}),
    Entry("POST", "/v1/knowledge-bases/{knowledge_base}/cohorts", 201, options={"json": _COHORT}),
    Entry("POST", "/v1/groups", 201, options={"json": {"name": "care", "epsilon": 1, "delta": 1e-5}}),
    Entry("PUT", "/v1/groups/{group}/knowledge-bases/{knowledge_base}", 404),
    Entry("POST", "/v1/knowledge-bases/{knowledge_base}/cohorts/{cohort}/close", 409),
    Entry(
        "POST",
        "/v1/knowledge-bases/{knowledge_base}/plans/{version}/retire",
        404,
        "/v1/knowledge-bases/toys/plans/9/retire",
    ),
    Entry("POST", "/v1/knowledge-bases/{knowledge_base}/archive", 422),
    Entry("DELETE", "/v1/knowledge-bases/{knowledge_base}", 409),
    Entry("POST", "/v1/keys", 201, options={"json": {"name": "x", "role": "analyst"}}),
    Entry("GET", "/v1/keys", 200),
    Entry("PATCH", "/v1/keys/{key_id}", 200, options={"json": {"quota": 1, "rate_per_minute": None}}),
    Entry("POST", "/v1/keys/{key_id}/rotate", 200, options={"json": {}}),
    Entry("DELETE", "/v1/keys/{key_id}", 204),
]
AUDIT = [
    Entry("GET", "/v1/releases", 200),
    Entry("GET", "/v1/audit", 200),
    Entry("GET", "/v1/audit/export", 200),
    Entry("GET", "/v1/knowledge-bases/{knowledge_base}/statement", 200),
    Entry("GET", "/v1/audit/checkpoint", 409),  # no key is set
]
KEYS = [
    *((entry, {"analyst", "viewer", "auditor", "admin"}) for entry in SEE),
    *((entry, {"analyst", "admin"}) for entry in TRY),
    *((entry, {"analyst"}) for entry in ASK),
    *((entry, {"auditor", "admin"}) for entry in AUDIT),
    *((entry, {"admin"}) for entry in DECIDE),
]
"""Routes that take a key, and the roles that may use them."""
_TOYS = "/admin/knowledge-bases/toys"
_TABS = {_TOYS, *(f"{_TOYS}/{tab}" for tab in ("plans", "usage", "cohorts", "settings"))}
_KB = "/admin/knowledge-bases/{name}"
_BROWSED = ("", "/plans", "/plans/{version:number}", "/usage", "/settings", "/cohorts")
BROWSE = [
    *(Entry("GET", _KB + tab, 200) for tab in _BROWSED),
    Entry("GET", "/admin/groups", 200),
    Entry("GET", "/admin/bundles", 200),
    Entry("GET", "/admin/bundles/{bundle}", 404),
]
SIGNED_IN = [Entry("GET", "/admin/", 200), Entry("POST", "/admin/sign-out", 303)]
ASK_PAGES = [Entry("GET", "/admin/ask", 200), Entry("POST", "/admin/ask", 422)]
AUDIT_PAGES = [
    *(Entry("GET", f"{_KB}/{tab}", 200) for tab in ("releases", "exemplars", "statement")),
    Entry("GET", "/admin/audit", 200),
    Entry("GET", "/admin/audit/export", 200),
    Entry("GET", "/admin/audit/checkpoint", 409),  # no key is set
    *(Entry(method, "/admin/audit/verify", 200) for method in ("GET", "POST")),
]
_DECIDED = ("exemplars", "exemplars/look", "cohorts", "forget", "archive", "plan")
_STUDIED = ("curves", "try", "measure", "confirm", "sign")
DECIDE_PAGES = [
    *(Entry("POST", f"{_KB}/{form}", 422) for form in (*_DECIDED, *(f"plan/{step}" for step in _STUDIED))),
    Entry("GET", "/admin/new-knowledge-base", 200),
    Entry("POST", "/admin/new-knowledge-base", 422),
    Entry("POST", "/admin/knowledge-bases/{name}/cohorts/{number:number}/close", 409),
    Entry(
        "POST",
        "/admin/knowledge-bases/{name}/plans/{version:number}/retire",
        404,
        "/admin/knowledge-bases/toys/plans/9/retire",
    ),
    Entry("POST", "/admin/knowledge-bases/{name}/remote-engine", 303),
    Entry("GET", "/admin/keys", 200),
    Entry("POST", "/admin/keys", 422),
    Entry("GET", "/admin/keys/{id}", 200),
    Entry("POST", "/admin/keys/{id}/limits", 422),  # a form without limits changes nothing
    Entry("POST", "/admin/keys/{id}/rotate", 409),
    Entry("POST", "/admin/keys/{id}/revoke", 422),
    Entry("POST", f"{_KB}/delete", 409),
    Entry("POST", f"{_KB}/plan/file", 200),
    Entry("POST", "/admin/groups", 422),
    Entry("POST", "/admin/groups/{group}/join", 404),
    Entry("GET", "/admin/sanitising", 200),
    Entry("POST", "/admin/sanitising", 200),
    Entry("GET", "/admin/plans", 200),
    Entry("GET", "/admin/docs", 200),
    Entry("GET", "/admin/knowledge-bases/{name}/plan", 200),
]
PAGES = [
    *((entry, {"analyst", "viewer", "auditor", "admin"}) for entry in SIGNED_IN),
    *((entry, {"analyst"}) for entry in ASK_PAGES),
    *((entry, {"viewer", "auditor", "admin"}) for entry in BROWSE),
    *((entry, {"auditor", "admin"}) for entry in AUDIT_PAGES),
    *((entry, {"admin"}) for entry in DECIDE_PAGES),
]
"""Routes that take a session, and the roles that may use them."""
NO_KEY, WRONG_KEY = (401, "missing-key"), (401, "invalid-key")
NOTED_IN_PASSING = {"rate_limits"}


class World:
    """The service, with a caller of every kind."""

    def __init__(self, services: Services):
        self.services = services
        self.client = TestClient(create_app(services), follow_redirects=False)
        keys, sessions = services.records.keys, Sessions(services.records.database)
        over = Sessions(services.records.database, clock=lambda: datetime.now(UTC) - LASTS - timedelta(seconds=1))
        admin, self.admin = keys.create("root", "admin")
        viewer, viewing = keys.create("vera", "viewer")
        auditor, auditing = keys.create("otto", "auditor")
        analyst, self.analyst = keys.create("ana", "analyst")
        self.tokens = {"admin": self.admin, "analyst": self.analyst, "viewer": viewing, "auditor": auditing}
        self.signing_in = {"admin": admin, "viewer": viewer, "auditor": auditor, "analyst": analyst}
        self.another_admin, _ = keys.create("root too", "admin")
        gone, self.gone_admin = keys.create("gone", "admin")
        gone_analyst, self.gone_analyst = keys.create("gone too", "analyst")
        self.over = over.start(admin)
        self.gone = sessions.start(gone)
        for key in (gone, gone_analyst):
            keys.revoke(key.id)
        self.spare_key = ""
        self.admin_key = admin
        self.sessions = sessions
        tables = sa.MetaData()
        tables.reflect(services.records.database)
        self.tables = {
            table.name: sa.select(*(column for column in table.c if column.name != "last_used_at"))
            for table in tables.sorted_tables
            if table.name not in NOTED_IN_PASSING
        }

    def send(self, entry: Entry, headers: Mapping[str, str], **changed: Any) -> Any:
        """Send the request of an entry with the headers of a caller."""
        options = {**entry.options, **changed}
        address = entry.address.replace("{key}", self.spare_key)
        self.client.cookies.clear()
        return self.client.request(
            entry.method, address, **{**options, "headers": {**options.get("headers", {}), **headers}}
        )

    def session(self, role: str = "admin") -> tuple[dict[str, str], str]:
        """A new session's cookie, and the token that its forms carry."""
        token = self.sessions.start(self.another_admin if role == "another admin" else self.signing_in[role])
        found = self.sessions.find(token)
        assert found is not None
        return cookie(token), found.csrf

    def state(self) -> dict[str, list[Any]]:
        """The whole database, without the rates and times of last use that every request may change."""
        with self.services.records.database.connect() as connection:
            return {name: connection.execute(query).all() for name, query in self.tables.items()}


def cookie(token: str) -> dict[str, str]:
    return {"Cookie": f"{COOKIE}={token}"}


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory, calibrated: CalibratedPlan) -> World:
    records = make_records(tmp_path_factory.mktemp("authorisation"))
    sign(records, calibrated, "test")
    records.ledger.groups.open("family", 9, 1e-3, by="test")
    services = open_services(records, MajorityEngine(), EMBEDDER)
    asyncio.run(services.heartbeat.beat())
    return World(services)


@pytest.fixture(autouse=True)
def spare_key(world: World) -> None:
    """A key to be listed, limited and revoked."""
    world.spare_key = world.services.records.keys.create("nobody", "analyst")[0].id


ELSEWHERE = {("POST", "/mcp")}
"""The address of the tools, which ``test_mcp.py`` calls with keys of several roles, and without a key."""


def endpoints(routes: list[BaseRoute], prefix: str = "") -> Iterator[tuple[str, str]]:
    for route in routes:
        if isinstance(route, Mount):
            yield from endpoints(route.routes, prefix + route.path)
        else:
            assert isinstance(route, Route), f"{route} is of a kind that this matrix does not know"
            assert route.methods, f"{route} takes every method"
            for method in route.methods - {"HEAD"}:  # HEAD is answered as GET
                yield method, prefix + route.path


def test_every_route_is_in_the_matrix_once(world: World) -> None:
    with_a_role = [entry for entry, _ in KEYS + PAGES]
    listed = [(entry.method, entry.path) for entry in ANYONE + ANYONE_FROM_OUR_PAGE + with_a_role]
    assert len(listed) == len(set(listed))
    assert {*listed, *ELSEWHERE} == set(endpoints(world.client.app.routes))


@pytest.mark.parametrize("entry", ANYONE + ANYONE_FROM_OUR_PAGE, ids=str)
def test_routes_that_are_open_to_all_change_nothing(world: World, entry: Entry) -> None:
    before = world.state()
    for page in FROM_ELSEWHERE if entry in ANYONE_FROM_OUR_PAGE else ():
        response = world.send(entry, page)
        assert (response.status_code, "set-cookie" in response.headers) == (403, False), page
    assert world.send(entry, OURS).status_code == entry.status
    assert world.state() == before


def named(value: Entry | set[str]) -> str:
    """The name of a value in the name of a test: the same in every process."""
    return str(value) if isinstance(value, Entry) else ", ".join(sorted(value))


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "roles"), KEYS, ids=named)
def test_the_api_answers_the_right_keys_alone(world: World, entry: Entry, roles: set[str]) -> None:
    session, csrf = world.session()
    refused = {
        "no key": ({}, NO_KEY),
        "an empty one": ({"Authorization": "Bearer "}, NO_KEY),
        "another scheme": ({"Authorization": f"Basic {world.admin}"}, NO_KEY),
        "no scheme": ({"Authorization": world.admin}, NO_KEY),
        "a malformed key": (bearer("dpicl_" + "x" * 5000), WRONG_KEY),
        "a key and more": (bearer(world.admin + "x"), WRONG_KEY),
        "a key's id": (bearer(world.admin_key.id), WRONG_KEY),
        "a revoked admin's key": (bearer(world.gone_admin), WRONG_KEY),
        "a revoked analyst's key": (bearer(world.gone_analyst), WRONG_KEY),
        "an admin's session": (session | OURS | {"X-CSRF-Token": csrf}, NO_KEY),
        "a session's token as a key": (bearer(session["Cookie"].partition("=")[2]), WRONG_KEY),
    }
    for role in world.tokens.keys() - roles:
        refused[role] = bearer(world.tokens[role]), (403, "wrong-role")
    before = world.state()
    for caller, (headers, (status, slug)) in refused.items():
        response = world.send(entry, headers)
        assert (response.status_code, response.json()["type"].rpartition("/")[2]) == (status, slug), caller
        assert ("www-authenticate" in response.headers) == (status == 401), caller
    in_the_address = world.send(entry, {}, params={"key": world.admin, "access_token": world.admin})
    assert in_the_address.status_code == 401
    assert world.state() == before
    for role in roles:
        assert world.send(entry, bearer(world.tokens[role])).status_code == entry.status, role


@pytest.mark.slow
@pytest.mark.parametrize(("entry", "roles"), PAGES, ids=named)
def test_the_dashboard_answers_the_right_sessions_alone(world: World, entry: Entry, roles: set[str]) -> None:
    others = {role: world.session(role) for role in world.signing_in.keys() - roles}
    (held, csrf), (_, of_another) = world.session(), world.session("another admin")
    form = {"data": {"csrf": csrf}} if entry.method == "POST" else {}
    strangers = {
        "nobody": {},
        "an empty session": cookie(""),
        "a malformed session": cookie("x" * 3000),
        "an admin's key": bearer(world.admin),
        "a key as a session": cookie(world.admin),
        "a session that is over": cookie(world.over),
        "a session of a revoked key": cookie(world.gone),
    }
    before = world.state()
    for caller, headers in strangers.items():
        response = world.send(entry, OURS | headers, **form)
        assert response.status_code == 303, caller
        assert response.headers["location"].startswith("/admin/sign-in"), caller
        assert "toys" not in response.text
    if entry.method == "POST":
        forged = {
            "no token": (held | OURS, {}),
            "another admin's token": (held | OURS, {"csrf": of_another}),
            "a token in the address": (held | OURS, {"csrf": ""}),
            "no ASCII": (held | OURS, {"csrf": "ü"}),
            **{str(page): (held | page, {"csrf": csrf}) for page in FROM_ELSEWHERE},
        }
        for how, (headers, data) in forged.items():
            # A form must have a field to be a form.
            response = world.send(entry, headers, data={"x": "y"} | data, params={"csrf": csrf})
            assert (response.status_code, "set-cookie" in response.headers) == (403, False), how
    for role, (cookies, of_theirs) in others.items():
        response = world.send(entry, OURS | cookies, **({"data": {"csrf": of_theirs}} if form else {}))
        assert response.status_code == 403, role
        assert re.search(rf"An? {role} may not [a-z, ]+; an? (viewer|auditor|admin|analyst)", response.text), role
        # The choice of colours in the footer leads back to this page.
        assert "toys" not in response.text.partition("<footer")[0]
    assert world.state() == before
    for role in roles:
        theirs, token = (held, csrf) if role == "admin" else world.session(role)
        response = world.send(entry, OURS | theirs, **({"data": {"csrf": token}} if form else {}))
        if (role, entry.path) == ("analyst", "/admin/"):
            assert (response.status_code, response.headers["location"]) == (303, "/admin/ask")
            continue
        assert response.status_code == entry.status, role
        assert not response.headers.get("location", "").startswith("/admin/sign-in") or entry.path == "/admin/sign-out"


_SEEN = {"/admin/", "/admin/groups", *_TABS}
_AUDITED = {
    *("/admin/audit", "/admin/audit/verify", "/admin/audit/export"),
    *(f"{_TOYS}/{page}" for page in ("releases", "exemplars", "statement")),
}


@pytest.mark.parametrize(("role", "seen"), [("viewer", _SEEN), ("auditor", _SEEN | _AUDITED)])
def test_a_viewer_or_auditor_is_shown_nothing_that_changes_anything(world: World, role: str, seen: set[str]) -> None:
    """Their pages have links and forms for their role alone: others are absent, and not merely refused."""
    held, _ = world.session(role)
    theirs = {entry.path for entry, roles in PAGES if role in roles and entry.method == "POST"} | {"/admin/theme"}
    reached, ahead = set[str](), {"/admin/"}
    while ahead:
        path = ahead.pop()
        reached.add(path)
        response = world.client.get(path, headers=held)
        assert response.status_code == 200, path
        shown = re.sub('<form[^>]*method="get"[^>]*>', "", response.text)
        assert set(re.findall(r'(?:action|hx-post)="([^"?#]+)"', shown)) <= theirs, path
        linked = {link for link in re.findall(r'href="(/admin/[^"?#]*)', response.text) if "/static/" not in link}
        ahead |= linked - reached
        assert role == "auditor" or not re.search("root|ana", response.text)  # other keys' names
    assert {re.sub("knowledge-bases/[a-z]+", "knowledge-bases/toys", path) for path in reached} == seen


def test_another_origin_is_never_let_in(world: World) -> None:
    """No page of another site may read an answer, whatever credentials its browser holds."""
    held, _ = world.session()
    for path in ("/v1/budgets", "/admin/", "/openapi.json"):
        asked = {"Origin": "https://elsewhere.example", "Access-Control-Request-Method": "GET"}
        for method in ("GET", "OPTIONS"):
            response = world.client.request(method, path, headers=asked | held | bearer(world.analyst))
            assert not [name for name in response.headers if name.startswith("access-control-")]


def test_callers_who_may_not_audit_learn_nothing_of_other_keys(world: World) -> None:
    """They learn no name, token or limit of another key, and no answer to another's Idempotency-Key."""
    records = world.services.records
    _, bo = records.keys.create("bo-the-other", "analyst", quota=7)
    ask = next(entry for entry in ASK if entry.path.endswith("/answers"))
    named = {"Idempotency-Key": "order-1"}
    his = world.send(ask, bearer(bo) | named, json={"query": "what bo asks"})
    hers = world.send(ask, bearer(world.analyst) | named, json={"query": "what ana asks"})
    assert (his.status_code, hers.status_code) == (200, 200)
    assert his.json()["id"] != hers.json()["id"]
    assert "q=7" in his.headers["ratelimit-policy"]
    assert "ratelimit-policy" not in hers.headers
    read = [world.send(entry, bearer(world.analyst)) for entry in SEE + TRY] + [hers]
    read += [world.send(entry, bearer(world.tokens["viewer"])) for entry in SEE]
    assert {response.status_code for response in read} == {200, 404, 422}
    shown = "".join(response.text for response in read)
    assert not re.search(r"bo-the-other|what bo asks|order-1|root|dpicl_[\w-]{43}", shown)
