"""A knowledge base's page, and creating and filling one from it."""

from __future__ import annotations

import json
import re
from datetime import UTC, datetime, timedelta
from tempfile import SpooledTemporaryFile

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from accounting.ledger.history import Use
from exemplar_store.tables import exemplars, knowledge_bases, units
from service.dashboard.usage import _series, charged_by_day
from service.engines.protocol import EngineUnavailableError
from service.pipeline.latency import Measured
from service.services import Services, open_services
from tests.service.conftest import EMBEDDER, PLAN, Embedding, MajorityEngine
from tests.service.dashboard.dashboard_browser import Browser

CANARY = "canary-4f1d"
NEW = {
    "name": "notes",
    "epsilon": "6",
    "delta": "1e-5",
    "public_size": "20,000",
    "fields": "text, code",
    "embedded_field": "text",
}


TABS = ("plans", "usage", "releases", "exemplars", "cohorts", "settings")


def toys_pages() -> list[str]:
    return ["/knowledge-bases/toys", *(f"/knowledge-bases/toys/{tab}" for tab in TABS)]


def text(page: str) -> str:
    """What a page says, without its tags."""
    return " ".join(re.sub(r"<[^>]+>", " ", page).split())


def ask(browser: Browser, query: str, token: str) -> None:
    response = browser.client.post(
        "/v1/tasks/toys.colour/answers", json={"query": query}, headers={"Authorization": f"Bearer {token}"}
    )
    assert response.status_code in (200, 402), response.text


def upload(browser: Browser, content: bytes, name: str = "new.jsonl", **fields: str):
    files = {"file": (name, content)}
    return browser.post("/knowledge-bases/toys/exemplars", {"unit_id": "unit_id", **fields}, files=files)


def test_plans_are_told_in_human_terms(browser: Browser) -> None:
    page = text(browser.get("/knowledge-bases/toys/plans").text)
    assert page == text(browser.get("/knowledge-bases/toys/plans/1").text)
    assert "Plan 1" in page
    assert "toys.colour@1 picks a label 20 answers left" in page
    assert re.search(r"Needed for 95 % good releases (out of reach|\d+ of 10 slots)", page)
    assert "Gaussian noise of" in page
    assert re.search(r"PLD \d", page)
    assert "Write a plan" in page


def test_a_version_that_no_plan_has_is_a_page_that_is_not_there(browser: Browser) -> None:
    for version in ("2", "9" * 9, "9" * 20, "9" * 5000):
        assert browser.get(f"/knowledge-bases/toys/plans/{version}").status_code == 404
        assert browser.post(f"/knowledge-bases/toys/cohorts/{version}/close").status_code in (404, 409)


def test_spending_refusals_and_releases_are_shown(browser: Browser) -> None:
    _, token = browser.services.records.keys.create("ana", "analyst")
    for i in range(20):
        ask(browser, f"toy {i}", token)
    browser.services.records.ledger.refuse("toys.colour@1", browser.key.id, "answers-exhausted")
    page = browser.get("/knowledge-bases/toys/usage").text
    assert "20 answers were charged in the last 30 days, at most 20 on a day." in page
    assert re.search(r"Answers exhausted colour@1 chief 1 \d", text(page))
    assert "All answers are spent." in text(browser.get("/knowledge-bases/toys/plans").text)
    newest = browser.get("/knowledge-bases/toys/releases").text
    assert len(re.findall(r'<td class="answer">(?:red|blue)', newest)) == 12


def test_usage_is_shown_by_task_and_by_key_with_fallbacks(browser: Browser) -> None:
    ledger = browser.services.records.ledger
    task = ledger.budgets.task("toys.colour@1")
    for i, fallback in enumerate((True, False, False, False)):
        charged = ledger.charge(task, bytes([i]), key_id=browser.key.id if i else "gone")
        ledger.release(charged.id, {"text": "t", "keywords": [], "fallback": fallback})
    page = browser.get("/knowledge-bases/toys/usage").text
    assert "chief colour@1 3 gone colour@1 1" in text(page)
    assert "colour@1 4 1 25 %" in text(page)
    by_key = browser.get("/knowledge-bases/toys/usage?by=key").text
    assert [re.search(f">{name}</li>", by_key) is not None for name in ("chief", "gone")] == [True, True]


def test_a_unit_is_forgotten_once_that_is_confirmed(browser: Browser) -> None:
    home, records = "/knowledge-bases/toys", browser.services.records
    upload(browser, b'{"unit_id": "unit-77", "text": "a green toy", "label": "green"}\n')
    for given in ({}, {"unit": "unit-77"}, {"sure": "yes"}):
        assert "Nothing was deleted." in browser.post(f"{home}/forget", given).text
    unknown = browser.post(f"{home}/forget", {"unit": "unit-78", "sure": "yes"})
    assert (unknown.status_code, "holds no unit of this id" in unknown.text) == (404, True)
    done = browser.post(f"{home}/forget", {"unit": "unit-77", "sure": "yes"})
    assert done.headers["location"] == f"/admin{home}/exemplars"
    page = browser.get(f"{home}/exemplars").text
    assert "The unit’s exemplars are deleted." in page
    assert f"“chief” ({browser.key.id}) deleted a unit of toys." in page
    assert "unit-77" not in page + done.headers["location"]
    assert "unit-77" not in "".join(records.audit.export())
    with pytest.raises(LookupError):
        records.store.forget("toys", "unit-77")


def test_releases_are_paged_and_texts_shown(services: Services) -> None:
    ledger = services.records.ledger
    task = ledger.budgets.task("toys.colour@1")
    answers = [{"label": f"label-{i:02}"} for i in range(18)]
    answers += [
        {"text": "Send <b>it</b> back.", "keywords": ["back", "send"], "fallback": False},
        {"text": "Nothing stood out.", "keywords": [], "fallback": True},
    ]
    for i, answer in enumerate(answers[-12:]):
        ledger.release(ledger.charge(task, bytes([i]), key_id="k").id, answer)
    browser = Browser(services)
    browser.sign_in()
    page = browser.get("/knowledge-bases/toys/releases").text
    assert "Send &lt;b&gt;it&lt;/b&gt; back." in page
    assert "Released words: back, send" in page
    assert "this text was made without exemplars" in page
    assert "Older" not in text(page)


def test_older_releases_are_a_page_further(services: Services, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.dashboard.knowledge_base._RELEASES", 8)
    ledger = services.records.ledger
    task = ledger.budgets.task("toys.colour@1")
    for i in range(20):
        ledger.release(ledger.charge(task, bytes([i]), key_id="k").id, {"label": f"label-{i:02}"})
    browser = Browser(services)
    browser.sign_in()
    seen, address, pages = [], "/knowledge-bases/toys/releases", 0
    while address:
        page = browser.get(address).text
        seen += re.findall(r"label-\d\d", page)
        older = re.search(r'id="older" href="/admin([^"#]+)', page)
        address, pages = (older[1] if older else ""), pages + 1
    assert pages == 3
    assert seen == [f"label-{i:02}" for i in reversed(range(20))]


def test_a_knowledge_base_is_archived_by_who_writes_its_name(browser: Browser) -> None:
    home, row = "/knowledge-bases/toys", b'{"unit_id": "u", "text": "t", "label": "red"}\n'
    settings = browser.get(f"{home}/settings").text
    assert re.search(r'<form[^>]*/archive"[^>]*data-confirm="[^"]*cannot be taken back', settings)
    for given in ({"name": "Toys"}, {"confirm": "for_ever"}):
        refused = browser.post(f"{home}/archive", given)
        assert refused.status_code == 422
        assert "Nothing was done. To archive it, write its name" in text(refused.text)
    assert browser.post(f"{home}/archive", {"name": "toys"}).headers["location"] == f"/admin{home}"
    assert "“toys” is archived. Its ledger and audit trail stay." in browser.get(home).text
    assert "archived toys: it takes no plan" in text(browser.get(f"{home}/exemplars").text)
    assert "toys archived" in text(browser.get("/").text)
    assert "There is no knowledge base that takes a plan." in text(browser.get("/plans").text)
    for gone in (">Upload<", "Write a plan", 'archive"', "Open cohort"):
        for path in ("", "/plans", "/exemplars", "/settings", "/cohorts"):
            assert gone not in browser.get(f"{home}{path}").text
    cohort = {"epsilon": "5", "delta": "1e-5", "public_size": "900"}
    for refused in (
        upload(browser, row),
        browser.post(f"{home}/archive", {"name": "toys"}),
        browser.post(f"{home}/cohorts", cohort),
    ):
        assert refused.status_code == 409
        assert "is archived for ever" in refused.text
    assert "is archived for ever" in browser.post(f"{home}/plan", {"text": PLAN}).text


def test_the_busiest_tasks_are_told_apart_and_the_others_added_up() -> None:
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=1), today]
    spent = [Use(days[i % 2], f"toys.t{i}@1", "k", 10 - i) for i in range(9)]
    series = _series(spent, lambda use: use.task, days)
    assert [name for name, _ in series] == [f"toys.t{i}@1" for i in range(5)] + ["all others"]
    assert series[-1][1] == [4 + 2, 5 + 3]


def test_a_charge_of_another_day_than_those_shown_is_left_out() -> None:
    """As when midnight passes while the page is made, or another replica's clock is ahead."""
    today = datetime.now(UTC).date()
    spent = [Use(today + timedelta(days=ahead), "toys.t@1", "k", 1) for ahead in (-30, -29, 0, 1)]
    chart = charged_by_day(spent, lambda use: use.task, today)
    assert chart is not None
    assert chart.summary == "2 answers were charged in the last 30 days, at most 1 on a day."
    assert charged_by_day(spent[-1:], lambda use: use.task, today) is None


def test_a_knowledge_base_is_created_with_its_budget(browser: Browser) -> None:
    assert "New knowledge base" in browser.get("/new-knowledge-base").text
    response = browser.post("/new-knowledge-base", {**NEW, "remote_engine": "yes"})
    assert (response.status_code, response.headers["location"]) == (303, "/admin/knowledge-bases/notes/exemplars")
    page = browser.get("/knowledge-bases/notes").text
    assert "“notes” was created with its lifetime budget" in page
    assert "“notes” is there" not in browser.get("/knowledge-bases/notes").text
    described = browser.services.records.store.get("notes")
    assert (described.public_size, described.fields, described.remote_engine) == (20000, ("text", "code"), True)
    budget = next(b for b in browser.services.records.ledger.budgets.statuses() if b.knowledge_base == "notes")
    assert (float(budget.tightest.epsilon), float(budget.tightest.delta)) == (6, 1e-5)


def test_a_weak_promise_is_asked_about(browser: Browser) -> None:
    weak = {**NEW, "epsilon": "1000", "public_size": "3"}
    asked = browser.post("/new-knowledge-base", weak)
    assert asked.status_code == 422
    assert "ε = 1000 is weak" in asked.text
    assert "A public size of 3 is small" in asked.text
    assert [known.name for known in browser.services.records.store.list()] == ["toys"]
    assert browser.post("/new-knowledge-base", {**weak, "confirm": "weak_promise"}).status_code == 303


@pytest.mark.parametrize(
    ("change", "field", "problem"),
    [
        ({"name": "toys"}, "name", "There is a knowledge base named"),
        ({"name": "New Notes"}, "name", "Use this: Small letters"),
        ({"epsilon": "plenty"}, "epsilon", "Enter a number, such as 8."),
        ({"fields": "text, 1st"}, "fields", "not beginning with a digit"),
        ({"response_field": "title"}, "response_field", "Choose one of code, or none."),
    ],
)
def test_what_is_wrong_is_said_by_its_field(browser: Browser, change: dict, field: str, problem: str) -> None:
    response = browser.post("/new-knowledge-base", {**NEW, **change})
    assert response.status_code == (409 if change == {"name": "toys"} else 422)
    said = re.search(rf'id="{field}-problem">(.+?)</p>', response.text)
    assert said is not None, response.text
    assert problem in said[1]
    assert "Nothing was created: check 1 entry below." in response.text
    given = {**NEW, **change}[field].strip()
    assert f'id="{field}" name="{field}" type="text" value="{given}"' in response.text
    assert [known.name for known in browser.services.records.store.list()] == ["toys"]


@pytest.mark.parametrize(
    ("content", "name"),
    [
        (b'{"unit_id": "new", "text": "a green toy", "label": "green"}\n', "new.jsonl"),
        (b"unit_id,text,label\nnew,a green toy,green\n", "NEW.CSV"),
    ],
)
def test_exemplars_are_uploaded(browser: Browser, content: bytes, name: str) -> None:
    response = upload(browser, content, name)
    assert response.status_code == 303
    page = browser.get("/knowledge-bases/toys/exemplars").text
    assert "Done: every row of the file is stored, encrypted." in page
    assert "green" not in page
    assert f"“chief” ({browser.key.id}) uploaded exemplars to toys" in text(page)
    assert browser.services.records.store.forget("toys", "new") == 1


@pytest.mark.parametrize(
    ("content", "name", "problem"),
    [
        (
            b'{"unit_id": "new", "text": "secret-7", "label": "green"}\n{"text": 3}\n',
            "a.jsonl",
            "Row 2",
        ),
        (b"unit_id,text\nnew,secret-7\n", "a.csv", "label"),
        (b"secret-7", "a.xlsx", "must end in .csv, .jsonl or .ndjson"),
        (b"", "", "Choose a file first."),
        (
            b"".join(b'{"unit_id": "new", "text": "secret-7 %d", "label": "green"}\n' % i for i in range(1001)),
            "a.ndjson",
            "A unit would have more than 1,000 exemplars",
        ),
    ],
)
def test_a_bad_file_is_refused_whole_and_not_repeated(
    browser: Browser, content: bytes, name: str, problem: str
) -> None:
    response = upload(browser, content, name)
    assert response.status_code == 422
    assert problem in response.text
    assert "secret-7" not in response.text
    with pytest.raises(LookupError):
        browser.services.records.store.forget("toys", "new")


def test_an_upload_while_the_embedder_is_down_says_so(services: Services) -> None:
    def down(_texts: object) -> None:
        raise EngineUnavailableError("the embedder does not answer")

    browser = Browser(open_services(services.records, MajorityEngine(), Embedding(down)))
    browser.sign_in()
    response = upload(browser, b'{"unit_id": "new", "text": "secret-7", "label": "green"}\n')
    assert response.status_code == 503
    assert "The embedder does not answer." in response.text
    with pytest.raises(LookupError):
        browser.services.records.store.forget("toys", "new")


@pytest.mark.parametrize("error", [sa.exc.OperationalError, sa.exc.InternalError])
def test_a_database_that_is_gone_is_said_and_logged(
    browser: Browser, error: type[sa.exc.DBAPIError], monkeypatch: pytest.MonkeyPatch
) -> None:
    def gone(*_args: object) -> None:
        raise error("SELECT secret-7", {}, OSError("secret-7"))

    monkeypatch.setattr(browser.services.records.store, "get", gone)
    with capture_logs() as logs:
        page = browser.get("/knowledge-bases/toys")
    assert page.status_code == 503
    assert "The database does not answer" in page.text
    (logged,) = [log for log in logs if log["event"] == "database_unavailable"]
    assert logged["error"] == error.__name__
    assert "secret-7" not in page.text + str(logs)


def test_what_was_lost_in_a_restore_is_created_with_the_budget_it_had(browser: Browser) -> None:
    with browser.services.records.database.begin() as connection:
        for table in (exemplars, units, knowledge_bases):
            connection.execute(sa.delete(table))
    response = browser.post("/new-knowledge-base", {**NEW, "name": "toys"})
    assert response.status_code == 409
    assert "before its exemplars were lost in a restore, and keeps it: create it with the same" in response.text
    body = {"name": "toys", "epsilon": 6, "delta": 1e-5, "public_size": 20_000}
    admin = {"Authorization": f"Bearer {browser.token}"}
    refused = browser.client.post("/v1/knowledge-bases", json=body, headers=admin)
    assert refused.status_code == 409
    assert refused.json()["type"].endswith("knowledge-base-exists")
    budget = browser.services.records.ledger.budgets.status("toys").tightest
    same = {**NEW, "name": "toys", "epsilon": str(budget.epsilon), "delta": str(budget.delta)}
    assert browser.post("/new-knowledge-base", same | {"confirm": "weak_promise"}).status_code == 303


def test_uploads_of_several_megabytes_stay_in_memory(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    def to_disk(*_args: object, **_options: object) -> None:
        raise AssertionError("an upload was written to disk")

    monkeypatch.setattr(SpooledTemporaryFile, "rollover", to_disk)
    row = {"text": "t" * 15_000, "label": "green"}
    rows = b"".join(json.dumps({**row, "unit_id": f"new {i}"}).encode() + b"\n" for i in range(150))
    assert len(rows) > 2 * 1024 * 1024
    assert upload(browser, rows).status_code == 303


def test_an_upload_has_a_limit(services: Services) -> None:
    records = services.records
    small = records.settings.model_copy(update={"max_upload_bytes": 1024})
    object.__setattr__(records, "settings", small)
    browser = Browser(open_services(records, MajorityEngine(), EMBEDDER))
    browser.sign_in()
    response = upload(browser, b"x" * (2 * 1024 * 1024))
    assert response.status_code == 413
    assert "larger than" in response.text


def test_an_engine_outside_is_allowed_and_forbidden(browser: Browser) -> None:
    for allowed, sentence in (("yes", "exemplars may be shown"), ("no", "no exemplar goes")):
        response = browser.post("/knowledge-bases/toys/remote-engine", {"remote_engine": allowed})
        assert response.headers["location"] == "/admin/knowledge-bases/toys/settings"
        assert sentence in browser.get("/knowledge-bases/toys/settings").text
        page = browser.get("/knowledge-bases/toys/exemplars").text
        assert browser.services.records.store.get("toys").remote_engine is (allowed == "yes")
    assert "allowed engines outside the deployment for" in page
    assert "forbade engines outside the deployment for" in page


@pytest.mark.parametrize("method", ["get", "post"])
def test_an_unknown_knowledge_base_is_a_page_for_people(browser: Browser, method: str) -> None:
    paths = {"get": ["", *(f"/{tab}" for tab in TABS)], "post": ["/remote-engine", "/archive", "/exemplars"]}[method]
    for path in paths:
        response = getattr(browser, method)(f"/knowledge-bases/nowhere{path}")
        assert response.status_code == 404
        assert "There is no knowledge base named" in response.text
    assert browser.get("/knowledge-bases/toys/releases?after=gone").status_code == 404
    assert browser.get("/knowledge-bases/toys/plans/7").status_code == 404


def test_no_page_shows_what_is_private(browser: Browser) -> None:
    """Exemplars and unit ids with canaries, before and after an upload, a question and a forgotten unit."""
    records = browser.services.records
    rows = [{"unit_id": f"{CANARY}-{i}", "text": f"{CANARY} text", "label": "red"} for i in range(7)]
    assert upload(browser, b"\n".join(json.dumps(row).encode() for row in rows)).status_code == 303
    _, token = records.keys.create("ana", "analyst")
    ask(browser, f"a question with {CANARY}", token)
    pages = [browser.get(path) for path in ("/", *toys_pages(), "/new-knowledge-base", "/plans", "/keys", "/audit")]
    for page in pages:
        assert CANARY not in page.text


def test_the_page_does_not_change_with_what_is_private(browser: Browser) -> None:
    """The same public history over other exemplars is the same page, byte for byte."""

    def pages() -> list[str]:
        found = [browser.get(path).text for path in ("/", *toys_pages())]
        return [re.sub(r"As of <time.*?</time>", "", page) for page in found]

    before = pages()
    with browser.services.records.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM exemplars")
        connection.exec_driver_sql("DELETE FROM units")
    after = pages()
    assert [strip_now(page) for page in after] == [strip_now(page) for page in before]


def strip_now(page: str) -> str:
    """Without the chart's paths, which move with the clock."""
    return re.sub(r' d="[^"]+"', "", page)


def test_a_signed_plan_says_how_long_answers_take(browser: Browser) -> None:
    page = "/knowledge-bases/toys/plans"
    assert "Answers leave after" not in browser.get(page).text
    browser.services.grains.report = [Measured("toys.colour@1", 12.0, 24.0, typical_s=9.5, cold="raise kv_cache_gib")]
    text = browser.get(page).text
    assert "24.0 s (typical slots take 9.5 s, the largest 12.0 s)" in text
    assert "Blocks are not read ahead: raise kv_cache_gib." in text
