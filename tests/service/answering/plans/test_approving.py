"""A second person's approval: demanded where persons are named, for these bytes and one signature, and replayed."""

import base64
import hashlib
import json
import subprocess
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

from accounting.ledger.events import PlanSigned
from accounting.ledger.trail import FIRST, canonical, digest
from accounting.plans.plan import load_plan
from accounting.replay.trail import verify
from service.answering.plans.approving import NotApprovedError, check_approval
from service.answering.plans.signing import prepare, sign
from service.environment import InvalidSettingError
from service.operations.services import Services
from service.records.records import Records
from service.settings import Settings
from tests.documented import DOCS, blocks, reader, run
from tests.service.conftest import PLAN, client_of, make_records, serving
from tests.service.conftest import development as settings_in
from tests.service.gateway.dashboard.dashboard_browser import Browser
from tests.service.shell import Shell, create

SMALL = PLAN.replace("epsilon: 4", "epsilon: 2").replace("1.0e-4", "2.0e-5")
ANN, BO = (Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32) for seed in (1, 2))


def public(key: Ed25519PrivateKey) -> str:
    der = key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return base64.b64encode(der).decode()


def signature(text: str, key: Ed25519PrivateKey = ANN) -> str:
    return base64.b64encode(key.sign(text.encode())).decode()


APPROVERS = {"ann": public(ANN)}


@pytest.fixture
def records(tmp_path: Path) -> Records:
    return make_records(tmp_path, settings=settings_in(tmp_path, plan_approvers=APPROVERS))


def signed(records: Records, text: str, approved: str | None = None, **options: object) -> int:
    """Sign a plan with an approval of the same text, or of another; returns its version."""
    written = text if approved is None else approved
    approval = check_approval(APPROVERS, written, signature(written))
    return sign(records, prepare(records, load_plan(text)), "root", approval=approval, **options).version


def test_no_plan_is_signed_without_an_approval(records: Records) -> None:
    calibrated = prepare(records, load_plan(SMALL))
    with pytest.raises(NotApprovedError, match=r"one of ann: .*openssl pkeyutl -sign .*--approval PLAN.sig"):
        sign(records, calibrated, "root")
    assert records.ledger.budgets.plans("toys") == []
    assert signed(records, SMALL) == 1


def test_the_trail_keeps_the_approval_and_a_replay_checks_it(records: Records) -> None:
    signed(records, SMALL)
    (event,) = records.audit.events(kinds=[PlanSigned.kind])
    approval = event.particulars.approval
    assert (approval.by, approval.text, approval.public_key) == ("ann", SMALL, public(ANN))
    assert event.particulars.sentence(lambda name: name).endswith(", approved by “ann”.")
    lines = [*records.audit.export()]
    assert verify(lines, recompute=False).problems == []
    forged = approval.model_copy(update={"signature": signature("another")})
    other = SMALL.replace("answers: 20", "answers: 19")
    another = approval.model_copy(update={"text": other, "signature": signature(other)})
    for changed, problem in (
        (forged, "the approval by ann is not a signature of the plan's file"),
        (another, "the plan that ann approved is another one"),
    ):
        rewritten = rechained(lines, changed.model_dump())
        assert any(problem in found for found in verify(rewritten, recompute=False).problems)


def rechained(lines: list[str], approval: dict) -> list[str]:
    """The export with another approval, and all hashes computed again."""
    previous, written = FIRST, []
    for line in lines[:-1]:
        event = json.loads(line)
        if event["kind"] == PlanSigned.kind:
            event["body"]["approval"] = approval
        body = canonical(event["body"])
        event["previous"] = previous
        event["hash"] = previous = digest(event["sequence"], event["at"], event["kind"], body, previous)
        written.append(canonical(event) + "\n")
    return [*written, canonical({"end": {"sequence": len(written), "hash": previous}}) + "\n"]


def test_an_approval_is_for_one_signature(records: Records) -> None:
    signed(records, SMALL)
    with pytest.raises(NotApprovedError, match=r"was used for plan 1: .* approve a changed file"):
        signed(records, SMALL, again=1)
    assert signed(records, SMALL + "# once more\n", again=1) == 2
    assert verify(records.audit.export(), recompute=False).problems == []


def test_an_approval_is_for_this_plan(records: Records) -> None:
    for other in (SMALL.replace("answers: 20", "answers: 19"), "cohorts: [2]\n" + SMALL, "accountant: rdp\n" + SMALL):
        with pytest.raises(NotApprovedError, match="the plan that was approved is another one"):
            signed(records, SMALL, approved=other)
    assert signed(records, SMALL, approved=f"cohorts: [1]\n{SMALL}") == 1  # which this plan names at signing anyway


@pytest.mark.parametrize(
    "given",
    [signature(SMALL, BO), signature(SMALL + "\n"), signature(SMALL.replace("\n", "\r\n")), "", "x", "A" * 88],
)
def test_another_signature_is_not_an_approval(given: str) -> None:
    with pytest.raises(NotApprovedError, match="not a signature of this very file by one of ann"):
        check_approval(APPROVERS, SMALL, given)


def test_one_of_several_persons_is_enough() -> None:
    both = {**APPROVERS, "bo": public(BO)}
    assert check_approval(both, SMALL, signature(SMALL, BO)).by == "bo"


def test_an_approval_where_none_is_demanded_is_refused() -> None:
    assert check_approval({}, SMALL, None) is None
    with pytest.raises(NotApprovedError, match="no plan needs an approval here"):
        check_approval({}, SMALL, signature(SMALL))


@pytest.mark.parametrize("key", ["", "x", public(ANN)[:-4], base64.b64encode(b"1" * 32).decode()])
def test_a_setting_without_a_key_is_refused(key: str) -> None:
    with pytest.raises(InvalidSettingError, match="'ann' needs a name and an Ed25519 public key"):
        Settings(plan_approvers={"ann": key})
    with pytest.raises(InvalidSettingError, match="needs a name"):
        Settings(plan_approvers={" ": public(ANN)})


def test_a_key_of_another_kind_is_refused(tmp_path: Path) -> None:
    made = subprocess.run(["openssl", "genpkey", "-algorithm", "x25519"], capture_output=True, check=True).stdout
    other = subprocess.run(["openssl", "pkey", "-pubout"], input=made, capture_output=True, check=True).stdout
    with pytest.raises(InvalidSettingError, match="needs a name and an Ed25519 public key"):
        Settings(plan_approvers={"ann": other.decode().splitlines()[1]})


@pytest.fixture
def demanding(tmp_path: Path) -> Services:
    return serving(tmp_path, plan_approvers=APPROVERS)


def test_rest_takes_an_approval_and_refuses_without(demanding: Services) -> None:
    admin = client_of(demanding, "admin")
    plans = "/v1/knowledge-bases/toys/plans?confirm=worse_than_free"
    refused = admin.post(plans, content=SMALL.encode())
    assert (refused.status_code, refused.json()["type"]) == (403, "/problems/plan-not-approved")
    assert "x-dpicl-approval" in refused.json()["detail"]
    assert admin.post(f"{plans}&dry_run=true", content=SMALL.encode()).status_code == 200
    wrong = admin.post(plans, content=SMALL.encode(), headers={"x-dpicl-approval": signature(SMALL, BO)})
    assert (wrong.status_code, wrong.json()["type"]) == (403, "/problems/plan-not-approved")
    taken = admin.post(plans, content=SMALL.encode(), headers={"x-dpicl-approval": signature(SMALL)})
    assert taken.status_code == 201, taken.text


def test_the_dashboard_takes_an_approval(demanding: Services) -> None:
    browser = Browser(demanding)
    browser.post("/sign-in", {"key": browser.token})
    home = "/knowledge-bases/toys/plan"
    digest = prepare(demanding.records, load_plan(SMALL)).digest
    shown = {"text": SMALL, "digest": digest, "after": "0", "name": "toys", "confirm": "worse_than_free"}
    page = browser.post(f"{home}/confirm", shown)
    assert "One of these people must sign the plan’s file: ann." in page.text
    file = browser.post(f"{home}/file", {"text": SMALL.replace("\n", "\r\n")})
    assert file.headers["content-disposition"] == 'attachment; filename="plan-toys-1.yaml"'
    assert file.text == SMALL
    assert hashlib.sha256(file.content).hexdigest() in page.text
    for wrong, why in (
        ({}, "A second person must approve the plan, one of ann."),
        ({"approval": signature(SMALL, BO)}, "The approval is not a signature of this very file by one of ann."),
        ({"approval": "ünknown"}, "The approval is not a signature of this very file by one of ann."),
    ):
        page = browser.post(f"{home}/sign", shown | wrong)
        assert page.status_code == 403
        assert f"Nothing was signed. {why}" in page.text
    assert demanding.records.ledger.budgets.plans("toys") == []
    assert browser.post(f"{home}/sign", shown | {"approval": f" {signature(SMALL)}\n"}).status_code == 303
    (event,) = demanding.records.audit.events(kinds=[PlanSigned.kind])
    assert event.particulars.approval.text == SMALL
    twin = shown | {"after": "1", "again": "1", "approval": signature(SMALL)}
    assert "This approval was used for plan 1" in browser.post(f"{home}/sign", twin).text


def test_a_file_that_does_not_fit_its_approval_is_refused(
    dpicl: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(dpicl)
    monkeypatch.setenv("DPICL_PLAN_APPROVERS", json.dumps(APPROVERS))
    plan, approval = tmp_path / "plan.yaml", tmp_path / "plan.yaml.sig"
    plan.write_text(SMALL)
    assert "must approve the plan, one of ann" in dpicl.fails("plan", "sign", plan, "--yes")
    approval.write_bytes(ANN.sign(SMALL.encode()))
    plan.write_text(SMALL.replace("answers: 20", "answers: 19"))
    assert "not a signature of this very file" in dpicl.fails("plan", "sign", plan, "--approval", approval, "--yes")
    plan.write_text(SMALL)
    assert "Signed as version 1" in dpicl.ok("plan", "sign", plan, "--approval", approval, "--yes")


@pytest.mark.slow
def test_the_page_runs_as_written(tmp_path: Path) -> None:
    environment = {
        **reader(),
        "DPICL_DEVELOPMENT": "true",
        "DPICL_DATABASE_URL": f"sqlite:///{tmp_path}/service.sqlite",
    }
    (tmp_path / "plan.yaml").write_text(SMALL)
    first = "dpicl kb create toys --epsilon 8 --delta 2e-4 --public-size 60 --yes\n"
    commands = [block for block in blocks(DOCS / "plans.md", "sh") if "plan.yaml.sig" in block]
    assert len(commands) == 2
    printed = run(first + "".join(commands), tmp_path, environment)
    assert "Signed as version 1" in printed
