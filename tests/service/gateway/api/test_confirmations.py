"""What cannot be undone, over REST: its figures are shown on request, a repeat is refused, nothing is misread."""

from concurrent.futures import ThreadPoolExecutor
from threading import Barrier

import pytest

from service.operations import budgets
from service.operations.budgets import NewCohort
from service.operations.command import SENT
from service.operations.roles import Actor
from service.operations.services import Services
from tests.service.conftest import PLAN
from tests.service.gateway.api.test_api import Api, problem
from tests.service.gateway.dashboard.dashboard_browser import signed_in, words
from tests.service.shell import Shell, create

_KB = "/v1/knowledge-bases"
COHORT = {"epsilon": 5, "delta": 1e-5, "public_size": 900}
ACTS = {
    ("post", _KB): (_KB, {"name": "desk", "epsilon": 8, "delta": 1e-4, "public_size": 600}, "(ε = 8, δ = 0.0001)"),
    ("post", f"{_KB}/{{knowledge_base}}/cohorts"): (f"{_KB}/toys/cohorts", COHORT, "(ε = 5, δ = 0.00001)"),
    ("post", f"{_KB}/{{knowledge_base}}/cohorts/{{cohort}}/close"): (f"{_KB}/toys/cohorts/1/close", None, "cohort 1"),
    ("post", "/v1/groups"): ("/v1/groups", {"name": "care", "epsilon": 9, "delta": 1e-4}, "(ε = 9, δ = 0.0001)"),
    ("put", "/v1/groups/{group}/knowledge-bases/{knowledge_base}"): (
        "/v1/groups/ward/knowledge-bases/toys",
        None,
        "(ε = 10, δ = 0.001)",
    ),
    ("post", f"{_KB}/{{knowledge_base}}/plans/{{version}}/retire"): (f"{_KB}/toys/plans/1/retire", None, "colour"),
    ("post", "/v1/keys/{key_id}/rotate"): ("/v1/keys/KEY/rotate", {"overlap_hours": 3}, "3 hours"),
    ("delete", "/v1/keys/{key_id}"): ("/v1/keys/KEY", None, "ana"),
}


def trail(api: Api) -> int:
    return len(list(api.services.records.audit.events()))


def test_every_act_shows_its_figures_on_request_and_a_confirmation_is_for_these_alone(api: Api) -> None:
    key = api.make_key("ana")
    paths = api("admin", "GET", "/openapi.json").json()["paths"]
    asking = {
        (method, path)
        for path, operations in paths.items()
        for method, operation in operations.items()
        if any(parameter["name"] == "ask_first" for parameter in operation.get("parameters", ()))
    }
    assert asking == ACTS.keys()
    api("admin", "POST", "/v1/groups", json={"name": "ward", "epsilon": 10, "delta": 1e-3})
    tokens = {}
    for (method, _), (address, body, figures) in ACTS.items():
        before, path = trail(api), address.replace("KEY", key)
        shown = problem(api("admin", method.upper(), f"{path}?ask_first=true", json=body), 422, "unconfirmed")
        assert figures in shown["detail"]
        assert (shown["confirm"], shown["token"].partition(":")[0]) == ("permanent", "permanent")
        stale = f"permanent:{'0' * 32}"
        other = problem(api("admin", method.upper(), f"{path}?confirm={stale}", json=body), 422, "unconfirmed")
        assert other["token"] == shown["token"]
        assert trail(api) == before
        tokens[method, path] = shown["token"], body
    assert len({token for token, _ in tokens.values()}) == len(ACTS)
    for (method, path), (token, body) in tokens.items():
        if path.endswith("/close"):  # cohort 2 is open now, so cohort 1 may be closed; its figures are the same
            assert api("admin", "GET", f"{_KB}/toys/cohorts").json()["data"][1]["public_size"] == 900
        done = api("admin", method.upper(), f"{path}?confirm={token}", json=body)
        assert done.is_success, done.text


def test_other_figures_need_another_confirmation(api: Api) -> None:
    cohorts = f"{_KB}/toys/cohorts"
    token = api("admin", "POST", f"{cohorts}?ask_first=true", json=COHORT).json()["token"]
    for changed in ({"epsilon": 5.5}, {"delta": 1e-6}, {"public_size": 901}):
        problem(api("admin", "POST", f"{cohorts}?confirm={token}", json=COHORT | changed), 422, "unconfirmed")
    assert api("admin", "POST", cohorts, json=COHORT | {"public_size": 800}).json()["cohort"] == 2
    problem(api("admin", "POST", f"{cohorts}?confirm={token}", json=COHORT), 422, "unconfirmed")


def test_a_cohort_is_not_opened_twice_by_accident(api: Api) -> None:
    cohorts = f"{_KB}/toys/cohorts"
    assert api("admin", "POST", cohorts, json=COHORT).json()["cohort"] == 2
    for _ in range(2):
        refused = problem(api("admin", "POST", cohorts, json=COHORT), 422, "unconfirmed")
        assert (refused["confirm"], "Cohort 2 of toys" in refused["detail"]) == ("again", True)
    assert len(api("admin", "GET", cohorts).json()["data"]) == 2
    meant = f"{cohorts}?confirm={refused['token']}"
    assert api("admin", "POST", meant, json=COHORT).json()["cohort"] == 3
    problem(api("admin", "POST", meant, json=COHORT), 422, "unconfirmed")  # that was for another cohort 2
    assert api("admin", "POST", cohorts, json=COHORT | {"epsilon": 6}).json()["cohort"] == 4


def test_a_cohort_is_opened_once_by_the_same_request_sent_at_once(services: Services) -> None:
    together, admin = Barrier(4), Actor("a", "a", "account", "admin")

    def open_(_: int) -> str:
        together.wait()
        try:
            budgets.open_cohort(admin, services.records, "toys", NewCohort(**COHORT), SENT)
        except Exception as error:
            return type(error).__name__
        return "opened"

    with ThreadPoolExecutor(4) as threads:
        ended = sorted(threads.map(open_, range(4)))
    assert ended.count("opened") == 1, ended
    assert set(ended) <= {"opened", "CohortError", "UnconfirmedError"}


def test_nor_on_the_other_faces(services: Services, dpicl: Shell) -> None:
    create(dpicl)
    opening = ("cohort", "open", "toys", "--epsilon", 5, "--delta", "1e-5", "--public-size", 900, "--yes")
    assert "cohort 2" in dpicl.ok(*opening)
    assert "add --again" in dpicl.fails(*opening)
    assert "cohort 3" in dpicl.ok(*opening, "--again")
    browser, form = signed_in(services), {name: str(value) for name, value in COHORT.items()}
    home = "/knowledge-bases/toys/cohorts"
    browser.done(home, form)
    page = browser.post(home, form)
    assert "was opened on" in words(page.text)
    assert "Do it all the same" in words(page.text)
    assert len(services.records.ledger.budgets.status("toys").cohorts) == 2


@pytest.mark.parametrize(
    ("method", "path", "meant"),
    [
        ("POST", f"{_KB}/toys/plans?dryrun=true", "dry_run"),
        ("POST", f"{_KB}/toys/plans?dry-run=true", "dry_run"),
        ("POST", f"{_KB}/toys/plans?Dry_Run=true", "dry_run"),
        ("POST", f"{_KB}/toys/exemplars?skip_forgoten=true", "skip_forgotten"),
        ("POST", f"{_KB}/toys/cohorts?askfirst=true", "ask_first"),
        ("DELETE", f"{_KB}/toys/units/u1?dry_run=true", ""),
        ("PATCH", f"{_KB}/toys?ask_first=true", ""),
        ("PUT", "/v1/groups/care/knowledge-bases/toys?confirmed=no", "confirm"),
    ],
)
def test_an_act_has_no_parameter_that_is_ignored(api: Api, method: str, path: str, meant: str) -> None:
    before = trail(api)
    refused = problem(api("admin", method, path, content=PLAN), 422, "invalid-request")
    assert "no such parameter" in refused["detail"]
    assert meant in refused["detail"]
    assert trail(api) == before


def test_a_question_may_have_parameters_of_a_gateway(api: Api) -> None:
    body = {"model": "toys.colour", "messages": [{"role": "user", "content": "a toy"}]}
    assert api("analyst", "POST", "/v1/chat/completions?api-version=2024-10-21", json=body).is_success
