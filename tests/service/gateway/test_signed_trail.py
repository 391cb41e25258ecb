"""The signed trail on every face: exports and checkpoints that other machines verify."""

import json
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from accounting.ledger.notes import Checkpoint
from accounting.replay.trail import verify
from service.operations.services import Services
from service.records.audit_key import make_signer, read_signer
from tests.accounting.ledger import rfc6962
from tests.service.conftest import client_of, serving
from tests.service.gateway.dashboard.dashboard_browser import Browser

NAME = "dp-icl.example.org/audit"


@pytest.fixture
def signing(tmp_path: Path) -> Services:
    make_signer(tmp_path / "audit.pem", NAME)
    return serving(tmp_path, audit_key_file=tmp_path / "audit.pem", audit_origin=NAME)


@pytest.fixture
def auditor(signing: Services) -> TestClient:
    return client_of(signing, "auditor")


def test_an_export_over_rest_holds_a_checkpoint(signing: Services, auditor: TestClient) -> None:
    export = auditor.get("/v1/audit/export").text
    report = verify(export.splitlines(keepends=True), keys=[signing.records.log.verifier], recompute=False)
    assert report.problems == []
    assert [(head.signed_by, head.size) for head in report.signatures] == [(NAME, report.events)]


def test_a_checkpoint_over_rest_has_the_root_of_the_export(signing: Services, auditor: TestClient) -> None:
    response = auditor.get("/v1/audit/checkpoint")
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    checkpoint = Checkpoint.read(response.content.decode())
    assert checkpoint.signers([signing.records.log.verifier])
    assert checkpoint.root == rfc6962.root_of_export(auditor.get("/v1/audit/export").text)


def test_the_dashboard_gives_the_checkpoint_and_the_verifier_key(signing: Services) -> None:
    browser = Browser(signing)
    browser.post("/sign-in", {"key": browser.token})
    page = browser.get("/audit/verify").text
    assert str(signing.records.log.verifier) in page
    assert 'href="/admin/audit/checkpoint"' in page
    checkpoint = browser.get("/audit/checkpoint")
    assert Checkpoint.read(checkpoint.content.decode()).size == signing.records.audit.end().sequence
    assert json.loads(browser.get("/audit/export").text.splitlines()[-1])["checkpoint"]


def test_a_trail_that_no_longer_continues_is_refused_on_both_faces(signing: Services, auditor: TestClient) -> None:
    longer = read_signer(signing.records.settings.audit_key_file, NAME).sign(9999, b"r" * 32)
    signing.records.witness.keep_checkpoint(longer)
    for path in ("/v1/audit/checkpoint", "/v1/audit/export"):
        response = auditor.get(path)
        assert (response.status_code, response.json()["type"]) == (409, "/problems/trail-not-signed")
    browser = Browser(signing)
    browser.post("/sign-in", {"key": browser.token})
    assert browser.get("/audit/export").status_code == 409


def test_without_a_key_nothing_is_signed(tmp_path: Path) -> None:
    services = serving(tmp_path)
    auditor = client_of(services, "auditor")
    assert "checkpoint" not in auditor.get("/v1/audit/export").text.splitlines()[-1]
    response = auditor.get("/v1/audit/checkpoint")
    assert (response.status_code, response.json()["type"]) == (409, "/problems/trail-not-signed")
    assert "dpicl audit key" in response.json()["detail"]
    browser = Browser(services)
    browser.post("/sign-in", {"key": browser.token})
    assert "checkpoint" not in browser.get("/audit/verify").text


def test_an_analyst_gets_no_checkpoint(signing: Services) -> None:
    assert client_of(signing, "analyst").get("/v1/audit/checkpoint").status_code == 403
