"""The statement of a knowledge base: its figures are the ledger's, it stands alone, and it shows nothing private."""

import base64
import hashlib
import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml

from accounting.plans.plan import calibrate_plan, load_plan
from accounting.replay.trail import verify
from service.answering.mechanisms.adapter import ADAPTERS
from service.answering.plans.signing import sign
from service.engines.protocol import EngineInfo
from service.operations import statement
from service.operations.documents import statement_html
from service.operations.roles import Actor
from service.operations.services import Services
from service.operations.statement import Statement
from service.operations.wording import digits, odds
from service.records.engine_record import note_engine
from service.records.records import Records, open_records
from tests.documented import DOCS, blocks, run
from tests.service.answering import topic_shop
from tests.service.conftest import PLAN, client_of, development, upload
from tests.service.gateway.api.test_api import Api, problem
from tests.service.gateway.dashboard.dashboard_browser import signed_in, words
from tests.service.shell import Shell

AUDITOR = Actor("otto", "Otto", "key", "auditor")
HOSTILE = "<script>alert(1)</script>\"'&amp;{{ 7 * 7 }}</style>"
ONCE = """
  colour_once:
    kind: classify
    release: once
    labels: [red, blue]
    prompt: {exemplar: "{text}: {label}", query: "{text}:"}
    mechanism: {type: softmax_regression}
"""


class Checked(HTMLParser):
    """Reads a document, and fails where it is not closed properly, or has anything that runs or is loaded."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.feed(html)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert tag not in {"script", "link", "img", "iframe", "object", "form", "base"}
        for name, value in attrs:
            assert not name.startswith("on")
            assert name not in {"style", "src"}
            assert "javascript:" not in (value or "")
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def drawn_up(records: Records, name: str = "toys") -> Statement:
    return statement.draw_up(AUDITOR, records, name)


def page(records: Records, name: str = "toys") -> str:
    html = statement_html(drawn_up(records, name))
    Checked(html)
    assert "@import" not in html
    assert "url(" not in html
    assert "href" not in html
    return html


def test_its_figures_are_the_ledgers(services: Services) -> None:
    api, records = Api(services), services.records
    ana = api.make_key("ana")
    for query in ("one", "two", "three", "three"):
        assert api.ask(query, role="ana").status_code == 200
    assert api.ask("four").status_code == 200
    api("admin", "DELETE", "/v1/knowledge-bases/toys/units/u1")
    stated = drawn_up(records)
    (plan,) = stated.plans
    (task,) = plan.tasks
    assert (task.promised, task.given, task.left, task.lost, task.open) == (20, 4, 16, 0, 0)
    assert (stated.askers[0].name, stated.askers[0].answers) == (f"“ana” ({ana})", 3)
    assert sum(asker.answers for asker in stated.askers) == stated.given == 4
    assert stated.used(1) == plan.budget.epsilon_spent > 0
    assert (stated.deletions.number, stated.uploads) == (1, None)  # the toys were stored beneath the audit trail
    assert stated.head is not None
    end = records.audit.head()
    assert (stated.head.events, stated.head.hash) == (end.sequence, end.hash)
    assert verify(records.audit.export(), heads=[stated.head.hash]).problems == []
    shown = words(page(records))
    for fact in (
        "Promised for life, at most ε = 8, δ = 0.0002",
        "Promised by signed plans ε = 4, δ = 0.0001",
        "a factor of at most 3,000 over the whole life, and of at most 55 by the plans that are signed",
        "1 plan was signed. 4 answers have left the service.",
        "By “test”",
        "one of 2 labels: red, blue.",
        "Answers promised, at most 20 Given 4 Left 16",
        f"“ana” ({ana}) 3",
        "Deletions of a person 1, the last on",
        f"dpicl audit verify trail.ndjson --head {end.hash}",
    ):
        assert fact in shown, fact
    assert " UTC" in shown


def test_it_shows_nothing_of_the_rows(tmp_path: Path) -> None:
    records = open_records(development(tmp_path))
    records.create_knowledge_base(
        "toys", epsilon=8, delta=2e-4, public_size=60, fields=["text", "label"], embedded_field="text"
    )
    few = [("canary-unit", "canary-text", "canary-label")]
    many = [*few, *((f"u{i}", f"canary {i}", "red") for i in range(777))]
    pages = []
    for toys in (few, many):
        upload(records, toys)
        shown = page(records)
        assert "canary" not in shown
        assert "777" not in words(shown)
        pages.append(re.sub(r"<time[^>]*>[^<]*</time>", "", shown))
    assert pages[0] == pages[1]


def test_nothing_is_signed_yet(tmp_path: Path) -> None:
    records = open_records(development(tmp_path))
    records.create_knowledge_base("new", epsilon=2, delta=1e-5, public_size=900, fields=["text"], embedded_field="text")
    shown = words(page(records, "new"))
    assert "No plan is signed yet. So nothing can be asked, and nothing was used." in shown
    assert "no plan has taken anything of it yet" in shown
    assert "No answer was charged to a key." in shown
    assert "No engine has served from this database yet." in shown
    assert "Deletions of a person none" in shown
    assert "The command line created new" in shown


def test_cohorts_groups_and_an_archive(services: Services) -> None:
    api, toys = Api(services), "/v1/knowledge-bases/toys"
    cohort = {"epsilon": 6, "delta": 1e-5, "public_size": 900}
    assert api("admin", "POST", f"{toys}/cohorts", json=cohort).status_code == 201
    assert api("admin", "POST", "/v1/groups", json={"name": "care", "epsilon": 5, "delta": 1e-4}).status_code == 201
    assert api("admin", "PUT", "/v1/groups/care/knowledge-bases/toys").status_code == 200
    assert api("admin", "POST", f"{toys}/plans/1/retire?confirm=permanent").status_code == 200
    api("admin", "PATCH", toys, json={"remote_engine": True})
    assert api("admin", "POST", f"{toys}/archive?confirm=permanent").status_code == 200
    stated = drawn_up(services.records)
    assert [stated.used(cohort.cohort) for cohort in stated.cohorts] == [0, 0]
    shown = words(page(services.records))
    for fact in (
        "Archived on",
        "Cohort 1: people who arrived first from",
        "Cohort 2: people who arrived first from",
        "Promised for life, at most ε = 6, δ = 0.00001",
        "is in the group care, of toys",
        "ε = 5, δ = 0.0001 for life, of which ε = 4, δ = 0.0001 are promised",
        "Draws on cohorts 1",
        "its tasks answer no more",
        "retired plan 1 of toys",
        "allowed engines outside the deployment",
        "archived toys",
        "does not hold for it",
    ):
        assert fact in shown, fact


def test_one_time_releases(records: Records) -> None:
    plan = calibrate_plan(load_plan(PLAN.replace("epsilon: 4", "epsilon: 3") + ONCE.removeprefix("\n")), 60)
    sign(records, plan, "test", make=lambda *_: None)
    stated = drawn_up(records)
    once = stated.plans[1].tasks[1]
    assert (once.promised, once.given, stated.once) == (None, 0, 0)
    assert "One-time release not made Answers promised any number" in words(page(records))


def test_topics(tmp_path: Path) -> None:
    shown = words(page(topic_shop.opened(tmp_path), "shop"))
    assert "Answers promised, at most 6 Given 0 Left 6" in shown
    assert "kettle 3 0 3 lamp 3 0 3" in shown


def test_hostile_names_stay_text(records: Records) -> None:
    written = yaml.safe_load(PLAN)
    written["budget"]["epsilon"] = 2
    task = written["tasks"]["colour"]
    task["labels"] = ["red", HOSTILE]
    task["prompt"]["instruction"] = HOSTILE
    sign(records, calibrate_plan(load_plan(yaml.safe_dump(written)), 60), HOSTILE)
    key, _ = records.keys.create(HOSTILE, "analyst", by=HOSTILE)
    charge = records.ledger.charge(records.ledger.budgets.task("toys.colour"), b"q", key_id=key.id)
    records.ledger.release(charge.id, {"label": "red"})
    records.allow_remote_engine("toys", True, by=HOSTILE)
    note_engine(records.database, EngineInfo(name="x" * 100, isolation=HOSTILE, is_llm=True, notice=HOSTILE))
    html = page(records)
    assert html.count("<style>") == html.count("</style>") == 1
    assert words(html).count(HOSTILE) == 7


def test_its_policy_allows_its_own_style_and_nothing_else(services: Services) -> None:
    response = Api(services)("admin", "GET", "/v1/knowledge-bases/toys/statement")
    style = re.search("<style>(.*?)</style>", response.text, re.DOTALL)[1]
    digest = base64.b64encode(hashlib.sha256(style.encode()).digest()).decode()
    policy = response.headers["content-security-policy"]
    assert policy.startswith(f"default-src 'none'; style-src 'sha256-{digest}'; ")
    assert response.headers["cache-control"] == "no-store"


def test_every_face_has_the_same_statement(services: Services, dpicl: Shell, tmp_path: Path) -> None:
    api = Api(services)
    browser = signed_in(services)  # before: signing in is an event
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{tmp_path}/service.sqlite")
    file = tmp_path / "paper.html"
    assert dpicl.ok("kb", "statement", "toys", "--out", file) == ""
    assert file.stat().st_mode & 0o077 == 0
    sent = api("admin", "GET", "/v1/knowledge-bases/toys/statement")
    assert sent.headers["content-type"] == "text/html; charset=utf-8"
    kept = browser.get("/knowledge-bases/toys/statement?file=yes")
    assert kept.headers["content-disposition"] == 'attachment; filename="statement-toys.html"'
    shown = browser.get("/knowledge-bases/toys/statement").text
    without_links = re.sub("<nav.*</nav>\n", "", shown, flags=re.DOTALL)
    assert without_links != shown
    texts = [file.read_text(), dpicl.ok("kb", "statement", "toys"), sent.text, kept.text, without_links]
    assert len({re.sub(r"<p>As of <time.*", "", text) for text in texts}) == 1
    assert '<a href="/admin/knowledge-bases/toys/statement">' in browser.get("/knowledge-bases/toys").text


def test_the_page_on_data_protection_runs_as_written(tmp_path: Path) -> None:
    begun = """
        export DPICL_DEVELOPMENT=true
        dpicl kb create support --epsilon 8 --delta 1e-4 --public-size 900 --yes
    """
    printed = run(begun + "".join(blocks(DOCS / "data-protection.md", "sh")), tmp_path)
    noted = re.search("to be noted: ([0-9a-f]{64})", " ".join(printed.split()))[1]
    assert noted in (tmp_path / "support.html").read_text()


def test_an_unknown_knowledge_base_has_none(services: Services, dpicl: Shell, tmp_path: Path) -> None:
    problem(Api(services)("admin", "GET", "/v1/knowledge-bases/toy/statement"), 404, "unknown-knowledge-base")
    assert signed_in(services).get("/knowledge-bases/toy/statement").status_code == 404
    dpicl.monkeypatch.setenv("DPICL_DATABASE_URL", f"sqlite:///{tmp_path}/service.sqlite")
    out = tmp_path / "none.html"
    assert "'toy'" in dpicl.fails("kb", "statement", "toy", "--out", out)
    assert not out.exists()


@pytest.mark.parametrize("role", ["viewer", "analyst"])
def test_names_of_keys_are_for_who_audits(services: Services, role: str) -> None:
    response = client_of(services, role, "v").get("/v1/knowledge-bases/toys/statement")
    problem(response, 403, "wrong-role")


def test_engines_are_those_since_the_knowledge_base_was_created(services: Services) -> None:
    records = services.records
    for name in ("first", "second"):
        note_engine(records.database, EngineInfo(name=name, isolation="i", is_llm=True, notice="n"))
    records.create_knowledge_base("new", epsilon=2, delta=1e-5, public_size=900, fields=["text"], embedded_field="text")
    note_engine(records.database, EngineInfo(name="third", isolation="i", is_llm=True, notice="n", remote=True))
    assert [engine.name for _, engine in drawn_up(records).engines] == ["first", "second", "third"]
    stated = drawn_up(records, "new").engines
    assert [(engine.name, engine.remote) for _, engine in stated] == [("second", False), ("third", True)]
    assert stated[0][0] < stated[1][0] <= datetime.now(UTC)


@pytest.mark.parametrize("adapter", ADAPTERS.values(), ids=lambda adapter: adapter.__name__)
def test_every_mechanism_is_described_plainly(adapter: type) -> None:
    assert re.fullmatch(r"[A-Z].*\w\.", adapter.plainly)


def test_numbers_in_words() -> None:
    assert [odds(epsilon) for epsilon in (0.01, 1, 3, 8, 12, 1000)] == [
        *("1", "2.7", "20", "3,000", "160,000"),
        "more than 1,000,000,000",
    ]
    assert [digits(value) for value in (8.0, 0.1, 1e-12, 100)] == ["8", "0.1", "0.000000000001", "100"]
