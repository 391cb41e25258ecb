"""The audit trail on the dashboard: in sentences, filtered, replayed, exported, and without anything private."""

import html
import json
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from accounting.ledger.tables import audit_events
from accounting.ledger.trail import AuditEvent
from accounting.plans.plan import load_plan
from accounting.replay.trail import verify
from exemplar_store import Row
from service.answering.plans.signing import prepare, sign
from service.gateway.dashboard import audit
from service.operations.audit import in_words
from tests.service.conftest import PLAN, embed
from tests.service.gateway.dashboard.dashboard_browser import HTMX, Browser
from tests.service.gateway.dashboard.test_dashboard_knowledge_base import PAGES, upload

CANARY, UNIT = "canary-marmalade", "canary-unit-4711"
RESTORED = '{"by":"root","charges":2,"common":9,"witness":{"hash":"0","sequence":11}}'


@pytest.fixture
def token(browser: Browser) -> str:
    """The token of an analyst called ana, after many kinds of events by her and by the dashboard's admin."""
    records = browser.records
    records.ingest("toys", [Row(1, UNIT, {"text": CANARY, "label": "blue"})], embed, by=browser.key.id)
    records.forget("toys", UNIT, by="root")
    records.allow_remote_engine("toys", True, by=browser.key.id)
    records.allow_remote_engine("toys", False, by=browser.key.id)
    key, token = records.keys.create("ana", "analyst", quota=1, by=browser.key.id)
    assert browser.ask(token, f"a toy, {CANARY}").status_code == 200
    assert browser.ask(token, f"another, {CANARY}").status_code == 402
    records.keys.limit(key.id, quota=9, rate_per_minute=None, by=browser.key.id)
    records.create_knowledge_base(
        "cars", epsilon=1, delta=1e-6, public_size=50, fields=["text", "label"], embedded_field="text"
    )
    return token


def sentences(page: str) -> list[str]:
    return re.findall(r'<summary id="event-[^>]*>(.*?)</summary>', page)


def test_events_are_listed_newest_first(browser: Browser, token: str) -> None:
    page = browser.get("/audit").text
    told = [html.unescape(sentence) for sentence in sentences(page)]
    (ana,) = (key.id for key in browser.records.keys.list() if key.name == "ana")
    chief, ana = f"“chief” ({browser.key.id})", f"“ana” ({ana})"
    assert told == [
        "The command line created cars with ε 1 and δ 0.000001 for its whole life.",
        f"{chief} changed the limits of the key {ana}: a quota of 9 answers and no rate limit.",
        f"{ana} was refused by toys.colour@1 once: quota exhausted.",
        "An answer of toys.colour@1 was released.",
        f"{ana} was charged an answer of toys.colour@1.",
        f"{chief} created the analyst key {ana}, with a quota of 1 answer and no rate limit.",
        f"{chief} forbade engines outside the deployment for toys.",
        f"{chief} allowed engines outside the deployment for toys.",
        "“root” deleted a unit of toys.",
    ]
    head = browser.records.audit.head()
    assert f'<code id="head">{head.hash}</code>' in browser.get("/audit/verify").text


ONE_CHARGE = '{"charge":"c","reason":"engine-unavailable","task":"toys.colour@1"}'


@pytest.mark.parametrize(
    ("kind", "body", "sentence"),
    [
        ("void", ONE_CHARGE, ": engine unavailable."),
        ("key.revoked", '{"by":"a","key":"b"}', "“ana” (a) revoked the key “bo” (b)."),
        ("key.signed_in", '{"key":"a"}', "“ana” (a) signed in to the dashboard."),
        ("encryption_key.changed", '{"by":"x","fingerprint":"0ab1"}', "“x” changed the encryption key to 0ab1."),
        ("ledger.restored", RESTORED, "at event 9: 2 answers"),
        ("newer.kind", "{}", "newer.kind."),
    ],
)
def test_every_kind_has_a_sentence(kind: str, body: str, sentence: str) -> None:
    event = AuditEvent(7, datetime.now(UTC), kind, body, "0" * 64, "1" * 64)
    assert sentence in in_words(event, {"a": "ana", "b": "bo"}).sentence


def test_the_trail_is_filtered(browser: Browser, token: str) -> None:
    ana, today = next(key for key in browser.records.keys.list() if key.name == "ana"), datetime.now(UTC).date()
    for wanted, times in (
        ("kind=release", 1),
        ("knowledge_base=cars", 1),
        (f"key={ana.id}", 4),
        (f"day={today}&kind=", 9),
        (f"day={today - timedelta(days=40)}", 0),
        ("day=9999-12-31", 0),
        ("day=0001-01-01", 0),
        ("kind=nothing", 0),
    ):
        page = browser.get(f"/audit?{wanted}").text
        assert (len(sentences(page)), "No event matches" in page) == (times, not times), wanted
    wrong = browser.get("/audit?day=yesterday")
    assert (wrong.status_code, 'id="day-problem"' in wrong.text) == (422, True)
    assert f'value="{ana.id}" selected' in browser.get(f"/audit?key={ana.id}&before=x").text


def test_namesakes_are_distinguished_by_their_ids(browser: Browser) -> None:
    """The trail has ids; people are shown names beside them, if they may audit."""
    keys, first = browser.records.keys, browser.key
    second, _ = keys.create("chief", "admin")
    tiny = PLAN.replace("epsilon: 4, delta: 1.0e-4", "epsilon: 1, delta: 1.0e-5")
    calibrated = prepare(browser.records, load_plan(tiny))
    for key, version in ((second, 2), (first, 3)):
        newest = browser.records.ledger.budgets.newest_equal("toys", calibrated.model_dump_json())
        sign(browser.records, calibrated, key.id, again=newest)
        (sentence,) = sentences(browser.get(f"/audit?key={key.id}&kind=plan.signed").text)
        assert sentence.startswith(f"“chief” ({key.id}) signed plan {version} of toys")
        assert f"chief ({key.id})</option>" in browser.get("/audit").text
        assert f"by chief ({key.id})" in browser.get(f"/knowledge-bases/toys/plans/{version}").text
    asking = [keys.create("ana", "analyst") for _ in range(2)]
    assert [browser.ask(token, token).status_code for _, token in asking] == [200, 200]
    usage = browser.get("/knowledge-bases/toys/usage?by=key").text
    assert all(f'<th scope="row">ana ({key.id})</th>' in usage for key, _ in asking)
    browser.sign_in(keys.create("vera", "viewer")[1])
    assert f"by {second.id}" in browser.get("/knowledge-bases/toys/plans/2").text


def test_older_events_are_a_page_away(browser: Browser) -> None:
    for i in range(17):
        browser.records.keys.create(f"key {i}", "analyst")
    newest = browser.get("/audit?kind=key.created").text
    older = re.search(r'id="older" href="/admin(/audit[^"#]*)', newest)[1].replace("&amp;", "&")
    page = browser.get(older).text
    assert (len(sentences(newest)), len(sentences(page))) == (9, 9)
    assert "“key 7”" in sentences(page)[0]
    assert ('id="older"' in page, 'id="newest"' in page) == (False, True)
    for far in ("9" * 20, "9" * 5000):  # more than a database's integers hold, and more than Python reads
        assert sentences(browser.get(f"/audit?kind=key.created&before={far}").text) == sentences(newest)


def test_an_unchanged_trail_is_confirmed(browser: Browser, token: str) -> None:
    head = browser.records.audit.head().hash
    done = browser.post("/audit/verify", {"recompute": "yes", "heads": head}).text
    for shown in ("nothing wrong", f'<code id="replayed-head">{head}</code>', "<code>toys.colour@1</code>"):
        assert shown in done
    assert all(f"<td>{accountant}</td>" in done for accountant in ("PLD", "PRV", "RDP"))
    quick = browser.post("/audit/verify", {"heads": "f" * 64}).text
    assert "computed again" not in quick.partition("</section>")[0]
    assert f"no event has the hash {'f' * 64}" in quick
    assert browser.post("/audit/verify", {"heads": "zz"}).status_code == 422


def test_a_changed_trail_is_found_out_however_often_it_was_confirmed(browser: Browser, token: str) -> None:
    assert "nothing wrong" in browser.post("/audit/verify").text
    with browser.records.database.begin() as connection:
        # A person with access to the database could do this.
        triggers = connection.execute(sa.text("SELECT name FROM sqlite_master WHERE type = 'trigger'")).scalars().all()
        for trigger in triggers:
            connection.execute(sa.text(f'DROP TRIGGER "{trigger}"'))
        connection.execute(
            sa.update(audit_events)
            .where(audit_events.c.kind == "key.created")
            .values(body=sa.func.replace(audit_events.c.body, '"ana"', '"bob"'))
        )
    changed = browser.post("/audit/verify").text
    assert "problem" in changed
    assert "does not have the hash" in changed


def test_a_long_replay_is_announced_and_waited_for(
    browser: Browser, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "_WAIT_S", 0.0)
    first = browser.post("/audit/verify", {"recompute": "yes"}).text
    assert "Replaying. " in first
    job = re.search(r'name="job" value="([^"]+)"', first)[1]
    for _ in range(60):
        part = browser.post("/audit/verify", {"job": job, "recompute": "yes"}, headers=HTMX).text
        if "Look again" not in part:
            break
        time.sleep(0.2)
    assert "nothing wrong" in part
    assert "<html" not in part


def test_the_export_is_the_trail(browser: Browser, token: str) -> None:
    export = browser.get("/audit/export")
    assert export.headers["content-type"].startswith("application/x-ndjson")
    assert re.fullmatch(r'attachment; filename="dpicl-audit-[\d-]+\.ndjson"', export.headers["content-disposition"])
    assert export.text.splitlines() == [line.rstrip("\n") for line in browser.records.audit.export()]
    assert verify(export.text.splitlines(), recompute=False).problems == []


def test_nothing_private_and_no_secret_is_on_any_page(browser: Browser, token: str) -> None:
    kept = {"unit_id": f"{UNIT}-kept", "text": f"{CANARY} text", "label": "red"}
    assert upload(browser, json.dumps(kept).encode()).status_code == 303
    paths = (*PAGES, "/new-knowledge-base", "/plans", "/keys", "/audit", "/audit/export")
    for page in (*map(browser.get, paths), browser.post("/audit/verify")):
        assert page.status_code == 200
        for secret in (CANARY, UNIT, token, browser.token):
            assert secret not in page.text
