"""The plan studio: a plan is previewed, tried for free, and signed once, on purpose."""

import asyncio
import html
import re
from datetime import UTC, datetime
from decimal import Decimal
from threading import Event

import pytest
from anyio.from_thread import start_blocking_portal

from accounting.ledger.cohorts import CohortStatus
from accounting.plans.plan import Plan, calibrate_plan, load_plan
from exemplar_store import KnowledgeBase
from service.answering.latency import Measured
from service.answering.mechanisms.adapter import needs_written_texts
from service.answering.plans.preview import preview
from service.answering.plans.signing import check_fits
from service.gateway.dashboard.computing import Computations
from service.gateway.dashboard.plan_studio import desk
from service.gateway.dashboard.plan_studio.charts import answers_chart, epsilon_chart
from service.gateway.dashboard.plan_studio.drafts import starting_text
from service.operations.plan_curves import over_answers, over_epsilon
from service.operations.starting_plans import KINDS, chosen, starting_plan
from service.records.engine_record import EngineView
from tests.service.conftest import PLAN, upload
from tests.service.gateway.dashboard.dashboard_browser import HTMX, Browser, words

pytestmark = pytest.mark.slow

STUDIO = "/knowledge-bases/toys/plan"
CANARY = "canary-marmalade"
SMALL = PLAN.replace("epsilon: 4", "epsilon: 2").replace("1.0e-4", "2.0e-5")


def send(browser: Browser, path: str = "", text: str = SMALL, **fields: str):
    """Send the form without scripts."""
    return browser.post(STUDIO + path, {"text": text, **fields})


def part(browser: Browser, path: str = "", text: str = SMALL, **fields: str) -> str:
    """The part of the page that htmx gets once it is computed."""
    waiting = "being computed" if path == "/curves" else "Computing the noise"  # a preview has curves to be computed
    while waiting in (part := _part(browser, path, text, **fields)):
        pass
    assert "<html" not in part
    return part


def _part(browser: Browser, path: str, text: str, **fields: str) -> str:
    return browser.post(STUDIO + path, {"text": text, **fields}, headers=HTMX).text


def hidden(page: str, name: str) -> str:
    return html.unescape(re.search(rf'name="{name}" value="([^"]*)"', page)[1])


def written(page: str) -> str:
    return html.unescape(re.search(r'<textarea id="text".*?>\n(.*?)</textarea>', page, re.DOTALL)[1])


def confirm(browser: Browser, text: str = SMALL) -> dict[str, str]:
    """The fields of the last form, filled in."""
    page = send(browser, "/confirm", text)
    assert page.status_code == 200
    form = {"digest": hidden(page.text, "digest"), "after": hidden(page.text, "after"), "name": "toys", "text": text}
    return form | ({"confirm": "worse_than_free"} if "worse_than_free" in page.text else {})


def signed(browser: Browser) -> int:
    return len(browser.records.ledger.budgets.plans("toys"))


def test_the_studio_is_found(browser: Browser) -> None:
    assert f'href="/admin{STUDIO}"' in browser.get("/plans").text
    for name, address in (("toys", STUDIO), ("../x", "/knowledge-bases/..%2Fx/plan")):
        assert browser.get(f"/plans?knowledge_base={name}").headers["location"] == f"/admin{address}"
    assert browser.get("/knowledge-bases/nothing/plan").status_code == 404


def test_a_plan_to_start_from_is_made_for_the_knowledge_base(browser: Browser) -> None:
    asked = "?kind=labels&task=colour&answer_field=label&labels=red,+<b>&instruction=Which+“b”?&epsilon=1&answers=7"
    plan = load_plan(written(browser.get(STUDIO + asked).text))
    check_fits(plan, browser.records.store.get("toys"))
    task = plan.tasks["colour"]
    assert (task.labels, task.answers, plan.budget.epsilon) == (("red", "<b>"), 7, 1)
    assert (task.prompt.instruction, task.prompt.exemplar) == ("Which “b”?", "Text: {text}\nLabel: {label}")
    text = load_plan(written(browser.get(f"{STUDIO}?kind=text").text)).tasks["reply"]
    assert (text.kind, text.response_field) == ("generate", "label")


def test_the_studio_begins_with_questions_and_without_a_plan(browser: Browser) -> None:
    page = browser.get(STUDIO).text
    assert "Start from a few questions" in page
    assert ('id="text"' in page, 'id="preview"' in page, 'role="alert"' in page) == (False, False, False)
    assert f'href="/admin{STUDIO}?from=1"' in page
    by_hand = browser.get(f"{STUDIO}?kind=labels").text
    assert ("Start from a few questions" in by_hand, "first label" in written(by_hand)) == (False, True)


@pytest.mark.parametrize(
    ("choices", "field", "says"),
    [
        ("kind=labels&labels=", "labels", "Write all labels, at least two"),
        ("kind=labels&labels=red", "labels", "Write all labels, at least two"),
        ("kind=recall&labels=&public_answers=", "public_answers", "one a line"),
        ("labels=red,blue&task=A+b", "task", "Use small letters"),
        ("labels=red,blue&epsilon=much", "epsilon", "a number"),
        ("labels=red,blue&epsilon=0", "epsilon", "more than 0"),
        ("labels=red,blue&answers=1.5", "answers", "whole number"),
    ],
)
def test_a_question_without_an_answer_is_asked_again(browser: Browser, choices: str, field: str, says: str) -> None:
    page = browser.get(f"{STUDIO}?{choices}")
    assert (page.status_code, re.findall(r'id="(\w+)-problem"', page.text)) == (422, [field])
    assert says in words(page.text)
    assert 'id="text"' not in page.text


def test_public_answers_are_written_one_a_line(browser: Browser) -> None:
    page = browser.get(f"{STUDIO}?kind=recall&public_answers=Keep+calm.%0D%0A%0D%0ACarry+on.")
    assert load_plan(written(page.text)).tasks["reply"].public_answers == ("Keep calm.", "Carry on.")


@pytest.mark.parametrize(
    ("fields", "label", "text"),
    [
        (("text", "label"), "label", "label"),
        (("text", "team", "desk", "reply"), "team", "reply"),
        (("body", "icd10_code", "ward", "note"), "icd10_code", "note"),
        (("body", "ticketCategory", "opened"), "ticketCategory", "opened"),
        (("body", "a", "b"), "b", "b"),
    ],
)
def test_the_field_of_the_answer_is_guessed_from_names_of_fields(
    fields: tuple[str, ...], label: str, text: str
) -> None:
    for kind, expected in (("labels", label), ("text", text)):
        (task,) = starting(kind, 60, fields=fields, labels="a, b").tasks.values()
        assert (task.label_field if kind == "labels" else task.response_field) == expected


LIGHT = EngineView(name="nearest_exemplar", isolation="", is_llm=False, notice="")
MODEL = EngineView(name="vllm", isolation="", is_llm=True, notice="")


def starting(
    kind: str,
    public_size: int,
    *,
    fields: tuple[str, ...] = ("text", "label"),
    response: str | None = None,
    dimension: int | None = None,
    engine: EngineView | None = None,
    **choices: str,
) -> Plan:
    """A plan to start from, which fits its knowledge base and can be previewed."""
    now = datetime.now(UTC)
    described = KnowledgeBase(1, "toys", (public_size,), fields, fields[0], response, False, dimension, now)
    free = Decimal("0.70001"), Decimal("1.23e-7")
    status = CohortStatus(1, *free, Decimal(0), Decimal(0), *free, now, None)
    plan = load_plan(starting_text(starting_plan(described, status, chosen({"kind": kind, **choices}), engine)))
    if len(fields) > 1:
        check_fits(plan, described)
    return plan


def test_labels_are_parted_as_people_part_them() -> None:
    for written in (
        "Billing, Technical,Other",
        "Billing; Technical;Other;",
        "Billing\nTechnical；Other",
        "Billing、Technical، Other",
    ):
        (task,) = starting("labels", 60, labels=written).tasks.values()
        assert task.labels == ("Billing", "Technical", "Other")


@pytest.mark.parametrize(
    ("public_size", "ensemble", "drawn", "shots"),
    [(5, 5, 1, 1), (60, 10, 4, 2), (2000, 50, 4, 2), (9000, 100, 9, 4), (10**6, 100, 32, 4)],
)
@pytest.mark.parametrize("kind", list(KINDS))
@pytest.mark.parametrize("fields", [("text", "label"), ("ticket_body", "subject", "reply_text"), ("text",)])
def test_plans_to_start_from_fit_any_knowledge_base(
    kind: str, fields: tuple[str, ...], public_size: int, ensemble: int, drawn: int, shots: int
) -> None:
    for engine in (None, LIGHT, MODEL):
        plan = starting(kind, public_size, fields=fields, engine=engine, answers="20")
        task = next(iter(plan.tasks.values()))
        if kind == "recall":  # more slots, as they quote
            assert task.ensemble == min(300, max(10, public_size // 40), public_size)
            assert task.drawn * task.ensemble <= max(public_size / 10, 4 * task.ensemble)
        else:
            assert (task.drawn, task.ensemble) == (drawn, ensemble)
        assert task.order == "nearest"
        assert (task.shots, task.slots) == ((1, "quote") if kind == "recall" else (shots, "model"))
        assert (task.mechanism.type == "common_sentences") == (kind == "recall")
        assert (plan.budget.epsilon, plan.budget.delta) == (0.35, 6.1e-8)
        assert task.query_fields == fields[:1]
        assert needs_written_texts(task) == (kind != "labels" and engine is MODEL)


@pytest.mark.parametrize("response", ["advice", "ward"])
def test_an_answer_is_taken_for_the_response_and_never_put_into_the_question(response: str) -> None:
    (label,) = {"advice", "ward"} - {response}
    for kind, answer in (("labels", label), ("text", response), ("recall", response)):
        plan = starting(kind, 9000, fields=("text", "advice", "ward"), response=response)
        for task in plan.tasks.values():
            assert (task.label_field if kind == "labels" else task.response_field) == answer
            assert task.query_fields == ("text",)


@pytest.mark.parametrize(
    ("kind", "key", "placeholder"),
    [("labels", "label.labels", "label"), ("recall", "reply.public_answers", "public answer")],
)
def test_a_plan_with_placeholders_is_not_offered_for_signing(
    browser: Browser, kind: str, key: str, placeholder: str
) -> None:
    begun = written(browser.get(f"{STUDIO}?kind={kind}").text)
    page = part(browser, text=begun)
    assert "To fill in before signing" in page
    assert re.search(rf"tasks.{key} (write|list) .*, not 'first {placeholder}' and 'second {placeholder}'", words(page))
    assert page.count("second") == 1, "it is listed once"
    assert ('id="to-sign"' in page, "in reach" in page) == (False, False)
    finished = part(browser, text=begun.replace(f"first {placeholder}", "red").replace(f"second {placeholder}", "blue"))
    assert ('id="to-sign"' in finished, "To fill in" in finished) == (True, False)


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_plan_to_start_from_needs_no_embeddings_that_are_not_stored(kind: str) -> None:
    (task,) = starting(kind, 9000, dimension=0, engine=MODEL).tasks.values()
    assert (task.order, task.slots, task.shots, task.drawn) == ("random", "model", 4, None)
    assert task.sampling == ("blocks" if kind == "labels" else "units")
    (task,) = starting(kind, 9000, dimension=0, engine=LIGHT).tasks.values()
    assert task.sampling == "units"


@pytest.mark.parametrize("engine", [None, LIGHT, MODEL])
@pytest.mark.parametrize("fields", [("text", "label"), ("ticket_body", "subject", "reply_text"), ("text",)])
def test_labels_start_from_one_release_alone(fields: tuple[str, ...], engine: EngineView | None) -> None:
    ((name, task),) = starting("labels", 1000, fields=fields, engine=engine, labels="a, b, c").tasks.items()
    assert (name, task.once, task.mechanism.type) == ("label", True, "softmax_regression")
    assert task.labels == ("a", "b", "c")


def test_labels_start_from_votes_where_a_number_of_answers_is_wanted_or_nothing_is_embedded() -> None:
    for choices in ({"answers": "50"}, {"dimension": 0}):
        (task,) = starting("labels", 1000, engine=LIGHT, labels="a, b", **choices).tasks.values()
        assert (task.once, task.mechanism.type) == (False, "rnm_gaussian")
        assert task.answers == int(choices.get("answers", 500))


@pytest.mark.parametrize("kind", list(KINDS))
def test_a_plan_to_start_from_is_in_reach_where_the_budget_is(kind: str) -> None:
    plan = starting(kind, 20_000, epsilon="4")
    for name, task in preview(calibrate_plan(plan, 20_000)).tasks.items():
        assert task.warning is None, name


def test_a_signed_plan_can_be_begun_from(browser: Browser, plan: Plan) -> None:
    assert load_plan(written(browser.get(f"{STUDIO}?from=1").text)) == plan
    assert [browser.get(f"{STUDIO}?from={version}").status_code for version in ("9", "x")] == [404, 200]


def test_the_studio_previews_a_plan_like_the_command_line(browser: Browser) -> None:
    page = send(browser, text=SMALL.replace("\n", "\r\n")).text
    described = preview(calibrate_plan(load_plan(SMALL), 60))
    task, said = described.tasks["colour"], words(page)
    for shown in (task.summary, task.noise_words, f"{task.llm_calls} an answer"):
        assert shown in said
    for accountant, (_, upper) in described.epsilon_by_accountant.items():
        assert accountant.upper() in said
        assert f'title="{upper!r}"' in page
    assert re.search(r"Earlier plans ε 4 .* Free afterwards ε 2 ", said)
    assert not re.search("<style| style=", page)
    assert written(page) == SMALL
    assert signed(browser) == 1


def test_the_preview_estimates_latency_from_a_task_that_was_measured(browser: Browser) -> None:
    assert "an estimate from" not in send(browser).text
    browser.services.grains.report = [Measured("toys.colour@1", 25.0, work_s=12.0, typical_s=9.5, repeats=0.804)]
    assert "25.0 s (typical slots take 9.5 s, the largest 12.0 s)" in (page := send(browser).text)
    assert "in 80 % of questions beside public texts" in page


def test_more_epsilon_and_fewer_answers_need_fewer_slots() -> None:
    calibrated = calibrate_plan(load_plan(SMALL.replace("epsilon: 2", "epsilon: 16")), 60)
    assert [row[1] for row in epsilon_chart(over_epsilon(calibrated)).rows] == ["8", "16"]  # no plan has more than 25
    chart = answers_chart(over_answers(calibrated))
    heights = [float(height) for height in re.findall(r"[ML][\d.]+ ([\d.]+)", chart.path(chart.lines[0]))]
    assert heights == sorted(heights, reverse=True)  # upwards on the page
    assert [row[1] for row in chart.rows] == ["half", "as planned", "twice"]


def test_the_problems_of_a_wrong_plan_are_shown(browser: Browser) -> None:
    for text, says in (
        ("a: [", "not valid YAML"),
        (SMALL.replace("toys", "cars"), "is for cars"),
        (SMALL.replace("shots: 2", "shots: 20"), "line 5 tasks.colour shots × ensemble = 200 exceeds"),
    ):
        for path in ("", "/confirm", "/sign"):
            page = send(browser, path, text, name="toys", digest="", after="1")
            assert (page.status_code, says in words(page.text), written(page.text)) == (422, True, text)
            assert 'id="to-sign"' not in page.text
    assert signed(browser) == 1


def test_the_page_shows_that_a_plan_is_being_computed(browser: Browser, monkeypatch: pytest.MonkeyPatch) -> None:
    go_on, busy = Event(), Computations("test")
    monkeypatch.setattr(desk, "_computations", busy)
    send(browser)
    busy.ask("somebody else", "first", go_on.wait)
    monkeypatch.setattr(desk, "_WAIT_S", 0.0)
    monkeypatch.setattr(desk, "_POLL_S", 0.0)
    curves = send(browser, "/curves").text  # of a plan that is computed already
    assert '<details class="card" id="otherwise" open>' in curves
    assert "being computed" in curves
    other = SMALL.replace("answers: 20", "answers: 21")
    assert f'hx-post="/admin{STUDIO}"' in _part(browser, "", other)
    for path in ("", "/confirm", "/sign"):
        page = send(browser, path, other, name="toys", digest="x", after="1")
        assert (page.status_code, "Computing the noise" in page.text) == (200, True)
    assert "must be computed" in _part(browser, "/try", other)
    assert signed(browser) == 1
    go_on.set()


def test_one_thing_is_computed_at_a_time_and_a_result_no_longer_wanted_is_not_begun() -> None:
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
def test_a_page_that_cannot_ask_again_insists_on_a_result_that_another_page_gave_up(
    insist: bool, found: str | None
) -> None:
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


@pytest.mark.parametrize("group", [None, "care"])
def test_a_plan_that_exceeds_the_budget_shows_what_is_free(browser: Browser, group: str | None) -> None:
    free = (
        "lifetime budget of 'toys' (ε = 4, δ = 0.0001) is promised to signed plans and only (ε = 4, δ = 0.0001) is free"
    )
    if group:
        browser.done("/groups", {"name": group, "epsilon": "7", "delta": "1.5e-4"})
        browser.done(f"/groups/{group}/join", {"knowledge_base": "toys"})
        free = "budget of group 'care' only (ε = 3, δ = 0.00005) is left for 'toys'"
    text = SMALL.replace("epsilon: 2", "epsilon: 5")
    for path, status in (("", 200), ("/confirm", 422)):
        page = send(browser, path, text)
        assert (page.status_code, 'id="to-sign"' in page.text) == (status, False)
        assert f"(ε = 5, δ = 0.00002), but of the {free}; sign a smaller plan." in words(page.text)
    digest = calibrate_plan(load_plan(f"{text}\ncohorts: [1]\n"), 60).digest
    assert send(browser, "/sign", text, name="toys", digest=digest, after="1").status_code == 402
    assert signed(browser) == 1


def test_signing_takes_a_deliberate_act(browser: Browser) -> None:
    worth = SMALL.replace("epsilon: 2", "epsilon: 4").replace("answers: 20", "answers: 5")
    assert "confirm" not in confirm(browser, worth)
    page = words(send(browser, "/confirm").text)
    assert "ε 2 and δ 2e-5 (1 in 50,000) are taken" in page
    assert "toys.colour@2 gives 20 answers" in page
    form = confirm(browser)
    for wrong in ({"name": ""}, {"name": "Toys"}, {"confirm": ""}):
        refused = browser.post(f"{STUDIO}/sign", form | wrong)
        assert (refused.status_code, 'id="problem">Nothing was signed.' in refused.text) == (422, True)
    assert signed(browser) == 1
    for _ in range(2):  # sent twice, it signs once
        assert browser.done(f"{STUDIO}/sign", form) == "/knowledge-bases/toys/plans"
    plan = browser.records.ledger.budgets.plan("toys", 2)
    assert (plan.signed_by, plan.digest, signed(browser)) == (browser.key.id, form["digest"], 2)


def test_a_plan_that_is_signed_is_signed_again_by_another_deliberate_act(browser: Browser) -> None:
    small = SMALL.replace("epsilon: 2", "epsilon: 1")
    assert 'name="again"' not in send(browser, "/confirm", small).text
    browser.done(f"{STUDIO}/sign", confirm(browser, small))
    page = send(browser, "/confirm", small).text
    assert "Plan 2 of toys is this very plan" in words(page)
    form = confirm(browser, small)
    refused = browser.post(f"{STUDIO}/sign", form)
    assert (refused.status_code, 'id="problem">Nothing was signed.' in refused.text) == (409, True)
    assert signed(browser) == 2
    for _ in range(2):
        browser.done(f"{STUDIO}/sign", form | {"again": "2"})
    assert signed(browser) == 3


def test_an_admin_who_saw_another_state_of_the_budget_is_asked_again(browser: Browser) -> None:
    form = confirm(browser)
    other = SMALL.replace("epsilon: 2", "epsilon: 1")
    browser.done(f"{STUDIO}/sign", confirm(browser, other))
    refused = browser.post(f"{STUDIO}/sign", form)
    assert (refused.status_code, hidden(refused.text, "after")) == (409, "2")
    assert "Free afterwards: ε 1" in words(refused.text)
    for wrong in ({"after": "soon"}, {"after": ""}, {"digest": "0" * 64}, {"text": other}):
        refused = browser.post(f"{STUDIO}/sign", form | {"after": "2"} | wrong)
        assert (refused.status_code, "that was shown" in words(refused.text)) == (422, True)
    assert signed(browser) == 2


ROWS = "text,label\nred ball,red\nblue ball,blue\n"
LINES = '{"text": "red ball", "label": "red"}\n\n{"text": "blue ball", "label": "blue"}'


def test_a_draft_is_tried_on_public_examples(browser: Browser) -> None:
    before = browser.records.ledger.budgets.statuses()
    for rows in (ROWS, LINES):
        said = words(part(browser, "/try", trial_rows=rows, trial_query="a ball"))
        noisy = r"Answer, with the plan’s noise (red|blue) \(score 0\.\d\d\) Without noise (red|blue)"
        assert re.search(noisy, said)
        assert re.search(r"The noise kept that answer \d+ of 20 times", said)
        assert "2 exemplars" in said
        page = send(browser, "/try", trial_rows=rows, trial_query="a ball", trial_task="colour").text
        assert "The noise kept that answer" in page
        assert rows.strip() in html.unescape(page)  # kept, to be tried again
    assert browser.records.ledger.budgets.statuses() == before


def test_the_problem_of_a_wrong_trial_is_shown(browser: Browser) -> None:
    for form, says in (
        ({"trial_rows": ""}, "Examples: Paste one"),
        ({"trial_rows": "{text}"}, "Examples: Row 1: "),
        ({"trial_rows": "text\nx"}, "Label: "),
        ({"trial_rows": ROWS, "trial_query": ""}, "text is empty."),
        ({"trial_rows": ROWS, "trial_task": "shape"}, "no task 'shape'"),
        ({"trial_rows": "text,label\n" + "x,red\n" * 201}, "Exemplars: "),
    ):
        refused = part(browser, "/try", **{"trial_query": "a ball"} | form)
        assert 'role="alert"' in refused
        assert says in words(refused)


def test_a_trial_reports_that_the_engine_is_down(browser: Browser, toy_engine) -> None:
    toy_engine.down = True
    assert "does not answer" in part(browser, "/try", trial_rows=ROWS, trial_query="a")


LABELLED = "unit_id,text,label\n" + "".join(f"u{i},{c} ball {i},{c}\n" for i in range(50) for c in ("red", "blue"))


def measured(browser: Browser, content: str = LABELLED, name: str = "rows.csv", **fields: str) -> str:
    """What htmx shows of rows in a file, once they are measured; an empty name sends no file."""
    data = {"csrf": browser.csrf(), "text": SMALL, "unit_id": "unit_id", **fields}
    files = {"file": (name, content.encode())} if name else None
    with start_blocking_portal() as browser.client.portal:  # one event loop for all requests, as a service has
        while "This takes a minute" in (
            shown := browser.client.post(f"/admin{STUDIO}/measure", data=data, files=files, headers=HTMX).text
        ):
            pass
    browser.client.portal = None
    assert "<html" not in shown
    return words(shown)


def test_a_draft_is_measured_on_labelled_rows_that_are_not_kept(browser: Browser) -> None:
    before = browser.records.ledger.budgets.statuses(), browser.records.audit.end().sequence
    shown = measured(browser)
    assert re.search(r"colour , as planned (\d+\.\d ± \d+\.\d %|0 %|100 %).* (\d+\.\d ± \d+\.\d %) 20\b", shown), shown
    assert "colour , with proposal 1" in shown
    assert "as planned" in measured(browser, LABELLED.replace("text", "toy", 1), column_text="toy")
    assert (browser.records.ledger.budgets.statuses(), browser.records.audit.end().sequence) == before
    page = browser.client.post(
        f"/admin{STUDIO}/measure",
        data={"csrf": browser.csrf(), "text": SMALL, "unit_id": "unit_id"},
        files={"file": ("rows.csv", LABELLED.encode())},
    ).text
    assert "as planned" in words(page)
    assert "red ball 7" not in page


def test_the_problem_of_rows_that_cannot_be_measured_is_shown(browser: Browser) -> None:
    for content, name, said in (
        ("", "", "Choose one with labelled rows"),
        (LABELLED, "rows.txt", "must end in .csv"),
        (LABELLED.replace("label", "colour", 1), "rows.csv", "label"),
        (LABELLED.replace("unit_id", "person", 1), "rows.csv", "unit_id"),
        ("unit_id,text,label\nu,red ball,red\n", "rows.csv", "fewer than 20 units"),
    ):
        assert said in measured(browser, content, name)


def test_pages_are_the_same_whatever_exemplars_there_are(browser: Browser) -> None:
    def pages() -> list[str]:
        read = [browser.get(path) for path in ("/plans", STUDIO, f"{STUDIO}?kind=text")]
        read += [send(browser, path) for path in ("", "/curves", "/confirm")]
        assert {page.status_code for page in read} == {200}
        return [page.text for page in read]

    before = pages()
    upload(browser.records, [(f"{CANARY} {i}", f"{CANARY} {i}", CANARY) for i in range(30)])
    assert pages() == before
    assert CANARY not in send(browser, "/try", trial_rows=ROWS, trial_query="a").text


def test_a_one_time_release_is_previewed_signed_and_shown(browser: Browser) -> None:
    once = SMALL[: SMALL.index("    shots")] + "    release: once\n    mechanism: {type: prototypes}\n"
    said = words(send(browser, text=once).text)
    assert "any number of answers" in said
    assert "30 units a label" in said
    assert "any number of answers" in words(send(browser, "/confirm", once).text)
    browser.done(f"{STUDIO}/sign", confirm(browser, once))
    for page, says in (
        ("/knowledge-bases/toys/plans", "one-time release is made"),
        ("/knowledge-bases/toys/releases", "one-time release for answers of prototypes"),
        ("/", "any number of questions"),
        ("/audit", "release of toys.colour@2 was charged"),
    ):
        assert says in browser.read(page)
    again = written(browser.get(f"{STUDIO}?from=2").text)
    assert "shots" not in again
    assert load_plan(again).tasks["colour"].once
