"""The dashboard in a real browser: an admin's whole first hour."""

import re
from pathlib import Path

import pytest
from playwright.sync_api import Browser, expect

from tests.e2e.browser import Window
from tests.e2e.dashboard.conftest import DESK, Service, shoot, sign_in
from tests.e2e.serving import SUPPORT

pytestmark = pytest.mark.browser


def test_the_first_hour(service: Service, browser: Browser, tmp_path: Path) -> None:
    """The admin uses the keyboard alone, except to choose a file."""
    window = Window(browser, viewport=DESK, color_scheme="light")
    page, press = window.page, window.page.keyboard.press

    page.goto(f"{service.url}/admin/")
    window.check()
    shoot(window, "sign-in")
    sign_in(window, service)
    assert page.url == f"{service.url}/admin/"
    press("Tab")
    assert window.focused() == "Skip to the content"
    press("Enter")
    assert window.focused().startswith("Overview")
    window.check()

    window.follow("Create a knowledge base with its lifetime budget")
    page.wait_for_url("**/new-knowledge-base")
    window.check()
    window.tab_to("name")
    for text in ("support", "8", "2e-4", "900", "text, team, desk, reply"):
        press("Control+a")
        page.keyboard.type(text)
        press("Tab")
    window.follow("Create the knowledge base")
    expect(page.get_by_role("alert")).to_contain_text("support gets the lifetime budget (ε = 8, δ = 0.0002)")
    window.complaints.clear()  # the browser notes a form that must be confirmed
    window.check()
    window.follow("Do it for good")
    expect(page.get_by_role("status")).to_contain_text("“support” was created with its lifetime budget")
    window.check()

    few = tmp_path / "tickets.jsonl"
    rows = (SUPPORT / "tickets.jsonl").read_text().splitlines()[:150]
    few.write_text("\n".join([*rows, '{"unit_id": "u", "text": "half a row"}']))
    page.get_by_label("File", exact=True).set_input_files(few)
    page.get_by_role("button", name="Upload").click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was stored. Row 151, field 'team': is missing")
    window.complaints.clear()  # the browser notes a refused form
    few.write_text("\n".join(rows))
    page.get_by_label("File", exact=True).set_input_files(few)
    page.get_by_role("button", name="Look at it first").click()
    looked = page.get_by_role("region", name="What would be stored")
    expect(looked).to_contain_text("150 exemplars of")
    expect(looked.get_by_role("table", name="The first rows").get_by_role("row")).to_have_count(11)
    window.check()
    window.follow("Upload")
    expect(page.get_by_role("status")).to_contain_text("Done: every row of the file is stored")
    expect(page.get_by_role("region", name="What was done to support")).to_contain_text("Maria")
    window.check()

    window.follow("Write a plan")
    page.wait_for_url("**/knowledge-bases/support/plan")
    window.check()
    window.follow("write it by hand")
    window.tab_to("text")
    press("Control+a")
    page.keyboard.insert_text((SUPPORT / "plan.yaml").read_text())
    expect(page.get_by_text("A label wins if 20 more of 100 slots vote").first).to_be_visible()
    window.check()
    shoot(window, "plan-studio")
    window.follow("Sign this plan…")
    window.check()
    shoot(window, "sign-a-plan")
    window.tab_to("name")
    page.keyboard.type("support")
    window.follow("Take ε 4 for good and sign")
    expect(page.get_by_role("status")).to_contain_text("signed")
    window.check()


def test_answers_are_watched_and_a_key_is_stopped(service: Service, browser: Browser) -> None:
    window = Window(browser, viewport=DESK, color_scheme="light")
    page, press = window.page, window.page.keyboard.press
    sign_in(window, service)
    window.follow("Keys")
    window.tab_to("name")
    page.keyboard.type("ana")
    window.follow("Make the key")
    token = page.locator("#token").inner_text()
    assert token.startswith("dpicl_")
    window.check()

    page.goto(f"{service.url}/admin/")
    left = page.get_by_role("table", name="Answers left of support").get_by_role("row", name="team@1")
    expect(left).to_contain_text("100 answers left")
    page.locator("#burn-support-summary").press("Enter")
    page.get_by_role("link", name="support", exact=True).focus()
    for number in range(3):
        answer = service.ask(token, f"Where is parcel {number}?")
        assert answer.status_code == 200, answer.text
    expect(left).to_contain_text("97 answers left")  # the page updates itself
    assert window.focused() == "support"
    assert page.locator("#burn-support-numbers").get_attribute("open") is not None
    page.locator("#burn-support-summary").press("Enter")
    window.check()

    window.follow("support")
    window.check()
    window.follow("Releases")
    # A header, three answers, and the release made when the plan was signed.
    expect(page.get_by_role("region", name="Table of releases").get_by_role("row")).to_have_count(5)
    window.check()
    page.goto(f"{service.url}/admin/knowledge-bases/support#plans")  # the fragment leads to the tab
    page.wait_for_url("**/knowledge-bases/support/plans")
    window.check()
    window.follow("Usage")
    window.check()

    page.goto(f"{service.url}/admin/keys")
    window.check()
    window.follow("Change or revoke ana")
    window.tab_to("Revoke")
    press("Enter")
    window.tab_to("sure")
    press("Space")
    window.follow("Revoke “ana”")
    expect(page.get_by_role("status")).to_be_visible()
    assert service.ask(token, "Where is parcel 9?").status_code == 401
    window.check()

    page.goto(f"{service.url}/admin/audit")
    expect(page.get_by_role("main")).to_contain_text("ana")
    window.check()
    window.follow("Sign out")
    expect(page.get_by_role("status")).to_have_text("You are signed out.")


def test_the_chosen_look_overrides_the_system(service: Service, browser: Browser) -> None:
    window = Window(browser, viewport=DESK, color_scheme="light")
    body = window.page.locator("body")
    sign_in(window, service)
    light = body.evaluate("body => getComputedStyle(body).backgroundColor")
    window.page.get_by_role("button", name="Dark").press("Enter")
    expect(window.page.get_by_role("button", name="Dark")).to_have_attribute("aria-pressed", "true")
    dark = body.evaluate("body => getComputedStyle(body).backgroundColor")
    assert dark != light
    window.page.goto(f"{service.url}/admin/new-knowledge-base")
    expect(body).to_have_css("background-color", dark)
    window.page.get_by_role("button", name="As the system").press("Enter")
    expect(body).to_have_css("background-color", light)
    expect(window.page).to_have_url(re.compile("/admin/new-knowledge-base$"))
    assert window.complaints == []


def test_own_columns_are_accepted_at_once(service: Service, browser: Browser) -> None:
    window = Window(browser, viewport=DESK, color_scheme="light")
    page = window.page
    sign_in(window, service)
    page.goto(f"{service.url}/admin/new-knowledge-base")
    columns = {"Name": "faq", "Public size": "900", "Fields of an exemplar": "question, answer"}
    for label, entered in (columns | {"ε, all plans together": "6", "δ, all plans together": "1e-5"}).items():
        page.get_by_label(label, exact=True).fill(entered)
    page.get_by_role("button", name="Create the knowledge base").click()
    page.get_by_role("button", name="Do it for good").click()
    window.complaints.clear()  # the browser notes a form that must be confirmed
    expect(page.get_by_role("status")).to_contain_text("“faq” was created with its lifetime budget")
    assert service.records.store.get("faq").embedded_field == "question"
    window.check()
