"""The overview: budgets promised, used and free, and how long the answers last."""

import itertools
import re
from dataclasses import replace
from datetime import UTC, date, datetime, timedelta

import pytest

from accounting.ledger.history import Day, Minute, Use
from accounting.plans.plan import load_plan
from service.answering.plans.signing import prepare, sign
from service.gateway.dashboard.charts import styles
from service.gateway.dashboard.overview import next_step
from service.gateway.dashboard.usage import burn_down, charged_by_day
from service.operations import accuracies
from service.operations.attention import ENOUGH, MOSTLY
from service.operations.forecast import RULE, course, forecast
from service.operations.overview import summarise
from service.operations.roles import Actor
from service.operations.services import Services
from service.operations.usage import charged
from tests.deploy.promql import ALERTS
from tests.service.conftest import EMBEDDER, PLAN
from tests.service.gateway.dashboard.dashboard_browser import HTMX, Browser, words
from tests.service.gateway.dashboard.test_dashboard_knowledge_base import release

NOW = datetime(2026, 3, 10, 12, tzinfo=UTC)
TODAY = NOW.date()
TASK = "toys.colour@1"


def days(*answers: int, last: date = TODAY, task: str = TASK) -> list[Day]:
    """The history of days with the given numbers of answers; the last of them is ``last``."""
    first = last - timedelta(days=len(answers) - 1)
    return [Day(first + timedelta(days=i), task, count) for i, count in enumerate(answers) if count]


def test_the_chart_falls_from_all_to_what_is_left_and_on_to_nothing() -> None:
    spent = days(10, 0, 20, 10)
    one = forecast(TASK, 100, 60, spent, NOW)
    today = [Minute(NOW - timedelta(hours=hours), TASK, 5) for hours in (4, 2)]
    chart = burn_down("toys", [course(one, NOW - timedelta(days=3), spent, today, NOW)], NOW)
    assert chart is not None
    known, foretold = chart.lines
    points = [tuple(map(float, point.split())) for point in re.split("[ML]", chart.path(known))[1:]]
    assert all(a[0] == b[0] or a[1] == b[1] for a, b in itertools.pairwise(points))  # steps
    heights = [height for _, height in points]
    assert heights == sorted(heights)
    assert (heights[0], heights[-1]) == (0, pytest.approx(400 * (1 - 0.6)))  # from the top: all of them
    assert foretold.foretold
    assert chart.path(foretold).startswith(f"M{points[-1][0]} ")
    assert chart.summary == "toys.colour@1: 60 of 100 answers left"
    assert burn_down("toys", [], NOW) is None


def test_on_its_first_day_the_chart_is_one_of_hours() -> None:
    one = forecast(TASK, 100, 90, days(10), NOW)
    today = [Minute(NOW - timedelta(hours=1), TASK, 10)]
    chart = burn_down("toys", [course(one, NOW - timedelta(hours=2), days(10), today, NOW)], NOW)
    assert chart is not None
    assert list(map(words, chart.x.labels())) == ["10:00", "11:00", "12:00"]
    (known,) = chart.lines
    assert chart.path(known) == "M0.0 0.0L500.0 0.0L500.0 40.0L1000.0 40.0"
    rows = [["colour@1", "10:00", "100 %"], ["colour@1", "11:00", "90 %"], ["colour@1", "12:00", "90 %"]]
    assert [list(map(words, row)) for row in chart.rows] == rows
    assert list(map(words, chart.header)) == ["Series", "time ( UTC )", "share of the answers"]
    assert (chart.y.labels()[0], chart.marks) == ("0 %", [])


@pytest.mark.parametrize(("past", "left"), [(2, 80), (3, 20), (40, 30), (400, 90)])
def test_the_past_fills_the_chart(past: int, left: int) -> None:
    """From its left edge to at least three quarters of its width, however far away the end is."""
    spent = days(*[(100 - left) / past] * past)
    one = forecast(TASK, 100, left, spent, NOW)
    chart = burn_down("toys", [course(one, NOW - timedelta(days=past), spent, [], NOW)], NOW)
    known = [tuple(map(float, point.split())) for point in re.split("[ML]", chart.path(chart.lines[0]))[1:]]
    assert known[0][0] == 0
    assert known[-1][0] >= 749.9
    assert float(re.findall(r"([\d.]+) [\d.]+$", chart.path(chart.lines[-1]))[0]) == 1000
    assert chart.y.low == 0


def test_budgets_and_answers_left_are_shown(browser: Browser) -> None:
    _, token = browser.records.keys.create("ana", "analyst")
    assert browser.ask(token).status_code == 200
    page = browser.get("/").text
    assert "19 answers left; not enough history" in page
    assert "ε of 8, 4 is promised" in page
    assert RULE in words(page)


def spend(services: Services, answers: int) -> None:
    release(services, *[{"label": "red"}] * answers)


@pytest.mark.parametrize(
    ("answers", "days_on", "expected"),
    [
        (0, 0, []),
        (0, 3, [("", "never asked", "/keys")]),
        (5, 40, []),
        (5, 3, [("warn", "ending soon", "/knowledge-bases/toys/plan?from=1")]),
        (19, 40, [("warn", "ending soon", "/knowledge-bases/toys/plan?from=1")]),
        (20, 0, [("bad", "spent", "/knowledge-bases/toys/plan?from=1")]),
    ],
)
def test_what_needs_attention(services: Services, answers: int, days_on: int, expected: list) -> None:
    spend(services, answers)
    (summary,) = summarise(services.records, datetime.now(UTC) + timedelta(days=days_on))
    assert [(one.urgency, one.state, next_step(one)[1]) for one in summary.matters] == expected


def text(fallback: bool) -> dict[str, object]:
    return {"text": "red", "keywords": [], "fallback": fallback}


@pytest.mark.parametrize(("fallbacks", "others", "noticed"), [(4, 0, False), (5, 0, True), (9, 1, True), (8, 1, False)])
def test_a_task_whose_answers_use_no_exemplars_needs_attention(
    services: Services, fallbacks: int, others: int, noticed: bool
) -> None:
    release(services, *[text(True)] * fallbacks, *[text(False)] * others)
    (summary,) = summarise(services.records, datetime.now(UTC) + timedelta(days=40))
    found = [(one.urgency, one.sentence) for one in summary.matters if one.state == "falls back"]
    said = f"{fallbacks} of its {fallbacks + others} answers used no exemplars, since nothing stood out from the noise;"
    assert found == [("warn", f"{said} each cost as much as any other.")] * noticed


def test_the_alert_and_the_overview_notice_fallbacks_alike() -> None:
    expression = " ".join(ALERTS["DpiclAnswersFallBack"]["expr"].split())
    assert f"dpicl:task_fallback_share >= {MOSTLY:g} and dpicl:charges_released_total >= {ENOUGH} " in expression


@pytest.mark.parametrize(
    ("percent", "days", "ending"), [(25, 0, True), (26, 0, False), (100, 11, False), (100, 12, True)]
)
def test_an_operator_sets_when_answers_need_attention(
    services: Services, percent: int, days: int, ending: bool
) -> None:
    spend(services, 5)  # of 20; the others last between 11 and 12 days
    settings = services.records.settings.model_copy(update={"attention_percent": percent, "attention_days": days})
    evening = datetime.now(UTC).replace(hour=20) + timedelta(days=3)  # the rate is one of whole days
    (summary,) = summarise(replace(services.records, settings=settings), evening)
    assert [one.state for one in summary.matters] == ["ending soon"] * ending


@pytest.mark.slow
def test_a_newer_plan_or_another_release_settles_a_spent_task(services: Services) -> None:
    records = services.records
    spend(services, 20)
    goes_on = (
        PLAN.replace("answers: 20", "answers: 20\n    when_spent: last")
        + """
  last:
    kind: classify
    release: once
    labels: [red, blue]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    share: 0.1
    mechanism: {type: prototypes}
"""
    )
    sign(records, prepare(records, load_plan(goes_on)), "test", embed=EMBEDDER.embed)
    assert summarise(records, datetime.now(UTC))[0].matters == []
    newer = records.ledger.budgets.task("toys.colour@2")
    for i in range(20):
        records.ledger.charge(newer, bytes([i]), key_id="k")
    assert summarise(records, datetime.now(UTC))[0].matters == []


def test_the_overview_begins_with_what_needs_attention(browser: Browser) -> None:
    records = browser.records
    spend(browser.services, 20)
    for number in range(7):
        records.create_knowledge_base(
            f"a{number}", epsilon=1, delta=1e-5, public_size=200, fields=["text", "label"], embedded_field="text"
        )
    records.ledger.cohorts.archive("a0", by="test")
    first, second = browser.get("/").text, browser.get("/?page=2").text
    assert first.index("Needs attention") < first.index('href="/admin/knowledge-bases/toys/plan?from=1"')
    shown = [re.findall(r'id="kb-(\w+)"', page) for page in (first, second)]
    assert shown == [["toys", "a1", "a2", "a3"], ["a4", "a5", "a6", "a0"]]
    assert 'hx-get="/admin/?page=2"' in second
    part = browser.get("/", headers=HTMX)
    assert ("<html" in part.text, part.headers["cache-control"]) == (False, "no-store")
    for beyond in ("9", "9" * 30, "9" * 5000):
        assert 'id="kb-' in browser.get("/", params={"page": beyond}).text


def test_the_first_hour_is_guided_step_by_step(browser: Browser) -> None:
    page = browser.get("/").text
    assert "The first hour" in page
    done = [step for step in page.split("<li")[1:] if step.startswith(' class="done"')]
    assert any("Sign a plan" in step for step in done)
    assert not any("Hand out" in step for step in done)


def test_answers_that_older_plans_left_are_shown(browser: Browser) -> None:
    records = browser.records
    spend(browser.services, 5)
    sign(records, prepare(records, load_plan(PLAN)), "test", again=1)
    (summary,) = summarise(records, datetime.now(UTC))
    listed = [(task.task, expected and expected.left, replaced) for task, expected, replaced in summary.listed]
    assert listed == [("toys.colour@2", 20, False), ("toys.colour@1", 15, True)]
    assert "colour@1 older plan 15 answers left" in browser.read("/")
    records.ledger.cohorts.archive("toys", by="test")
    assert "colour@1 older plan 15 answers left" in browser.read("/")
    spent = records.ledger.budgets.task("toys.colour@1")
    for i in range(15):
        records.ledger.charge(spent, bytes([100 + i]), key_id="k")
    assert "older plan" not in browser.read("/")


def test_more_tasks_than_fit_are_unfolded(browser: Browser) -> None:
    records = browser.records
    start, task = PLAN.replace("epsilon: 4, delta: 1.0e-4", "epsilon: 2, delta: 1.0e-5").split("  colour:\n")
    four = start + "".join(f"  {name}:\n{task}" for name in ("a", "b", "c", "d"))
    sign(records, prepare(records, load_plan(four)), "test")
    at_once, further = browser.get("/").text.split('id="further-toys"')
    assert [re.findall(r'<th scope="row"><code[^>]*>(\w+@\d)<', part) for part in (at_once, further)] == [
        ["a@2", "b@2", "c@2", "d@2"],
        ["colour@1"],
    ]
    assert "older plan" not in further  # no newer plan has a task of this name


def test_every_bar_is_filled_with_what_is_used(browser: Browser) -> None:
    """The bars of a knowledge base, a task and a key."""
    records = browser.records
    records.keys.create("ana", "analyst", quota=10)
    (ana,) = [key for key in records.keys.list() if key.name == "ana"]
    task = records.ledger.budgets.task("toys.colour@1")
    for i in range(4):
        records.ledger.charge(task, bytes([i]), key_id=ana.id)

    def filled(path: str, about: str) -> str:
        bar = rf'aria-label="{about}[^>]*>(?:<rect class="promised"[^>]*>)?<rect class="used" width="([\d.]+)"'
        return re.search(bar, browser.get(path).text)[1]

    assert filled("/", "4 of 20 answers used") == "20.0"
    assert filled("/knowledge-bases/toys/plans", "4 of 20 answers used") == "20.0"
    assert filled("/keys", "4 of 10 answers used") == "40.0"
    (summary,) = summarise(records, datetime.now(UTC))
    share = 100 * summary.used_epsilon / summary.budget.lifetime.epsilon
    assert float(filled("/", "Of a lifetime ε of 8")) == pytest.approx(share, abs=0.01)


def test_it_shows_who_asked_and_whether_exemplars_help(browser: Browser) -> None:
    records = browser.records
    assert "No questions in the last seven days" in browser.read("/")
    assert "dpicl eval FOLDER --record toys.colour@1" in browser.read("/")
    _, token = records.keys.create("ana", "analyst")
    for query in ("a toy", "another"):
        assert browser.ask(token, query).status_code == 200
    assert "by ana (2)" in browser.read("/")
    admin = Actor.with_key(browser.key)
    for right, without in ((64.0, 70.5), (91.25, 70.5)):
        task = records.ledger.budgets.task("toys.colour")
        shown = {"accuracy": right, "standard_error": 3.4, "zero_shot": without, "zero_shot_error": 3.2}
        shown |= {"rows": 200, "engine": "majority"}
        accuracies.record(admin, records, task, **shown)
        page = browser.read("/")
        assert f"{right:.1f} ± 3.4 % right, 70.5 ± 3.2 % without exemplars, on 200 public rows" in page
        assert ("no gain" in page) == (right < without)
    assert "not measured" not in browser.read("/")


def test_a_task_has_the_same_colour_in_every_chart() -> None:
    """The task with the fewest answers left is not the busiest of the last days here."""
    tasks = ["a@1", "b@1", "c@2"]
    spent = [*days(50, 1, task="toys.b@1"), *days(9, 9, task="toys.c@2")]
    courses = [
        course(forecast(own[0].task, 100, left, own, NOW), NOW - timedelta(days=3), own, [], NOW)
        for own, left in ((spent[2:], 82), (spent[:2], 49))
    ]
    left = burn_down("toys", courses, NOW, tasks)
    uses = [Use(day.day, day.task, "k", day.answers) for day in spent[1:]]
    used = charged_by_day(charged(uses, lambda use: use.task.removeprefix("toys."), TODAY), tasks)
    assert {line.name: line.style for line in left.lines if not line.foretold} == {"b@1": 2, "c@2": 3}
    assert {name: style for (name, _), style in zip(used.series, used.styles, strict=True)} == {"c@2": 3, "b@1": 2}
    assert [name for name, _ in used.series] != [line.name for line in left.lines if not line.foretold]


def test_more_tasks_than_colours_can_still_be_distinguished() -> None:
    every = [f"t{i}@1" for i in range(9)]
    assert styles(every[:6], every) == [1, 2, 3, 4, 5, 6]
    assert styles(["t7@1", "t1@1", "all others"], every) == [2, 1, 4]
    assert sorted(styles(every[3:], every)) == [1, 2, 3, 4, 5, 6]


def test_a_chart_of_use_begins_with_the_first_answers() -> None:
    shown = [
        len(charged_by_day(charged([Use(TODAY - timedelta(days=ago), TASK, "k", 3)], str, TODAY)).names)
        for ago in (0, 6, 7, 20, 29)
    ]
    assert shown == [1, 7, 8, 21, 30]
