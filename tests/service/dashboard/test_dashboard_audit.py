"""The audit trail on the dashboard: in sentences, filtered, replayed, exported, and without anything private."""

from __future__ import annotations

import io
import json
import re
import time
from datetime import UTC, datetime, timedelta

import pytest
import sqlalchemy as sa

from accounting.ledger.tables import audit_events, tasks
from accounting.ledger.trail import AuditEvent
from accounting.replay.trail import verify
from exemplar_store import Layout, read_json_lines
from service.dashboard import audit
from service.dashboard.audit_words import in_words
from service.services import Services
from tests.service.conftest import PLAN, embed
from tests.service.dashboard.dashboard_browser import Browser

CANARY, UNIT = "canary-marmalade", "canary-unit-4711"
HTMX = {"HX-Request": "true"}
RESTORED = '{"by":"root","charges":2,"common":9,"witness":{"hash":"0","sequence":11}}'


@pytest.fixture
def token(browser: Browser) -> str:
    """A day's work: everything that can happen, by the dashboard's admin and an analyst called ana."""
    records = browser.services.records
    exemplar = {"unit_id": UNIT, "text": CANARY, "label": "blue"}
    rows = read_json_lines(io.BytesIO(json.dumps(exemplar).encode()), Layout(("text", "label")))
    records.ingest("toys", rows, embed, by=browser.key.id)
    records.forget("toys", UNIT, by="root")
    records.allow_remote_engine("toys", True, by=browser.key.id)
    records.allow_remote_engine("toys", False, by=browser.key.id)
    key, token = records.keys.create("ana", "analyst", quota=1, by=browser.key.id)
    assert ask(browser, token, "a toy").status_code == 200
    assert ask(browser, token, "another").status_code == 402
    records.keys.limit(key.id, quota=9, rate_per_minute=None, by=browser.key.id)
    records.create_knowledge_base(
        "cars", epsilon=1, delta=1e-6, public_size=50, fields=["text", "label"], embedded_field="text"
    )
    return token


def ask(browser: Browser, token: str, query: str):
    return browser.client.post(
        "/v1/tasks/toys.colour/answers", json={"query": query}, headers={"Authorization": f"Bearer {token}"}
    )


def sentences(page: str) -> list[str]:
    return re.findall(r'<summary id="event-[^>]*>(.*?)</summary>', page)


def test_strangers_read_nothing(services: Services) -> None:
    stranger = Browser(services)
    for path in ("/audit", "/audit/export"):
        assert stranger.get(path).headers["location"].startswith("/admin/sign-in")
    assert stranger.post("/audit/verify").headers["location"].startswith("/admin/sign-in")
    assert stranger.sign_in().status_code == 303
    assert stranger.post("/audit/verify", {"csrf": "guessed"}).status_code == 403


def test_what_happened_is_told_newest_first(browser: Browser, token: str) -> None:
    page = browser.get("/audit").text
    told = [sentence.replace("&#39;", "'") for sentence in sentences(page)]
    assert told[0] == "The command line created cars with ε 1 and δ 0.000001 for its whole life."
    (ana,) = (key.id for key in browser.services.records.keys.list() if key.name == "ana")
    chief, ana = f"“chief” ({browser.key.id})", f"“ana” ({ana})"
    assert told[1] == f"{chief} changed the limits of the key {ana}: a quota of 9 answers and no rate limit."
    assert told[2] == f"{ana} was refused by toys.colour@1 once: quota exhausted."
    assert told[3] == "An answer of toys.colour@1 was released."
    assert told[4] == f"{ana} was charged an answer of toys.colour@1."
    assert told[5] == f"{chief} created the analyst key {ana}, with a quota of 1 answer and no rate limit."
    assert told[6:8] == [
        f"{chief} forbade engines outside the deployment for toys.",
        f"{chief} allowed engines outside the deployment for toys.",
    ]
    assert told[8] == "“root” deleted a unit of toys."
    uploads = sentences(browser.get("/audit?kind=exemplars.ingested").text)
    assert f"{chief} uploaded exemplars to toys." in uploads
    (signed,) = sentences(browser.get("/audit?kind=plan.signed").text)
    assert signed == "“test” signed plan 1 of toys: ε 4 and δ 0.0001 for 20 answers of colour."
    head = browser.services.records.audit.head()
    assert f'<code id="head">{head.hash}</code>' in browser.get("/audit/verify").text


def test_every_kind_has_a_sentence(services: Services) -> None:
    now = datetime.now(UTC)
    lost = AuditEvent(7, now, "lost", '{"charge":"c","task":"toys.colour@1"}', "0" * 64, "1" * 64)
    assert in_words(lost, {}).sentence == "A charge of toys.colour@1 ended without an answer. It stays spent."
    void = AuditEvent(8, now, "void", '{"charge":"c","reason":"engine-unavailable","task":"t@1"}', "0" * 64, "1" * 64)
    assert in_words(void, {}).sentence.endswith("before anything private was read: engine unavailable.")
    revoked = AuditEvent(9, now, "key.revoked", '{"by":"a","key":"b"}', "0" * 64, "1" * 64)
    assert in_words(revoked, {"a": "ana", "b": "bo"}).sentence == "“ana” (a) revoked the key “bo” (b)."
    for kind, sentence in (
        ("in", "“ana” (a) signed in to the dashboard."),
        ("out", "“ana” (a) signed out of the dashboard."),
    ):
        event = AuditEvent(10, now, f"key.signed_{kind}", '{"key":"a"}', "0" * 64, "1" * 64)
        assert in_words(event, {"a": "ana"}).sentence == sentence
    event = AuditEvent(10, now, "encryption_key.changed", '{"by":"a","fingerprint":"0ab1"}', "0" * 64, "1" * 64)
    assert in_words(event, {"a": "ana"}).sentence == "“ana” (a) changed the encryption key to 0ab1."
    restored = AuditEvent(11, now, "ledger.restored", RESTORED, "0" * 64, "1" * 64)
    assert "as it was at event 9: 2 answers given since stayed charged" in in_words(restored, {}).sentence
    assert in_words(AuditEvent(10, now, "newer.kind", "{}", "0" * 64, "1" * 64), {}).sentence == "newer.kind."


def test_the_trail_is_filtered(browser: Browser, token: str) -> None:
    ana = next(key for key in browser.services.records.keys.list() if key.name == "ana")
    assert sentences(browser.get("/audit?kind=release").text) == ["An answer of toys.colour@1 was released."]
    assert len(sentences(browser.get("/audit?knowledge_base=cars").text)) == 1
    mine = sentences(browser.get(f"/audit?key={ana.id}").text)
    assert len(mine) == 4
    assert all("“ana”" in sentence for sentence in mine)
    today = datetime.now(UTC).date()
    assert len(sentences(browser.get(f"/audit?day={today}&kind=").text)) == 9
    for nothing in (f"?day={today - timedelta(days=40)}", "?kind=nothing", "?knowledge_base=car", "?key=nobody"):
        page = browser.get(f"/audit{nothing}").text
        assert sentences(page) == []
        assert "No event matches" in page
    for nothing in ("9999-12-31", "0001-01-01"):
        assert "No event matches" in browser.get(f"/audit?day={nothing}").text
    wrong = browser.get("/audit?day=yesterday")
    assert wrong.status_code == 422
    assert "Write the day as 2027-03-14" in wrong.text
    assert f'value="{ana.id}" selected' in browser.get(f"/audit?key={ana.id}&before=x").text


def test_namesakes_are_told_apart(browser: Browser) -> None:
    """The trail has ids; people are shown names beside them, if they may audit."""
    records, first = browser.services.records, browser.key
    second, token = records.keys.create("chief", "admin")
    records.keys.create("test", "admin")  # as somebody on the command line is called, who has signed plan 1
    tiny, plans = (
        PLAN.replace("epsilon: 4, delta: 1.0e-4", "epsilon: 1, delta: 1.0e-5"),
        "/v1/knowledge-bases/toys/plans",
    )
    for bearer in (token, browser.token):
        signed = browser.client.post(
            f"{plans}?confirm=worse_than_free", content=tiny, headers={"Authorization": f"Bearer {bearer}"}
        )
        assert signed.status_code == 201
    assert [plan.signed_by for plan in records.ledger.budgets.plans("toys")] == ["test", second.id, first.id]
    events = [event.particulars for event in records.audit.events(kinds=["plan.signed"])]
    assert [event.signed_by for event in events] == ["test", second.id, first.id]

    for key, version in ((second, 2), (first, 3)):
        (sentence,) = sentences(browser.get(f"/audit?key={key.id}&kind=plan.signed").text)
        assert sentence.startswith(f"“chief” ({key.id}) signed plan {version} of toys")
        assert f"chief ({key.id})</option>" in browser.get("/audit").text
        assert f"by chief ({key.id})" in browser.get(f"/knowledge-bases/toys/plans/{version}").text
    listed = {key: [] for key in ("analyst", "auditor")}
    for role, found in listed.items():
        _, bearer = records.keys.create(role, role)
        data = browser.client.get(plans, headers={"Authorization": f"Bearer {bearer}"}).json()["data"]
        found += [(plan["signed_by"], plan["signed_by_name"]) for plan in data]
    assert listed["auditor"] == [("test", None), (second.id, "chief"), (first.id, "chief")]
    assert listed["analyst"] == [("test", None), (second.id, None), (first.id, None)]
    viewer = Browser(browser.services)
    viewer.sign_in(records.keys.create("vera", "viewer")[1])
    assert f"by {second.id}" in viewer.get("/knowledge-bases/toys/plans/2").text


def test_answers_of_namesakes_are_counted_apart(browser: Browser) -> None:
    keys = [browser.services.records.keys.create("ana", "analyst") for _ in range(2)]
    for number, (_, token) in enumerate(keys):
        assert ask(browser, token, f"toy {number}").status_code == 200
    page = browser.get("/knowledge-bases/toys/usage?by=key").text
    assert all(f'<th scope="row">ana ({key.id})</th>' in page for key, _ in keys)


def test_older_events_are_a_page_away(browser: Browser) -> None:
    records = browser.services.records
    for i in range(17):
        records.keys.create(f"key {i}", "analyst")
    newest = browser.get("/audit?kind=key.created").text
    assert len(sentences(newest)) == 9
    older = re.search(r'id="older" href="/admin(/audit[^"#]*)', newest)[1].replace("&amp;", "&")
    assert "kind=key.created" in older
    page = browser.get(older).text
    assert "“key 7”" in sentences(page)[0]
    assert len(sentences(page)) == 9
    assert 'id="older"' not in page
    assert 'id="newest"' in page
    for far in ("9" * 20, "9" * 5000):  # more than a database's integers hold, and more than Python reads
        assert sentences(browser.get(f"/audit?kind=key.created&before={far}").text) == sentences(newest)


def test_a_whole_trail_is_found_whole(browser: Browser, token: str) -> None:
    head = browser.services.records.audit.head().hash
    done = browser.post("/audit/verify", {"recompute": "yes", "heads": head})
    assert done.status_code == 200
    assert "nothing wrong" in done.text
    assert f'<code id="replayed-head">{head}</code>' in done.text
    assert "<code>toys.colour@1</code>" in done.text
    for accountant in ("PLD", "PRV", "RDP"):
        assert f"<td>{accountant}</td>" in done.text
    quick = browser.post("/audit/verify", {"heads": "f" * 64})
    assert "computed again" not in quick.text.partition("</section>")[0]
    assert f"no event has the hash {'f' * 64}" in quick.text
    assert browser.post("/audit/verify", {"heads": "zz"}).status_code == 422


def test_a_changed_trail_is_found_out_however_often_it_was_whole(browser: Browser, token: str) -> None:
    assert "nothing wrong" in browser.post("/audit/verify").text
    with browser.services.records.database.begin() as connection:
        # As one could who holds the database.
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
    assert "does not have the hash it was written with" in changed


def test_a_counter_that_was_lowered_is_found(browser: Browser, token: str) -> None:
    assert "nothing wrong" in browser.post("/audit/verify").text
    with browser.services.records.database.begin() as connection:
        connection.execute(sa.update(tasks).values(charged=0))
    assert "1 charges not voided, counter 0, 20 answers" in browser.post("/audit/verify").text


def test_a_long_replay_says_so_and_is_waited_for(browser: Browser, token: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(audit, "_WAIT_S", 0.0)
    first = browser.post("/audit/verify", {"recompute": "yes"}).text
    assert "Replaying. A long trail takes a while" in first
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
    assert export.text.splitlines() == [line.rstrip("\n") for line in browser.services.records.audit.export()]
    assert verify(export.text.splitlines(), recompute=False).problems == []


def test_nothing_private_and_no_secret_is_on_any_page(browser: Browser, token: str) -> None:
    pages = [browser.get("/audit"), browser.get("/audit/export"), browser.post("/audit/verify")]
    for page in pages:
        assert page.status_code == 200
        for secret in (CANARY, UNIT, token, browser.token, "another"):
            assert secret not in page.text
