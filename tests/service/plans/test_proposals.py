"""Two people sign: nothing is taken before another one approves, once, and whoever proposed is never the other one."""

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from accounting.plan import CalibratedPlan
from accounting.replay.trail import verify
from service.plans.proposals import SamePersonError, UnknownProposalError, approve, open_proposals, propose
from service.plans.signing import TwoPersonsError, sign
from service.records.api_keys import ApiKey
from service.records.records import Records
from service.services import Services, open_services
from service.web import create_app
from tests.service.conftest import EMBEDDER, PLAN, MajorityEngine, development, embed, make_records
from tests.service.dashboard.dashboard_browser import Browser


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return make_records(tmp_path, settings=development(tmp_path, two_person_signing=True))


@pytest.fixture
def services(records: Records) -> Services:
    return open_services(records, MajorityEngine(), EMBEDDER)


def promised(records: Records) -> float:
    return float(records.ledger.budgets.status("toys").tightest.promised_epsilon)


def problems(records: Records, kind: str = "", **forged: object) -> list[str]:
    """Of a replay where the first event of a kind says something else, but that it lacks its hash."""
    lines = [json.loads(line) for line in records.audit.export()]
    for event in [event for event in lines[:-1] if event["kind"] == kind][:1]:
        event["body"].update(forged)
    found = verify((json.dumps(line) for line in lines), recompute=False).problems
    return [problem for problem in found if "does not have the hash" not in problem]


def test_a_plan_takes_its_budget_when_another_person_approves(records: Records, calibrated: CalibratedPlan) -> None:
    (ana, _), (bo, _) = (records.keys.create(name, "admin", by="root") for name in ("ana", "bo"))
    with pytest.raises(TwoPersonsError):
        sign(records, calibrated, "ana")
    proposal = propose(records, calibrated, ana.id)
    assert propose(records, calibrated, ana.id) == proposal
    assert promised(records) == 0
    with pytest.raises(SamePersonError, match="somebody else must approve"):
        approve(records, "toys", proposal.id, ana.id, embed)
    assert promised(records) == 0
    signed = approve(records, "toys", proposal.id, bo.id, embed)
    assert promised(records) == float(signed.epsilon) > 0
    assert (signed.document, signed.signed_by) == (calibrated.model_dump_json(), bo.id)
    with pytest.raises(UnknownProposalError):
        approve(records, "toys", proposal.id, bo.id, embed)
    events = records.audit.events(kinds=["plan.proposed", "plan.signed"])
    assert [event.kind for event in events] == ["plan.proposed", "plan.signed"]
    assert events[1].particulars.approval.by == bo.id
    assert problems(records) == []


def test_a_replay_finds_who_signed_alone(records: Records, calibrated: CalibratedPlan) -> None:
    (ana, _), (bo, _) = (records.keys.create(name, "admin", by="root") for name in ("ana", "bo"))
    approve(records, "toys", propose(records, calibrated, ana.id).id, bo.id, embed)
    for kind, forged, problem in (
        ("plan.proposed", {"by": bo.id}, "in the same hands"),
        ("plan.proposed", {"digest": "0" * 64}, "not the one that was proposed"),
        ("plan.proposed", {"proposal": "another"}, "which is not open"),
        ("plan.signed", {"signed_by": ana.id}, "is said to have signed it"),
        ("key.created", {"by": bo.id}, "in the same hands"),
    ):
        assert problem in problems(records, kind, **forged)[0]


@pytest.mark.parametrize("how", ["made", "rotated", "made both"])
def test_a_second_key_of_ones_own_approves_nothing(records: Records, calibrated: CalibratedPlan, how: str) -> None:
    ana, _ = records.keys.create("ana", "admin", by="root")
    other, _ = records.keys.create("other", "admin", by="root" if how == "rotated" else ana.id)
    proposer: ApiKey = ana
    if how == "rotated":
        records.keys.rotate(other, by=ana.id)
    if how == "made both":
        proposer, _ = records.keys.create("third", "admin", by=ana.id)
    proposal = propose(records, calibrated, proposer.id)
    with pytest.raises(SamePersonError):
        approve(records, "toys", proposal.id, other.id, embed)
    assert promised(records) == 0


def test_a_plan_signed_meanwhile_makes_proposals_lapse(records: Records, calibrated: CalibratedPlan) -> None:
    keys = [records.keys.create(name, "admin", by="root")[0] for name in ("ana", "bo", "cy")]
    first, second = propose(records, calibrated, keys[0].id), propose(records, calibrated, keys[1].id)
    assert [one.id for one in open_proposals(records, "toys")] == [first.id, second.id]
    approve(records, "toys", first.id, keys[1].id, embed)
    assert open_proposals(records, "toys") == []
    with pytest.raises(UnknownProposalError):
        approve(records, "toys", second.id, keys[2].id, embed)


def test_of_racing_approvals_one_signs(records: Records, calibrated: CalibratedPlan) -> None:
    ana, *others = (records.keys.create(name, "admin", by="root")[0] for name in ("ana", "b", "c", "d"))
    proposal = propose(records, calibrated, ana.id)
    together = threading.Barrier(3)

    def race(key: ApiKey) -> int:
        together.wait()
        try:
            return approve(records, "toys", proposal.id, key.id, embed).version
        except UnknownProposalError:
            return 0

    with ThreadPoolExecutor(3) as threads:
        assert sorted(threads.map(race, others)) == [0, 0, 1]
    assert problems(records) == []


def test_over_rest(services: Services) -> None:
    client, keys = TestClient(create_app(services)), services.records.keys
    tokens = {name: keys.create(name, "admin", by="root")[1] for name in ("ana", "bo")}

    def call(name: str, method: str, path: str, **options):
        headers = {"Authorization": f"Bearer {tokens[name]}"}
        return client.request(method, f"/v1/knowledge-bases/toys/plans{path}", headers=headers, **options)

    response = call("ana", "POST", "", content=PLAN)
    assert response.status_code == 202
    proposed = response.json()["proposed"]
    assert proposed["proposed_by_name"] == "ana"
    assert call("bo", "GET", "/proposals").json()["data"] == [proposed]
    for name, status in (("ana", 403), ("bo", 201), ("bo", 404)):
        assert call(name, "POST", f"/proposals/{proposed['id']}/approve").status_code == status


def test_on_the_dashboard(services: Services) -> None:
    browser, keys, plans = Browser(services), services.records.keys, "/knowledge-bases/toys/plans"
    browser.sign_in()
    page = browser.post("/knowledge-bases/toys/plan/confirm", {"text": PLAN}).text
    form = {name: re.search(rf'name="{name}" value="([^"]*)"', page)[1] for name in ("digest", "after")}
    form |= {"text": PLAN, "name": "toys", "confirm": "worse_than_free"}
    for _ in range(2):  # sent twice, it proposes once
        browser.post("/knowledge-bases/toys/plan/sign", form)
    (proposal,) = open_proposals(services.records, "toys")
    assert proposal.proposed_by == browser.key.id
    path = f"/knowledge-bases/toys/proposals/{proposal.id}/approve"
    assert path not in browser.get(plans).text
    browser.post(path)
    assert "Somebody else must approve this" in browser.get(plans).text
    assert promised(services.records) == 0
    browser.client.cookies.clear()
    browser.sign_in(keys.create("bo", "admin", by="root")[1])
    assert path in browser.get(plans).text
    browser.post(path)
    assert "Plan 1 is approved and signed" in browser.get(plans).text
    assert promised(services.records) > 0
