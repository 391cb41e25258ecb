"""The plan studio: what a plan would give, tried for free, and signed once by somebody who means it."""

from __future__ import annotations

import asyncio
import html
import io
import json
import re
from datetime import UTC, datetime
from decimal import Decimal
from threading import Event

import pytest

from accounting.ledger.cohorts import CohortStatus
from accounting.plan import Plan, PlanError, PlanProblem, calibrate_plan, load_plan
from exemplar_store import KnowledgeBase, Layout, read_json_lines
from service.dashboard.computing import Computations
from service.dashboard.plan_studio import desk
from service.dashboard.plan_studio.charts import over_answers, over_epsilon
from service.dashboard.plan_studio.drafts import chosen, signed_text, starting_text
from service.dashboard.plan_studio.problems import located
from service.pipeline.latency import Measured
from service.plans.preview import preview
from service.plans.signing import check_fits
from service.services import Services
from tests.service.conftest import PLAN, TEXT_PLAN, embed
from tests.service.dashboard.dashboard_browser import HTMX, Browser, words

pytestmark = pytest.mark.slow

STUDIO = "/knowledge-bases/toys/plan"
CANARY = "canary-marmalade"
SMALL = PLAN.replace("epsilon: 4", "epsilon: 2").replace("1.0e-4", "2.0e-5")


def hidden(page: str, name: str) -> str:
    return html.unescape(re.search(rf'name="{name}" value="([^"]*)"', page)[1])


def confirm(browser: Browser, text: str = SMALL) -> dict[str, str]:
    """The last form, filled in but for the name."""
    page = browser.post(f"{STUDIO}/confirm", {"text": text})
    assert page.status_code == 200
    form = {"text": text, "digest": hidden(page.text, "digest"), "after": hidden(page.text, "after")}
    return form | ({"confirm": "worse_than_free"} if "worse_than_free" in page.text else {})


def signed(browser: Browser) -> int:
    return len(browser.services.records.ledger.budgets.plans("toys"))


def test_the_studio_is_found(browser: Browser) -> None:
    page = browser.get("/plans")
    assert f'href="/admin{STUDIO}"' in page.text
    assert "ε 4 of 8 is free" in words(page.text)
    assert browser.get("/plans?knowledge_base=toys").headers["location"] == f"/admin{STUDIO}"
    assert browser.get("/knowledge-bases/nothing/plan").status_code == 404
    assert browser.get("/plans?knowledge_base=../x").headers["location"] == "/admin/knowledge-bases/..%2Fx/plan"


def written(page: str) -> str:
    return html.unescape(re.search(r'<textarea id="text".*?>\n(.*?)</textarea>', page, re.DOTALL)[1])


def test_a_plan_to_start_from_is_made_for_the_knowledge_base(browser: Browser) -> None:
    plan = load_plan(written(browser.get(STUDIO).text))
    check_fits(plan, browser.services.records.store.get("toys"))
    assert (plan.budget.epsilon, plan.budget.delta) == (2, 5e-5)
    asked = "?kind=labels&task=colour&answer_field=label&labels=red,+blue&instruction=Which+colour?&epsilon=1&answers=7"
    page = browser.get(STUDIO + asked).text
    plan = load_plan(written(page))
    task = plan.tasks["colour"]
    assert (task.labels, task.answers, plan.budget.epsilon) == (("red", "blue"), 7, 1)
    assert task.prompt.instruction == "Which colour?"
    assert task.prompt.exemplar == "Text: {text}\nLabel: {label}"
    text = load_plan(written(browser.get(f"{STUDIO}?kind=text").text)).tasks["reply"]
    assert (text.kind, text.response_field) == ("generate", "label")


@pytest.mark.parametrize(("public_size", "ensemble", "shots"), [(5, 5, 1), (60, 10, 4), (2000, 50, 4), (10**6, 100, 4)])
@pytest.mark.parametrize("kind", ["labels", "text"])
@pytest.mark.parametrize("fields", [("text", "label"), ("ticket_body", "subject", "reply_text"), ("text",)])
def test_plans_to_start_from_fit_any_knowledge_base(
    kind: str, fields: tuple[str, ...], public_size: int, ensemble: int, shots: int, services: Services
) -> None:
    toys = services.records.store.get("toys")
    described = KnowledgeBase(
        **{name: getattr(toys, name) for name in KnowledgeBase.__slots__}
        | {"fields": fields, "embedded_field": fields[0], "public_sizes": (public_size,)}
    )
    free = Decimal("0.70001"), Decimal("1.23e-7")
    status = CohortStatus(1, *free, Decimal(0), Decimal(0), *free, datetime.now(UTC), None)
    plan = load_plan(starting_text(described, status, chosen({"kind": kind})))
    if len(fields) > 1:
        check_fits(plan, described)
    (task,) = plan.tasks.values()
    assert (task.ensemble, task.shots) == (ensemble, shots)
    assert (plan.budget.epsilon, plan.budget.delta) == (0.35, 6.1e-8)
    assert task.query_fields == (fields[:-1] or fields)


def test_a_signed_plan_can_be_begun_from(browser: Browser, plan: Plan) -> None:
    page = browser.get(f"{STUDIO}?from=1").text
    assert load_plan(written(page)) == plan
    assert browser.get(f"{STUDIO}?from=9").status_code == 404
    assert browser.get(f"{STUDIO}?from=x").status_code == 200


def test_texts_of_several_lines_stay_such(calibrated) -> None:
    text = TEXT_PLAN.format(epsilon=2, answers=5, mechanism="type: embedding_mean").replace(
        'query: "{text}:"', 'query: "Toy: {text}\\nStory:", instruction: "Write.\\nBriefly."'
    )
    plan = load_plan(text)
    document = calibrated.model_copy(update={"plan": plan}).model_dump_json()
    assert "query: |-" in signed_text(document)
    assert load_plan(signed_text(document)) == plan


def test_what_the_plan_would_give_is_what_the_command_line_shows(browser: Browser) -> None:
    page = browser.post(STUDIO, {"text": SMALL.replace("\n", "\r\n")})
    assert page.status_code == 200
    described = preview(calibrate_plan(load_plan(SMALL), 60))
    task = described.tasks["colour"]
    said = words(page.text)
    assert task.summary in said
    assert task.noise_words in said
    assert f"{task.llm_calls} an answer" in said
    for accountant, (_, upper) in described.epsilon_by_accountant.items():
        assert accountant.upper() in said
        assert f'title="{upper!r}"' in page.text
    assert "Free afterwards ε 2" in said
    assert "Rehearse… Tells privately" in said
    assert "Earlier plans ε 4" in said
    assert 'role="img"' in page.text
    assert "<style" not in page.text
    assert " style=" not in page.text
    assert written(page.text) == SMALL
    assert signed(browser) == 1


def test_the_preview_estimates_latency_from_a_task_that_was_measured(browser: Browser) -> None:
    before = words(browser.post(STUDIO, {"text": SMALL}).text)
    assert "Prompt tokens" in before
    assert "an estimate from" not in before
    browser.services.grains.report = [Measured("toys.colour@1", 12.0, 25.0, typical_s=9.5)]
    page = words(browser.post(STUDIO, {"text": SMALL}).text)
    assert (
        "25.0 s (typical slots take 9.5 s, the largest 12.0 s): an estimate from toys.colour@1, by prompt tokens"
        in page
    )


def test_htmx_gets_the_preview_alone(browser: Browser) -> None:
    part = browser.post(STUDIO, {"text": SMALL}, headers=HTMX)
    while "Computing the noise" in part.text:
        part = browser.post(STUDIO, {"text": SMALL}, headers=HTMX)
    assert "<html" not in part.text
    assert "ε by every accountant" in part.text
    curves = browser.post(f"{STUDIO}/curves", {"text": SMALL}, headers=HTMX)
    while "being computed" in curves.text:
        curves = browser.post(f"{STUDIO}/curves", {"text": SMALL}, headers=HTMX)
    assert "by the plan’s ε" in curves.text
    said = words(curves.text)
    assert "colour: alternatives at the same budget" in said
    assert re.search(r"rnm_gaussian, as planned 20 σ [\d.]+ votes", said)
    assert re.search(r"rnm_gaussian 200 σ [\d.]+ votes more than 10 [\d,]+ hardly worth it", said)
    assert "by the number of answers" in curves.text
    assert "twice" in curves.text
    assert "<html" not in curves.text


def test_the_curves_come_without_script_too(browser: Browser) -> None:
    page = browser.post(f"{STUDIO}/curves", {"text": SMALL}).text
    assert "by the number of answers" in page
    assert "<html" in page
    assert "ε by every accountant" in page
    assert browser.post(f"{STUDIO}/curves", {"text": "x: 1"}, headers=HTMX).text.strip() == ""


def test_more_epsilon_and_fewer_answers_need_fewer_slots() -> None:
    calibrated = calibrate_plan(load_plan(SMALL.replace("epsilon: 2", "epsilon: 16")), 60)
    assert [row[1] for row in over_epsilon(calibrated).rows] == ["8", "16"]  # no plan has more than 25
    chart = over_answers(calibrated)
    heights = [float(height) for height in re.findall(r"[ML][\d.]+ ([\d.]+)", chart.path(chart.lines[0]))]
    assert heights == sorted(heights, reverse=True)  # upwards on the page
    assert [row[1] for row in chart.rows] == ["half", "as planned", "twice"]


def test_a_plan_without_a_similar_one_has_no_curve(monkeypatch: pytest.MonkeyPatch) -> None:
    calibrated = calibrate_plan(load_plan(SMALL), 60)

    def refuse(*_: object) -> None:
        raise PlanError(("", "no noise is enough"))

    monkeypatch.setattr("service.dashboard.plan_studio.charts.least_noise", refuse)
    assert over_epsilon(calibrated) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "a plan is a mapping"),
        ("a: [", "not valid YAML"),
        (SMALL.replace("toys", "cars"), "the plan is for cars, this is toys"),
        (SMALL.replace("shots: 2", "shots: 20"), "line 5 tasks.colour shots × ensemble = 200 exceeds"),
    ],
)
def test_a_plan_that_cannot_be_says_why(browser: Browser, text: str, says: str) -> None:
    page = browser.post(STUDIO, {"text": text})
    assert says in words(page.text)
    assert written(page.text) == text
    assert "Sign this plan" not in page.text
    for path in ("confirm", "sign"):
        refused = browser.post(f"{STUDIO}/{path}", {"text": text, "name": "toys", "digest": "", "after": "1"})
        assert refused.status_code == 422
        assert says in words(refused.text)
    assert signed(browser) == 1


def test_every_problem_is_at_its_key_and_line(browser: Browser) -> None:
    text = SMALL.replace("answers: 20", "answers: none").replace("    shots: 2\n", "").replace("rnm_gaussian", "best")
    said = words(browser.post(STUDIO, {"text": text}, headers=HTMX).text)
    lines = text.splitlines()
    for key, line in [("answers", "    answers: none"), ("mechanism.type", lines[-1]), ("shots", "  colour:")]:
        where = lines.index(line) + 1
        assert f"line {where} tasks.colour.{key}" in said
    assert "3 problems" in said


@pytest.mark.parametrize(
    ("key", "line"), [("tasks.a.labels.1", 5), ("tasks.a.labels.9", 3), ("tasks.b", 2), ("budget", None), ("", None)]
)
def test_problems_are_located(key: str, line: int | None) -> None:
    text = "knowledge_base: x\ntasks:\n  a: {labels:\n    [one,\n    two]}\n"
    assert located([PlanProblem(key, "wrong")], text) == [PlanProblem(key, "wrong", line)]
    assert located([PlanProblem(key, "wrong", 9)], "a: [")[0].line == 9


def test_while_it_is_computed_the_page_says_so(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on = Event()
    busy = Computations("test")
    monkeypatch.setattr(desk, "_computations", busy)
    monkeypatch.setattr(desk, "_WAIT_S", 0.0)
    monkeypatch.setattr(desk, "_POLL_S", 0.0)
    busy.ask("somebody else", "first", go_on.wait)
    part = browser.post(STUDIO, {"text": SMALL}, headers=HTMX)
    assert "Computing the noise" in part.text
    assert f'hx-post="/admin{STUDIO}"' in part.text
    for path in ("", "/rehearse", "/rehearse/start", "/confirm", "/sign"):
        page = browser.post(STUDIO + path, {"text": SMALL, "name": "toys", "digest": "x", "after": "1"})
        assert page.status_code == 200
        assert "Computing the noise" in page.text
    tried = browser.post(f"{STUDIO}/try", {"text": SMALL}, headers=HTMX)
    assert "must be computed" in tried.text
    assert signed(browser) == 1
    go_on.set()


def test_one_thing_is_computed_at_a_time_and_what_is_not_wanted_any_more_is_not_begun() -> None:
    go_on, done = Event(), []
    computations = Computations("test", kept=2)
    first = computations.ask("ed", "a", go_on.wait)
    typed = computations.ask("ana", "ab", lambda: done.append("ab"))
    shared = computations.ask("bo", "abc", lambda: done.append("abc"))
    last = computations.ask("ana", "abcd", lambda: done.append("abcd"))
    assert (typed.cancelled(), first.done()) == (True, False)
    assert computations.ask("ana", "abc", lambda: done.append("never")) == shared
    assert last.cancelled()
    computations.leave("bo")
    assert not shared.cancelled()
    go_on.set()
    shared.result(5)
    assert done == ["abc"]
    assert isinstance(computations.ask("bo", "wrong", lambda: 1 // 0).exception(5), ZeroDivisionError)
    for i in range(5):
        computations.ask("bo", i, lambda: None).result(5)
    assert computations.ask("bo", "wrong", lambda: 1).result(5) == 1  # forgotten since


@pytest.mark.parametrize(("insist", "found"), [(True, "done"), (False, None)])
def test_a_page_that_cannot_ask_again_insists_on_what_another_page_gave_up(insist: bool, found: str | None) -> None:
    async def two_pages() -> str | None:
        go_on = Event()
        computations = Computations("test")
        computations.ask("bo", "first", go_on.wait)
        page = asyncio.create_task(computations.result("ana", "a", lambda: "done", 5.0, insist=insist))
        await asyncio.sleep(0)
        computations.ask("ana", "b", lambda: None)
        await asyncio.sleep(0.1)
        go_on.set()
        return await page

    assert asyncio.run(two_pages()) == found


def test_what_takes_long_stays_unfolded_without_script(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    computations = Computations("test")
    monkeypatch.setattr(desk, "_computations", computations)
    browser.post(STUDIO, {"text": SMALL})
    go_on = Event()
    computations.ask("somebody else", "first", go_on.wait)
    monkeypatch.setattr(desk, "_WAIT_S", 0.0)
    page = browser.post(f"{STUDIO}/curves", {"text": SMALL})
    go_on.set()
    assert '<details class="card" id="otherwise" open>' in page.text
    assert "being computed" in page.text


def test_a_plan_that_is_too_dear_says_what_is_free(browser: Browser) -> None:
    text = SMALL.replace("epsilon: 2", "epsilon: 5")
    page = browser.post(STUDIO, {"text": text})
    assert "it asks for ε 5 and δ 2e-5, and ε 4 and δ 1e-4 are free" in words(page.text)
    assert "/confirm" not in page.text
    assert browser.post(f"{STUDIO}/confirm", {"text": text}).status_code == 422
    digest = calibrate_plan(load_plan(f"{text}\ncohorts: [1]\n"), 60).digest
    refused = browser.post(f"{STUDIO}/sign", {"text": text, "name": "toys", "digest": digest, "after": "1"})
    assert refused.status_code == 402
    assert "is free; sign a smaller plan" in words(refused.text)
    assert signed(browser) == 1


def test_signing_takes_a_deliberate_act(browser: Browser) -> None:
    page = words(browser.post(f"{STUDIO}/confirm", {"text": SMALL}).text)
    assert "Sign plan 2 of toys?" in page
    assert "ε 2 and δ 2e-5 (1 in 50,000) are taken from the lifetime budget of toys, for good." in page
    assert "Free afterwards: ε 2 and δ 8e-5" in page
    assert "toys.colour@2 gives 20 answers and not one more" in page
    assert f"“chief” ({browser.key.id}) signed it" in page
    form = confirm(browser)
    for name in ("", "toy", "Toys"):
        refused = browser.post(f"{STUDIO}/sign", form | {"name": name})
        assert refused.status_code == 422
        assert "Nothing was signed. To sign, write the knowledge base’s name" in words(refused.text)
    assert signed(browser) == 1
    done = browser.post(f"{STUDIO}/sign", form | {"name": "toys"})
    assert done.headers["location"] == "/admin/knowledge-bases/toys/plans"
    assert "Plan 2 is signed. From now on it answers at toys.colour" in browser.get("/").text
    plan = browser.services.records.ledger.budgets.plan("toys", 2)
    assert plan.signed_by == browser.key.id
    assert plan.digest == form["digest"]
    assert browser.services.records.audit.events(newest_first=True, limit=1)[0].kind == "plan.signed"


def test_a_plan_is_not_signed_before_its_labels_are_written(browser: Browser) -> None:
    before, begun = signed(browser), written(browser.get(STUDIO).text)
    page = browser.post(f"{STUDIO}/confirm", {"text": begun})
    assert page.status_code == 422
    assert "tasks.label.labels 'first label' only stands for a label: write those" in words(page.text)
    assert signed(browser) == before


def test_a_plan_hardly_worth_its_price_is_asked_about_again(browser: Browser) -> None:
    assert "Zero-shot mostly decides" in words(browser.post(STUDIO, {"text": SMALL}).text)
    form = confirm(browser) | {"name": "toys"}
    refused = browser.post(f"{STUDIO}/sign", form | {"confirm": ""})
    assert refused.status_code == 422
    assert "tick that you do so all the same" in words(refused.text)
    assert signed(browser) == 1
    worth = SMALL.replace("epsilon: 2", "epsilon: 4").replace("answers: 20", "answers: 5")
    assert "confirm" not in confirm(browser, worth)
    assert browser.post(f"{STUDIO}/sign", form).status_code == 303


def test_who_meant_another_state_of_the_budget_is_asked_again(browser: Browser) -> None:
    form = confirm(browser) | {"name": "toys"}
    other = SMALL.replace("epsilon: 2", "epsilon: 1")
    assert browser.post(f"{STUDIO}/sign", confirm(browser, other) | {"name": "toys"}).status_code == 303
    refused = browser.post(f"{STUDIO}/sign", form)
    assert refused.status_code == 409
    assert "plan 2 of 'toys' was signed in the meantime" in words(refused.text)
    assert hidden(refused.text, "after") == "2"
    assert "Free afterwards: ε 1" in words(refused.text)
    for wrong in ({"after": "soon"}, {"after": ""}, {"digest": "0" * 64}, {"text": other}):
        refused = browser.post(f"{STUDIO}/sign", form | {"after": "2"} | wrong)
        assert refused.status_code == 422
        assert "is not the one that was shown" in words(refused.text)
    assert signed(browser) == 2


ROWS = "text,label\nred ball,red\nblue ball,blue\n"
LINES = '{"text": "red ball", "label": "red"}\n\n{"text": "blue ball", "label": "blue"}'


def test_what_a_plan_gives_for_ever_is_computed(browser: Browser) -> None:
    form = {"text": f"{SMALL}\nretain: 4\n", "units_a_month": "50", "months_a_cohort": "3"}
    part = words(browser.post(f"{STUDIO}/steady", form, headers=HTMX).text)
    assert "the newest 4 cohorts every 3 months, for ever. Answers a month: 6.67 of colour." in part
    assert "drawn on about 600" in part
    page = browser.post(f"{STUDIO}/steady", form).text
    assert "for ever" in page
    assert 'value="50"' in page
    for wrong, says in (
        ({"units_a_month": "many"}, "Units a month: Enter a number, such as 300."),
        ({"text": SMALL}, "retain: say how many"),
    ):
        part = browser.post(f"{STUDIO}/steady", form | wrong, headers=HTMX).text
        assert 'role="alert"' in part
        assert says in words(part)
    said = words(browser.get("/knowledge-bases/toys").text)
    assert "With a cohort every 3 months, this plan can be signed on the newest cohort every 1.5" in said


@pytest.mark.parametrize("rows", [ROWS, LINES])
def test_a_draft_is_tried_on_public_examples(browser: Browser, rows: str) -> None:
    before = browser.services.records.ledger.budgets.statuses()
    form = {"text": SMALL, "trial_rows": rows, "trial_query": "a ball"}
    part = browser.post(f"{STUDIO}/try", form, headers=HTMX)
    said = words(part.text)
    assert re.search(r"Answer, with the plan’s noise (red|blue) \(probability 0\.\d\d\) Without noise (red|blue)", said)
    assert re.search(r"The noise kept that answer \d+ of 20 times", said)
    assert "2 exemplars stand in for 60" in said
    page = browser.post(f"{STUDIO}/try", form | {"trial_task": "colour"}).text
    assert "The noise kept that answer" in page
    assert rows.strip() in html.unescape(page)  # kept, to be tried again
    assert browser.services.records.ledger.budgets.statuses() == before


@pytest.mark.parametrize(
    ("form", "says"),
    [
        ({"trial_rows": ""}, "Examples: Paste one"),
        ({"trial_rows": "{text}"}, "The examples, line 1: not JSON"),
        ({"trial_rows": "text\nx"}, "label"),
        ({"trial_rows": ROWS, "trial_query": ""}, "text is empty."),
        ({"trial_rows": ROWS, "trial_task": "shape"}, "no task 'shape'"),
        ({"trial_rows": "text,label\n" + "x,red\n" * 201}, "at most 200"),
    ],
)
def test_a_trial_that_cannot_be_says_why(browser: Browser, form: dict[str, str], says: str) -> None:
    part = browser.post(f"{STUDIO}/try", {"text": SMALL, "trial_query": "a ball"} | form, headers=HTMX)
    assert part.status_code == 200
    assert 'role="alert"' in part.text
    assert says in words(part.text)


def test_a_trial_with_the_engine_down_says_so(browser: Browser, toy_engine) -> None:
    toy_engine.down = True
    part = browser.post(f"{STUDIO}/try", {"text": SMALL, "trial_rows": ROWS, "trial_query": "a"}, headers=HTMX)
    assert "the engine does not answer" in part.text


def test_pages_are_the_same_whatever_exemplars_there_are(browser: Browser) -> None:
    def pages() -> list[str]:
        read = [browser.get(path) for path in ("/plans", STUDIO, f"{STUDIO}?kind=text")]
        read += [browser.post(STUDIO + path, {"text": SMALL}) for path in ("", "/curves", "/confirm")]
        assert {page.status_code for page in read} == {200}
        return [page.text for page in read]

    before = pages()
    exemplars = [{"unit_id": f"{CANARY} {i}", "text": f"{CANARY} {i}", "label": CANARY} for i in range(30)]
    rows = read_json_lines(io.BytesIO("\n".join(map(json.dumps, exemplars)).encode()), Layout(("text", "label")))
    browser.services.records.ingest("toys", rows, embed, by="root")
    assert pages() == before
    form = {"text": SMALL, "trial_rows": ROWS, "trial_query": "a"}
    assert CANARY not in browser.post(f"{STUDIO}/try", form).text


def test_a_release_that_is_made_once_is_seen_signed_and_shown(browser: Browser) -> None:
    once = SMALL[: SMALL.index("    shots")] + "    release: once\n    mechanism: {type: prototypes}\n"
    said = words(browser.post(STUDIO, {"text": once}).text)
    assert "One release for any number of answers" in said
    assert "Made of all exemplars there are at signing" in said
    assert "30 units a label" in said
    form = confirm(browser, once)
    assert "any number of answers from one release" in words(browser.post(f"{STUDIO}/confirm", {"text": once}).text)
    assert browser.post(f"{STUDIO}/sign", form | {"name": "toys"}).status_code == 303
    page = words(browser.get("/knowledge-bases/toys/plans").text + browser.get("/knowledge-bases/toys/releases").text)
    assert "Its release was made once: it answers for ever, at no further cost." in page
    assert "made once what prototypes answers from" in page
    assert "Answers for ever, at no further cost" in words(browser.get("/").text)
    again = written(browser.get(f"{STUDIO}?from=2").text)
    assert "shots" not in again
    assert load_plan(again).tasks["colour"].once
    assert "The one release of toys.colour@2 was charged to its plan." in words(browser.get("/audit").text)
