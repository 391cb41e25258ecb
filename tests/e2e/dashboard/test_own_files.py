"""From two files as they are on disk to signed plans and answers, in a browser alone."""

import csv
import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect

from service.records.records import open_records
from tests.e2e.browser import Window
from tests.e2e.dashboard.conftest import DESK, Service, sign_in
from tests.e2e.dashboard.lived import running
from tests.service.conftest import development

pytestmark = [pytest.mark.browser, pytest.mark.lengthy]

COMPLAINTS = {
    "E11.9": ("Mein Zucker ist schon wieder zu hoch", "My blood sugar is too high again"),
    "I10": ("Mein Blutdruck war über 170", "My blood pressure was above 170"),
    "J06.9": ("Ich habe Husten und Schnupfen", "I have a cough and a runny nose"),
    "M54.5": ("Mein Rücken schmerzt nach dem Heben", "My back hurts since I lifted a box"),
}
REASONS = {
    "pay": "I earn more elsewhere",
    "manager": "My manager never listened",
    "workload": "Sixty hours every week were too many",
}


@pytest.fixture
def demanding(tmp_path: Path) -> Iterator[Service]:
    """A new service where ann must approve each plan."""
    make_key = ["openssl", "genpkey", "-algorithm", "ed25519", "-out", tmp_path / "ann.pem"]
    subprocess.run(make_key, check=True, capture_output=True)
    shown = ["openssl", "pkey", "-in", tmp_path / "ann.pem", "-pubout"]
    public = subprocess.run(shown, check=True, capture_output=True, text=True).stdout.splitlines()[1]
    records = open_records(development(tmp_path, plan_approvers={"ann": public}))
    _, admin = records.keys.create("Maria", "admin")
    with running(records) as url:
        yield Service(url, admin, records)


def hotline(folder: Path) -> Path:
    """3,000 calls of 900 people, as a clinic's program exports them."""
    drawn, file = random.Random(60), folder / "hotline.csv"
    empty = set(drawn.sample(range(3000), 263))
    with file.open("w", encoding="cp1252", newline="") as stream:
        stream.write("Hotline der Klinik Süd, Export vom 3. November\r\n")
        writer = csv.writer(stream, delimiter=";")
        writer.writerow(["Datum", "Patienten-Nr", "Sprache", "Anliegen", "ICD-Code"])
        for call in range(3000):
            code, english = drawn.choice(list(COMPLAINTS)), drawn.random() < 0.3
            who, said = call if call < 900 else drawn.randrange(900), COMPLAINTS[code][english]
            spoken = f"{said}; {'please call back' if english else 'bitte zurückrufen'} ({call})"
            writer.writerow(["3.11.", f"P{who}", "EN" if english else "DE", spoken, "" if call in empty else code])
    return file


def interviews(folder: Path) -> Path:
    """Exit interviews with objects, lists and nulls."""
    drawn, file = random.Random(61), folder / "interviews.jsonl"
    rows = []
    for number in range(600):
        reason = drawn.choice(list(REASONS))
        rows.append(
            {
                "employee": {"id": f"e{number % 500}", "site": drawn.choice(["Köln", None])},
                "interview": {"why": f"{REASONS[reason]} ({number})", "tags": [reason]},
                "reason": {"code": None if number % 20 == 7 else reason},
            }
        )
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def test_two_files_get_to_answers_in_a_browser_alone(demanding: Service, browser: Browser, tmp_path: Path) -> None:
    window = Window(browser, viewport=DESK, color_scheme="light")
    page = window.page
    sign_in(window, demanding)
    create(page, demanding, "hotline", "3000", "text, code")
    page.get_by_label("File", exact=True).set_input_files(hotline(tmp_path))
    for said, field, value in (
        ("it looks like cp1252: write its encoding under “Encoding”", "Encoding", "cp1252"),
        ("write 1 under “Rows before the header”", "Rows before the header", "1"),
        ("write its name under “Column with the id”", "Column with the id", "Patienten-Nr"),
        ("write its name under “Column with text”", "Column with text", "Anliegen"),
        ("write its name under “Column with code”", "Column with code", "ICD-Code"),
        ("tick “Leave out incomplete rows”", "Leave out incomplete rows, and count them", ""),
    ):
        look(page)
        expect(page.locator("#looked").get_by_role("alert")).to_contain_text(said)
        fill(page, field, value)
    look(page)
    expect(page.locator("#looked")).to_contain_text("Left out: 263 rows whose ICD-Code is empty.")
    window.complaints.clear()  # the browser notes a form that must be confirmed
    window.check()
    upload(page, "2,737 of 3,000 rows")
    begin(page, ", ".join(COMPLAINTS))
    approve(window, "hotline", tmp_path)

    create(page, demanding, "interviews", "600", "text, reason")
    for field, value in (
        ("Column with the id", "employee.id"),
        ("Column with text", "interview.why"),
        ("Column with reason", "reason.code"),
        ("Leave out incomplete rows, and count them", ""),
    ):
        fill(page, field, value)
    page.get_by_label("File", exact=True).set_input_files(interviews(tmp_path))
    look(page)
    expect(page.locator("#looked")).to_contain_text("Left out: 30 rows whose reason.code is empty.")
    upload(page, "570 of 600 rows")
    begin(page, ", ".join(REASONS))
    approve(window, "interviews", tmp_path)

    page.goto(f"{demanding.url}/admin/keys")
    page.locator("#name").fill("ana")
    page.get_by_role("button", name="Make the key").click()
    token = page.locator("#token").inner_text()
    asking = Window(browser, viewport=DESK, color_scheme="light")
    page = asking.page
    page.goto(f"{demanding.url}/admin/")
    page.get_by_label("Key", exact=True).fill(token)
    page.keyboard.press("Enter")
    for task, question, right in (
        ("hotline.reason", "My back hurts since I lifted a crate", "M54.5"),
        ("interviews.reason", "I earn more at another place", "pay"),
    ):
        page.get_by_role("navigation", name="Task").get_by_role("link", name=task).click()
        page.get_by_label("Text", exact=True).fill(question)
        page.get_by_role("button", name="Ask", exact=True).click()
        expect(page.locator(".answer")).to_have_text(right)
        asking.check()


def create(page: Page, service: Service, name: str, size: str, fields: str) -> None:
    page.goto(f"{service.url}/admin/new-knowledge-base")
    for field, value in (
        ("name", name),
        ("epsilon", "4"),
        ("delta", "1e-4"),
        ("public_size", size),
        ("fields", fields),
    ):
        page.locator(f"#{field}").fill(value)
    page.get_by_role("button", name="Create the knowledge base").click()
    page.get_by_role("button", name="Do it for good").click()
    expect(page.get_by_role("status")).to_contain_text("was created")


def fill(page: Page, field: str, value: str) -> None:
    page.get_by_text("How the file is written").evaluate("summary => { summary.parentElement.open = true }")
    if value:
        page.get_by_label(field, exact=True).fill(value)
    else:
        page.get_by_label(field, exact=True).check()


def look(page: Page) -> None:
    with page.expect_response("**/exemplars/look"):
        page.get_by_role("button", name="Look at it first").click()


def upload(page: Page, stored: str) -> None:
    page.get_by_role("button", name="Upload", exact=True).click()
    expect(page.get_by_role("status")).to_contain_text(f"Done: {stored} of the file are stored")


def begin(page: Page, labels: str) -> None:
    """Answer the few questions that the plan studio begins with."""
    page.get_by_role("link", name="Write a plan").click()
    page.get_by_label("The task’s name").fill("reason")
    page.get_by_label("Labels", exact=True).fill(labels)
    page.get_by_role("button", name="Write the plan").click()
    expect(page.locator("#gives-reason")).to_be_visible()


def approve(window: Window, name: str, folder: Path) -> None:
    """Sign the plan with ann's approval, which is refused before it is right."""
    page = window.page
    page.locator("#to-sign").click()
    page.get_by_label("To sign, write", exact=False).fill(name)
    for box in page.get_by_role("checkbox").all():
        box.check()
    with page.expect_download() as downloaded:
        page.get_by_role("button", name="Download").click()
    plan, signature = folder / downloaded.value.suggested_filename, folder / "plan.sig"
    downloaded.value.save_as(plan)
    hashed = subprocess.run(["openssl", "sha256", plan], check=True, capture_output=True, text=True).stdout
    assert hashed.split()[-1] == page.locator("#plan-hash").inner_text()
    signing = ["openssl", "pkeyutl", "-sign", "-inkey", folder / "ann.pem", "-rawin", "-out", signature, "-in"]
    (folder / "other").write_bytes(plan.read_bytes() + b"\n")
    subprocess.run([*signing, folder / "other"], check=True)
    page.get_by_label("File with the signature").set_input_files(signature)
    page.get_by_role("button", name="for good and sign", exact=False).click()
    expect(page.get_by_role("alert")).to_contain_text("not a signature of this very file by one of ann")
    window.complaints.clear()  # the browser notes a refused form
    window.check()
    subprocess.run([*signing, plan], check=True)
    page.get_by_label("File with the signature").set_input_files(signature)
    for box in page.get_by_role("checkbox").all():
        box.check()
    page.get_by_role("button", name="for good and sign", exact=False).click()
    expect(page.get_by_role("status")).to_contain_text("Plan 1 is signed")
