"""An analyst's page: questions asked in the browser, and the asker's own answers to read again."""

import re

import pytest
import sqlalchemy as sa

from accounting.ledger.history import History
from service.operations.services import Services
from tests.service.gateway.dashboard.dashboard_browser import Browser, words

ANSWER = re.compile(r"^.*?Answer (red|blue) How sure Not measured Cost 1 answer; (\d+) answers left")


@pytest.fixture
def ana(stranger: Browser) -> Browser:
    """The browser of an analyst who is signed in."""
    stranger.key, stranger.token = stranger.records.keys.create("ana", "analyst")
    assert stranger.sign_in().status_code == 303
    return stranger


def ask(browser: Browser, text: str = "a toy", task: str = "toys.colour", **more: str):
    found = re.search(r'name="csrf" value="([^"]+)"', browser.get("/ask").text)
    return browser.client.post("/admin/ask", data={"csrf": found[1], "task": task, "query_text": text, **more})


def listed(browser: Browser, path: str = "/ask") -> list[str]:
    """Rows of the table of one's own answers."""
    return [words(row) for row in re.findall(r"<tr><th scope=\"row\".*?</tr>", browser.get(path).text, re.DOTALL)]


def test_the_answer_comes_first_then_how_sure_it_is_then_its_cost(ana: Browser) -> None:
    assert "Nothing was charged to your key yet" in ana.read("/ask")
    page = words(ask(ana).text)
    assert ANSWER.search(page)[2] == "19"
    again = words(ask(ana).text)
    assert "Cost Free; 19 answers left" in again
    assert len(listed(ana)) == 1, "a repeat was free"


def test_own_answers_are_read_again_page_by_page(ana: Browser) -> None:
    for number in range(11):
        assert ask(ana, f"toy {number}").status_code == 200
    spent = ana.records.keys.get(ana.key.id).charged
    first = ana.get("/ask").text
    older = re.search(r'href="/admin(/ask\?before=\d+)#own-title"', first)[1]
    rows = listed(ana) + listed(ana, older)
    assert (len(listed(ana)), len(rows)) == (9, 11)
    assert all(re.fullmatch(r"(red|blue) Not measured 1 answer toys.colour@1 .* UTC", row) for row in rows)
    assert "toy 3" not in first, "questions are not stored"
    assert ana.records.keys.get(ana.key.id).charged == spent
    for beyond in ("9" * 30, "x", "1"):
        assert ana.get("/ask", params={"before": beyond}).status_code == 200


def test_answers_of_other_keys_are_not_listed(ana: Browser) -> None:
    _, token = ana.records.keys.create("bo", "analyst")
    assert ana.ask(token, "what bo asks").status_code == 200
    assert listed(ana) == []
    assert ask(ana, "what bo asks").status_code == 200  # bo's release, free
    assert listed(ana) == []


def test_a_charge_without_an_answer_is_listed_as_such(ana: Browser) -> None:
    ledger = ana.records.ledger
    task = ledger.budgets.task("toys.colour")
    voided = ledger.charge(task, b"1", key_id=ana.key.id)
    ledger.void(voided.id, "test")
    ledger.charge(task, b"2", key_id=ana.key.id)
    being_answered, given_back = listed(ana)
    assert being_answered.startswith("being answered 1 answer")
    assert given_back.startswith("not answered nothing")
    assert [charge.state for charge in History(ana.records.database).charges_of(ana.key.id)] == ["charged", "voided"]


def test_a_refused_question_stays_in_the_form(ana: Browser, toy_engine) -> None:
    for fields, status, says in (
        ({"text": " "}, 422, "text is empty"),
        ({"task": "toys.shape"}, 422, "choose a task"),
        ({"task": ""}, 422, "choose a task"),
    ):
        refused = ask(ana, **{"text": "a <b> toy", **fields})
        assert refused.status_code == status
        assert says in words(refused.text).replace("Choose", "choose").replace("Text is", "text is")
    toy_engine.down = True
    refused = ask(ana, "a <b> toy")
    assert (refused.status_code, "a &lt;b&gt; toy" in refused.text) == (503, True)
    assert "nothing was charged" in words(refused.text)
    toy_engine.down = False
    assert ana.records.ledger.answers_left(ana.records.ledger.budgets.task("toys.colour")) == 20


def test_limits_and_scopes_of_the_key_hold_in_the_browser(services: Services) -> None:
    keys = services.records.keys
    limited = Browser(services)
    _, limited.token = keys.create("lim", "analyst", rate_per_minute=2, quota=1)
    assert limited.sign_in().status_code == 303
    assert ask(limited, "one").status_code == 200
    exhausted = ask(limited, "two")
    assert (exhausted.status_code, 'id="query-problem"' in exhausted.text) == (402, True)
    late = ask(limited, "three")
    assert (late.status_code, "Ask again in" in late.text, "retry-after" in late.headers) == (429, True, True)
    scoped = Browser(services)
    _, scoped.token = keys.create("sco", "analyst", scope=["cars"])
    assert scoped.sign_in().status_code == 303
    assert "no task that this key may ask" in scoped.read("/ask")
    assert ask(scoped).status_code == 422
    assert listed(scoped) == []


def test_no_other_role_asks_here(browser: Browser) -> None:
    assert 'href="/admin/ask"' not in browser.get("/").text
    assert browser.get("/ask").status_code == 403
    assert browser.post("/ask", {"task": "toys.colour", "query_text": "x"}).status_code == 403


def test_a_calibrated_probability_is_shown_in_words(ana: Browser) -> None:
    ledger = ana.records.ledger
    task = ledger.budgets.task("toys.colour")
    for digest, share, says in ((b"1", 0.97, "Almost certainly right (97 %)"), (b"2", 0.3, "Doubtful (30 %)")):
        charge = ledger.charge(task, digest, key_id=ana.key.id)
        ledger.release(charge.id, {"label": "red", "probability": share, "probabilities": {"red": share}})
        assert f"red {says}, by the public rows that the plan was fitted to 1 answer" in listed(ana)[0]
    measured = {"accuracy": 0.861, "standard_error": 0.011, "units": 1090.2}
    charge = ledger.charge(task, b"3", key_id=ana.key.id)
    ledger.release(charge.id, {"label": "red", "measured": measured})
    assert "right in 86.1 % ± 1.1 of about 1,090 people left out" in listed(ana)[0]


def test_own_answers_are_found_by_the_key_however_many_others_there_are(services: Services) -> None:
    database, asked = services.records.database, []
    with database.connect() as connection:
        sa.event.listen(database, "before_cursor_execute", lambda *call: asked.append(call[2:4]))
        History(database).charges_of("k", before=9)
        statement, values = next(call for call in asked if "audit_events" in call[0])
        plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {statement}", values).all()
    assert "ix_audit_events_key_id_sequence (key_id=?" in str(plan)
