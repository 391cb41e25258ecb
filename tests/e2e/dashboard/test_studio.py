"""The plan studio and the audit trail in a real browser: live with scripts, and complete without."""

import re

import pytest
from playwright.sync_api import Browser, Page, expect

from tests.e2e.browser import Window
from tests.e2e.dashboard.conftest import DESK, PHONE, Service, sign_in
from tests.processes import wait_for

pytestmark = [pytest.mark.browser, pytest.mark.lengthy]

EXAMPLES = "text,queue\nMy invoice is wrong,Billing\nThe app crashes,Technical\nI was charged twice,Billing\n"

ON_TOP = """line => {
  line.scrollIntoView({block: "center"});
  const {left, top, height} = line.getBoundingClientRect();
  return document.elementFromPoint(left + 20, top + height / 2).id;
}"""
"""The id of the element that a user sees, and clicks, in the middle of a line."""


@pytest.fixture(scope="module")
def studio(service: Service) -> str:
    service.records.create_knowledge_base(
        "desk", epsilon=8, delta=1e-4, public_size=2000, fields=["text", "queue"], embedded_field="text"
    )
    return f"{service.url}/admin/knowledge-bases/desk/plan"


def plans(page: Page) -> int:
    return page.get_by_role("heading", name=re.compile(r"^Plan \d+$")).count()


def check(window: Window) -> None:
    for viewport in (DESK, PHONE):
        window.page.set_viewport_size(viewport)
        window.check()


def test_a_plan_is_looked_at_while_it_is_written(service: Service, browser: Browser, studio: str) -> None:
    window = Window(browser, viewport=DESK, color_scheme="dark")
    page = window.page
    sign_in(window, service)
    page.goto(studio)
    expect(page.get_by_role("heading", name="Start from a few questions")).to_be_visible()
    expect(page.get_by_label("Field that holds the answer")).to_contain_text("queue")
    expect(page.get_by_label("Texts to choose from")).not_to_be_visible()
    check(window)
    page.get_by_label("A text that recalls").check()
    expect(page.get_by_label("Texts to choose from")).to_be_visible()
    expect(page.get_by_label("Labels", exact=True)).not_to_be_visible()
    page.goto(f"{studio}?answers=500")
    expect(page.get_by_role("heading", name="What it takes")).to_be_visible()
    plan = page.get_by_label("The plan (YAML)")
    written = plan.input_value()
    plan.fill(written.replace("shots: 2", "shots: none"))
    expect(page.get_by_role("heading", name="1 problem")).to_be_visible()
    line = written[: written.index("shots: 2")].count("\n") + 1
    listed = page.get_by_role("listitem").filter(has_text="tasks.label.shots")
    expect(listed).to_have_count(1)
    expect(listed).to_contain_text(f"line {line}")
    listed.get_by_role("link").click()
    chosen = "text => text.value.slice(text.selectionStart, text.selectionEnd).trim()"
    assert plan.evaluate(chosen) == "shots: none"
    page.set_viewport_size(DESK)
    tops = "['#plan-form', '#preview > .card'].map(one => document.querySelector(one).getBoundingClientRect().top)"
    assert len(set(page.evaluate(tops))) == 1, "nothing is empty between the plan and its problems"
    assert page.get_by_role("button", name="Sign this plan…").count() == 0
    wrong = page.locator(".lines .wrong")
    assert wrong.evaluate("line => line.textContent.trim()") == "shots: none"
    assert wrong.evaluate(ON_TOP) == "text", "the mark of a wrong line lies on what is written there"
    check(window)

    better = written.replace("answers: 500", "answers: 50").replace("first label", "Billing")
    plan.fill(better.replace("second label", "Technical"))
    expect(page.get_by_text("50 answers. A label wins if")).to_be_visible()
    page.locator("#otherwise-summary").press("Enter")
    expect(page.get_by_text("by the plan’s ε", exact=False).first).to_be_visible()
    expect(page.get_by_role("img", name=re.compile("twice"))).to_be_visible()
    check(window)

    plan.fill(plan.input_value().replace("  label:", "  queue:"))
    expect(page.locator("#trial_task")).to_have_value("queue")
    # An unfolded section stays unfolded, and is drawn again for the changed plan.
    expect(page.get_by_role("heading", name="queue: alternatives")).to_be_visible()
    numbered, about = page.locator(".lines .noted").nth(1), page.locator("#preview [data-line]").nth(1)
    expect(about).to_contain_text("line 5")
    assert numbered.evaluate("line => line.textContent.trim()") == "queue:"
    # Long lines are wrapped in both text and numbers, so that no line is cut off.
    plan.fill(plan.input_value().replace("Answer with one", "Answer, " * 60 + "with one"))
    for viewport in (DESK, PHONE):
        page.set_viewport_size(viewport)
        sizes = plan.evaluate("text => [text.scrollHeight, text.clientHeight, text.scrollWidth, text.clientWidth]")
        assert sizes[0] <= sizes[1] + 1
        assert sizes[2] <= sizes[3]

    page.locator("#try-summary").press("Enter")
    page.get_by_label("Examples", exact=True).fill(EXAMPLES)
    page.get_by_label("Question", exact=True).fill("My invoice shows another company")
    page.get_by_role("button", name="Try it").click()
    expect(page.get_by_text("the plan’s noise", exact=False).last).to_be_visible()
    expect(page.get_by_text(re.compile(r"^\d+ of 20 times$"))).to_be_visible()
    assert plan.input_value() != written  # the written plan stays
    check(window)


def test_a_plan_is_written_and_signed_without_script(service: Service, browser: Browser, studio: str) -> None:
    page = browser.new_context(java_script_enabled=False, viewport=DESK).new_page()
    page.goto(studio)
    page.get_by_label("Key", exact=True).fill(service.admin)
    page.get_by_role("button", name="Sign in").click()
    page.get_by_label("The task’s name").fill("queue")
    page.get_by_label("Labels", exact=True).fill("Billing, Technical")
    page.get_by_label("Answers", exact=True).fill("many")
    page.get_by_role("button", name="Write the plan").click()
    expect(page.locator("#answers-problem")).to_be_visible()
    page.get_by_label("Answers", exact=True).fill("40")
    page.get_by_role("button", name="Write the plan").click()
    plan = page.get_by_label("The plan (YAML)")
    plan.fill(plan.input_value().replace("answers: 40", "answers: many"))
    page.get_by_role("button", name="Preview").click()
    expect(page.get_by_role("alert")).to_have_text("1 problem")
    # Prototypes are made of exemplars, and the desk has none yet.
    written = plan.input_value().partition("    # Prior that the votes are weighed against")[0]
    plan.fill(written.replace("many", "40"))
    page.get_by_role("button", name="Preview").click()
    page.locator("#otherwise-summary").click()

    def drawn() -> bool:
        """Without a script, the page does not update itself, so the admin asks again."""
        page.get_by_role("button", name="Draw them").click()
        return page.get_by_role("img", name=re.compile("twice")).count() == 1

    assert wait_for(drawn, 60)
    page.get_by_role("button", name="Sign this plan…").click()
    sign = page.get_by_role("button", name=re.compile("for good and sign"))
    page.get_by_label(re.compile("^To sign, write")).fill("Desk")
    sign.click()
    expect(page.get_by_role("alert")).to_contain_text("Nothing was signed")
    page.get_by_label(re.compile("^To sign, write")).fill("desk")
    sign.click()
    expect(page.get_by_role("status")).to_contain_text("Plan 1 is signed")
    assert plans(page) == 1


def test_the_trail_is_replayed_and_exported(service: Service, browser: Browser, studio: str) -> None:
    window = Window(browser, viewport=DESK, color_scheme="light")
    page = window.page
    sign_in(window, service)
    page.goto(f"{service.url}/admin/audit")
    page.get_by_label("What", exact=True).select_option("Knowledge base created")
    expect(page.locator("#events").get_by_text("Answer charged")).to_have_count(0)
    expect(page.locator("#events").get_by_role("listitem").filter(has_text="created desk")).to_have_count(1)
    expect(page).to_have_url(re.compile("kind=budget.opened&knowledge_base=&key=&day=$"))
    window.check()
    page.get_by_role("link", name="Replay and export").click()
    with page.expect_download() as download:
        page.get_by_role("link", name="Export all events").click()
    assert download.value.suggested_filename.startswith("dpicl-audit-")
    page.get_by_role("button", name="Replay").click()
    expect(page.get_by_role("heading", name=re.compile("nothing wrong"))).to_be_visible()
    window.check()
