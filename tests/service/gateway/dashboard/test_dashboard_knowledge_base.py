"""The pages of a knowledge base, and creating and filling one there."""

import json
import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from tempfile import SpooledTemporaryFile
from unittest.mock import Mock

import pytest
import sqlalchemy as sa
from structlog.testing import capture_logs

from accounting.ledger.history import Use
from service.answering.latency import Measured
from service.engines.errors import EngineUnavailableError
from service.gateway.dashboard.usage import charged_by_day
from service.operations.services import Services, open_services
from service.operations.usage import charged
from tests.service.conftest import PLAN, Embedding, MajorityEngine, serving
from tests.service.gateway.dashboard.dashboard_browser import Browser, signed_in, words

NEW = {
    "name": "notes",
    "epsilon": "6",
    "delta": "1e-5",
    "public_size": "20000",
    "fields": "text, code",
    "embedded_field": "text",
}
TABS = ("plans", "usage", "releases", "exemplars", "cohorts", "settings")
HOME = "/knowledge-bases/toys"
PAGES = ("/", HOME, *(f"{HOME}/{tab}" for tab in TABS))
ROW = b'{"unit_id": "new", "text": "secret-7", "label": "green"}\n'


def upload(browser: Browser, content: bytes, name: str = "new.jsonl", *, to: str = f"{HOME}/exemplars", **how: str):
    return browser.post(to, {"unit_id": "unit_id", **how}, files={"file": (name, content)})


def release(services: Services, *answers: dict) -> None:
    ledger = services.records.ledger
    task = ledger.budgets.task("toys.colour@1")
    for i, answer in enumerate(answers):
        ledger.release(ledger.charge(task, bytes([i]), key_id="k").id, answer)


def test_plans_are_described_in_human_terms(browser: Browser) -> None:
    page = browser.read(f"{HOME}/plans")
    assert page == browser.read(f"{HOME}/plans/1")
    assert "toys.colour@1 picks a label 20 answers left" in page
    assert re.search(r"(out of reach|\d+ of 10 slots)", page)
    assert re.search(r"PLD \d", page)
    measured = Measured("toys.colour@1", 24.0, work_s=12.0, typical_s=9.5, cold="raise kv_cache_gib", repeats=0.804)
    browser.services.grains.report = [measured]
    page = browser.read(f"{HOME}/plans")
    assert "24.0 s (typical slots take 9.5 s, " in page
    assert "in 80 % of questions beside public texts" in page
    assert "kv_cache_gib" in page


def test_the_page_of_an_unknown_version_is_not_found(browser: Browser) -> None:
    for version in ("2", "9" * 9, "9" * 20, "9" * 5000):
        assert browser.get(f"{HOME}/plans/{version}").status_code == 404
        assert browser.post(f"{HOME}/cohorts/{version}/close").status_code in (404, 409)


def test_usage_is_shown_by_task_and_by_key_with_fallbacks_and_refusals(browser: Browser) -> None:
    ledger = browser.records.ledger
    task = ledger.budgets.task("toys.colour@1")
    for i in range(20):
        charged = ledger.charge(task, bytes([i]), key_id=browser.key.id if i else "gone")
        ledger.release(charged.id, {"text": "t", "keywords": [], "fallback": i < 5})
    ledger.refuse("toys.colour@1", browser.key.id, "answers-exhausted")
    page = browser.read(f"{HOME}/usage")
    assert "chief colour@1 19 gone colour@1 1" in page
    assert "colour@1 20 5 25 %" in page
    assert re.search(r"Answers exhausted colour@1 chief 1 \d", page)
    by_key = browser.get(f"{HOME}/usage?by=key").text
    assert all(f">{name}</li>" in by_key for name in ("chief", "gone"))


def test_the_busiest_tasks_are_shown_and_the_others_added_up() -> None:
    today = datetime.now(UTC).date()
    days = [today - timedelta(days=1), today]
    spent = [Use(days[i % 2], f"toys.t{i}@1", "k", 10 - i) for i in range(9)]
    series = charged_by_day(charged(spent, lambda use: use.task, today)).series
    assert [name for name, _ in series] == [f"toys.t{i}@1" for i in range(5)] + ["all others"]
    assert series[-1][1][-2:] == [4 + 2, 5 + 3]


def test_a_charge_of_another_day_than_those_shown_is_left_out() -> None:
    """Midnight may pass while the page is made, or the clock of another replica may be ahead."""
    today = datetime.now(UTC).date()
    spent = [Use(today + timedelta(days=ahead), "toys.t@1", "k", 1) for ahead in (-30, -29, 0, 1)]
    assert charged_by_day(charged(spent, lambda use: use.task, today)).summary.startswith("2 answers were charged")
    assert charged_by_day(charged(spent[-1:], lambda use: use.task, today)) is None


def test_releases_are_shown(browser: Browser) -> None:
    fallback = {"text": "Nothing stood out.", "keywords": [], "fallback": True}
    release(browser.services, {"text": "Send <b>it</b> back.", "keywords": ["back", "send"]}, fallback)
    page = browser.get(f"{HOME}/releases").text
    assert "Send &lt;b&gt;it&lt;/b&gt; back." in page
    assert "Released words: back, send" in page
    assert "without exemplars" in page


def test_older_releases_are_a_page_further(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("service.gateway.dashboard.knowledge_base._RELEASES", 8)
    release(browser.services, *({"label": f"label-{i:02}"} for i in range(20)))
    seen, address = [], f"{HOME}/releases"
    while address:
        page = browser.get(address).text
        seen.append(re.findall(r"label-\d\d", page))
        older = re.search(r'id="older" href="/admin([^"#]+)', page)
        address = older[1] if older else ""
    assert len(seen) == 3
    assert [label for page in seen for label in page] == [f"label-{i:02}" for i in reversed(range(20))]
    assert browser.get(f"{HOME}/releases?after=gone").status_code == 404


def test_a_unit_is_forgotten_once_that_is_confirmed(browser: Browser) -> None:
    upload(browser, b'{"unit_id": "unit-77", "text": "a green toy", "label": "green"}\n')
    for given in ({}, {"unit": "unit-77"}, {"sure": "yes"}):
        browser.refused(f"{HOME}/forget", given, "unit")
    browser.refused(f"{HOME}/forget", {"unit": "unit-78", "sure": "yes"}, "unit", 404)
    browser.refused(f"{HOME}/forget", {"unit": "\u200b", "sure": "yes"}, "unit")
    assert browser.done(f"{HOME}/forget", {"unit": "unit-\u200b77", "sure": "yes"}) == f"{HOME}/exemplars"
    page = browser.get(f"{HOME}/exemplars").text
    assert f"“chief” ({browser.key.id}) deleted a unit of toys." in page
    assert "unit-77" not in page + "".join(browser.records.audit.export())
    with pytest.raises(LookupError):
        browser.records.store.forget("toys", "unit-77")


def test_a_file_with_forgotten_units_is_stored_without_them_if_asked(browser: Browser) -> None:
    row = b'{"unit_id": "unit-77", "text": "a green toy", "label": "green"}\n'
    upload(browser, row)
    browser.done(f"{HOME}/forget", {"unit": "unit-77", "sure": "yes"})
    assert upload(browser, row, skip_forgotten="true").status_code == 303
    assert "The others belong to 1 forgotten units and were left out." in browser.get(f"{HOME}/exemplars").text
    with pytest.raises(LookupError):
        browser.records.store.forget("toys", "unit-77")
    upload(browser, row)
    assert "Forgotten units that are back: 1." in browser.get(f"{HOME}/exemplars").text
    assert browser.records.store.forget("toys", "unit-77") == 1


def test_a_table_is_read_in_its_encoding_or_not_at_all(browser: Browser) -> None:
    table = "unit_id;text;label\nann;ein Bär;red\n"
    refused = upload(browser, table.encode("cp1252"), "t.csv").text
    assert "Row 2: is not UTF-8" in refused
    assert "it looks like cp1252: write its encoding under “Encoding”" in refused
    assert "ein B" not in refused
    unknown = upload(browser, table.encode("cp1252"), "t.csv", encoding="cp125").text
    assert "&#39;cp125&#39; is not the name of a text encoding" in unknown
    assert upload(browser, table.encode("cp1252"), "t.csv", encoding="cp1252").status_code == 303
    assert browser.records.store.forget("toys", "ann") == 1
    assert "a workbook" in upload(browser, b"PK\x03\x04", "t.csv").text
    assert upload(browser, table.encode("utf-16"), "t.csv").status_code == 303
    assert browser.records.store.forget("toys", "ann") == 1


def test_an_empty_knowledge_base_is_deleted(browser: Browser) -> None:
    browser.records.create_knowledge_base(
        "typo", epsilon=1, delta=1e-5, public_size=60, fields=["text"], embedded_field="text"
    )
    assert re.search(r'<form[^>]*/delete"[^>]*data-confirm="[^"]', browser.get("/knowledge-bases/typo/settings").text)
    assert browser.done("/knowledge-bases/typo/delete", {}) == "/"
    assert browser.get("/knowledge-bases/typo").status_code == 404
    refused = browser.post(f"{HOME}/delete", {})
    assert (refused.status_code, 'role="alert">Nothing was' in refused.text) == (409, True)
    assert browser.get(HOME).status_code == 200


def test_a_knowledge_base_is_archived_only_with_its_name_entered(browser: Browser) -> None:
    settings = browser.get(f"{HOME}/settings").text
    assert re.search(r'<form[^>]*/archive"[^>]*data-confirm="[^"]', settings)
    for given in ({"name": "Toys"}, {"confirm": "permanent"}):
        browser.refused(f"{HOME}/archive", given, "name")
    assert browser.done(f"{HOME}/archive", {"name": "toys"}) == HOME
    assert "toys archived" in browser.read("/")
    assert "no knowledge base that" in browser.read("/plans")
    for path in ("", "/plans", "/exemplars", "/settings", "/cohorts"):
        page = browser.get(f"{HOME}{path}").text
        assert not any(gone in page for gone in (">Upload<", "Write a plan", 'archive"', "Open cohort"))
    for refused in (upload(browser, ROW), browser.post(f"{HOME}/plan", {"text": PLAN})):
        assert "is archived permanently" in refused.text


def test_a_knowledge_base_is_created_with_its_budget(browser: Browser) -> None:
    blank = browser.get("/new-knowledge-base").text
    assert 'name="fields" type="text" value="text, label"' in blank
    asked = browser.post("/new-knowledge-base", {**NEW, "remote_engine": "yes"})
    assert "notes gets the lifetime budget (ε = 6, δ = 0.00001)" in words(asked.text)
    assert "text, code" in words(asked.text)
    response = browser.confirm(asked)
    assert (response.status_code, response.headers["location"]) == (303, "/admin/knowledge-bases/notes/exemplars")
    notices = [browser.get("/knowledge-bases/notes").text.count('role="status"') for _ in range(2)]
    assert notices == [1, 0]
    described = browser.records.store.get("notes")
    assert (described.public_size, described.fields, described.remote_engine) == (20000, ("text", "code"), True)
    budget = browser.records.ledger.budgets.status("notes").tightest
    assert (float(budget.epsilon), float(budget.delta)) == (6, 1e-5)


def test_it_is_enough_to_name_the_columns(browser: Browser) -> None:
    """The folded fields are sent, too, and must not contradict the entries."""
    entries = re.findall(r'<input id="\w+" name="(\w+)"[^>]*? value="([^"]*)"', browser.get("/new-knowledge-base").text)
    assert {"fields", "embedded_field", "response_field"} <= dict(entries).keys()
    visible = {name: NEW[name] for name in ("name", "epsilon", "delta", "public_size")}
    browser.done("/new-knowledge-base", dict(entries) | visible | {"fields": "question, answer"})
    described = browser.records.store.get("notes")
    assert (described.fields, described.embedded_field) == (("question", "answer"), "question")


def test_a_weak_promise_is_asked_about(browser: Browser) -> None:
    weak = {**NEW, "epsilon": "1000", "public_size": "3"}
    asked = browser.post("/new-knowledge-base", weak)
    assert asked.status_code == 422
    assert re.search("Nothing is done yet. .*ε = 1000 .*size of 3 ", words(asked.text))
    for confirmed in ("weak_promise", "permanent", *re.findall('name="confirm" value="([^"]+)"', asked.text)):
        browser.post("/new-knowledge-base", {**weak, "confirm": confirmed, "epsilon": "900"})
    assert [known.name for known in browser.records.store.list()] == ["toys"]
    changed = browser.post("/new-knowledge-base", {**weak, "change": "yes"})
    assert (changed.status_code, 'value="1000"' in changed.text) == (200, True)
    browser.done("/new-knowledge-base", weak)


def test_a_confirmation_is_for_the_figures_that_were_shown(browser: Browser) -> None:
    shown = browser.post("/new-knowledge-base", NEW).text
    (token,) = re.findall('name="confirm" value="([^"]+)"', shown)
    for field, other in {"name": "others", "epsilon": "6.1", "delta": "2e-5", "public_size": "20001"}.items():
        page = browser.post("/new-knowledge-base", NEW | {field: other, "confirm": token})
        assert (page.status_code, "Nothing is done yet" in page.text) == (422, True), field
    assert browser.post("/new-knowledge-base", NEW | {"confirm": token}).status_code == 303


def test_a_wrong_entry_is_explained_at_its_field(browser: Browser) -> None:
    for change, field, status in (
        ({"name": "toys"}, "name", 409),
        ({"epsilon": "plenty"}, "epsilon", 422),
        ({"fields": "text, 1st"}, "fields", 422),
    ):
        page = browser.refused("/new-knowledge-base", {**NEW, **change}, field, status)
        for name, given in {**NEW, **change}.items():  # the entries are kept
            assert f'id="{name}" name="{name}" type="text" value="{given}"' in page
    assert [known.name for known in browser.records.store.list()] == ["toys"]


def test_exemplars_are_uploaded(browser: Browser) -> None:
    for content, name in ((ROW, "new.jsonl"), (b"unit_id,text,label\nnew,secret-7,green\n", "NEW.CSV")):
        assert upload(browser, content, name).status_code == 303
        page = browser.get(f"{HOME}/exemplars").text
        assert "secret-7" not in page
        assert f"“chief” ({browser.key.id}) uploaded exemplars to toys" in words(page)
        assert browser.records.store.forget("toys", "new") == 1


def test_a_file_is_looked_at_before_it_is_stored(browser: Browser) -> None:
    """As people have them: a preamble, another delimiter, other names of columns, incomplete rows."""
    rows = "".join(f"{n % 3};toy {n};{('green', 'red', '')[n % 3]};{n}\n" for n in range(12))
    file = f"Toys of March\n\nOwner;Toy;Colour;Shelf\n{rows}".encode()
    columns = {"unit_id": "Owner", "column_text": "Toy", "column_label": "Colour"}
    where = f"{HOME}/exemplars/look"
    before = list(browser.records.audit.export())
    page = upload(browser, file, "toys.csv", to=where, **columns)
    assert (page.status_code, "row 3 has 3 of the columns" in page.text) == (422, True)
    assert "write 2 under “Rows before the header”" in page.text
    page = upload(browser, file, "toys.csv", to=where, **columns, skip_lines="2")
    assert "tick “Leave out incomplete rows”" in page.text
    assert "--" not in re.search('id="file-problem">(.*?)</p>', page.text)[1]
    given = {**columns, "skip_lines": "2", "skip_incomplete": "true"}
    page = upload(browser, file, "toys.csv", to=where, **given)
    shown = words(page.text)
    assert page.status_code == 200
    assert "8 exemplars of 2 new units, from 8 rows" in shown
    assert "Left out: 4 rows whose Colour is empty." in shown
    assert "label : green 4, red 4" in shown
    assert "Columns that are not stored: Shelf" in shown
    assert "4 0 toy 0 green" in shown
    assert list(browser.records.audit.export()) == before
    part = browser.post(where, given, files={"file": ("toys.csv", file)}, headers={"HX-Request": "true"})
    assert (part.status_code, "<html" in part.text, "What would be stored" in part.text) == (200, False, True)
    wrong = upload(browser, file, "toys.csv", to=where, **given | {"skip_lines": "one"})
    assert (wrong.status_code, "such as" in wrong.text) == (422, True)
    assert upload(browser, file, "toys.csv", **given).status_code == 303
    assert "8 of 12 rows of the file are stored" in words(browser.get(f"{HOME}/exemplars").text)


def test_a_bad_file_is_refused_whole_and_not_repeated(browser: Browser) -> None:
    for content, name, problem in (
        (ROW + b'{"text": 3}\n', "a.jsonl", "Row 2"),
        (b"unit_id,text\nnew,secret-7\n", "a.csv", "label"),
        (b"secret-7", "a.docx", "must end in .csv"),
        (b"PK\x03\x04secret-7", "a.xlsx", "It is not a workbook"),
        (b"", "", "Choose a file first."),
        (b"".join(ROW.replace(b"7", b"7 %d" % i) for i in range(1001)), "a.ndjson", "more than 1,000 exemplars"),
    ):
        response = upload(browser, content, name)
        assert response.status_code == 422
        assert problem in re.search('id="file-problem">(.*?)</p>', response.text)[1]
        assert "secret-7" not in response.text
        with pytest.raises(LookupError):
            browser.records.store.forget("toys", "new")


def test_an_upload_while_the_embedder_is_down_is_refused(services: Services) -> None:
    down = Mock(side_effect=EngineUnavailableError("the embedder does not answer"))
    browser = signed_in(open_services(services.records, MajorityEngine(), Embedding(down)))
    response = upload(browser, ROW)
    assert (response.status_code, 'id="file-problem"' in response.text) == (503, True)
    with pytest.raises(LookupError):
        services.records.store.forget("toys", "new")


def test_uploads_of_several_megabytes_stay_in_memory(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SpooledTemporaryFile, "rollover", Mock(side_effect=AssertionError("written to disk")))
    row = {"text": "t" * 15_000, "label": "green"}
    rows = b"".join(json.dumps({**row, "unit_id": f"new {i}"}).encode() + b"\n" for i in range(150))
    assert len(rows) > 2 * 1024 * 1024
    assert upload(browser, rows).status_code == 303


def test_an_upload_has_a_limit(tmp_path: Path) -> None:
    browser = signed_in(serving(tmp_path, max_upload_bytes=1024))
    assert upload(browser, b"x" * (2 * 1024 * 1024)).status_code == 413


def test_an_engine_outside_is_allowed_and_forbidden(browser: Browser) -> None:
    for allowed in ("yes", "no"):
        assert browser.done(f"{HOME}/remote-engine", {"remote_engine": allowed}) == f"{HOME}/settings"
        assert browser.records.store.get("toys").remote_engine is (allowed == "yes")
        assert browser.records.audit.events(newest_first=True, limit=1)[0].particulars.by == browser.key.id


@pytest.mark.parametrize("error", [sa.exc.OperationalError, sa.exc.InternalError])
def test_a_database_that_is_gone_is_reported_and_logged(
    browser: Browser, error: type[sa.exc.DBAPIError], monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = error("SELECT secret-7", {}, OSError("secret-7"))
    monkeypatch.setattr(browser.records.store, "get", Mock(side_effect=gone))
    with capture_logs() as logs:
        page = browser.get(HOME)
    assert (page.status_code, "database does not" in page.text) == (503, True)
    (logged,) = [log for log in logs if log["event"] == "database_unavailable"]
    assert logged["error"] == error.__name__
    assert "secret-7" not in page.text + str(logs)


def test_an_unknown_knowledge_base_is_a_page_for_people(browser: Browser) -> None:
    nowhere = "/knowledge-bases/nowhere"
    pages = [browser.get(f"{nowhere}{path}") for path in ("", *(f"/{tab}" for tab in TABS))]
    pages += [browser.post(f"{nowhere}{path}") for path in ("/remote-engine", "/archive", "/exemplars", "/cohorts")]
    for page in pages:
        assert (page.status_code, "no knowledge base named" in page.text) == (404, True)


def test_the_page_does_not_change_with_private_data(browser: Browser) -> None:
    """The same public history over other exemplars gives the same page, except for the times on it."""

    def pages() -> list[str]:
        return [re.sub(r'As of <time.*?</time>| d="[^"]+"|\b\d\d:\d\d\b', "", browser.get(path).text) for path in PAGES]

    before = pages()
    with browser.records.database.begin() as connection:
        connection.exec_driver_sql("DELETE FROM exemplars")
        connection.exec_driver_sql("DELETE FROM units")
    assert pages() == before
