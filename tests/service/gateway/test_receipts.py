"""A receipt of an answer, verified with the public key alone, and what it reveals."""

import base64
import json
from datetime import UTC, datetime
from pathlib import Path

import pytest
from fastapi.testclient import TestClient

from accounting.ledger.inclusion import InclusionProof
from accounting.ledger.notes import WITNESS, NoteError
from accounting.plans.plan import load_plan
from service.answering.plans.signing import prepare, sign
from service.cli import receipts
from service.operations.services import Services
from service.records.audit_key import make_signer
from service.serving.web import create_app
from tests.accounting.ledger import rfc6962
from tests.service.conftest import PLAN, client_of, serving
from tests.service.shell import Shell

NAME = "dp-icl.example.org/audit"
UNKNOWN = "8b7e8f43-9a3c-4f0e-9d0b-7a7b4f1f3c55"


@pytest.fixture
def signing(tmp_path: Path) -> Services:
    make_signer(tmp_path / "audit.pem", NAME)
    services = serving(tmp_path, audit_key_file=tmp_path / "audit.pem", audit_origin=NAME)
    sign(services.records, prepare(services.records, load_plan(PLAN)), "root")
    return services


@pytest.fixture
def analyst(signing: Services) -> TestClient:
    return client_of(signing)


def ask(analyst: TestClient, query: str) -> dict:
    response = analyst.post("/v1/tasks/toys.colour/answers", json={"query": query})
    assert response.status_code == 200, response.text
    return response.json()


def receipt_of(analyst: TestClient, release: str) -> InclusionProof:
    response = analyst.get(f"/v1/releases/{release}/receipt")
    assert response.status_code == 200, response.text
    assert response.headers["content-type"] == "text/plain; charset=utf-8"
    return InclusionProof.read(response.content.decode())


def test_every_answer_has_a_receipt_that_the_public_key_verifies(signing: Services, analyst: TestClient) -> None:
    key = signing.records.log.verifier
    releases = [ask(analyst, f"toy {number}")["id"] for number in range(4)]
    for release in releases:
        proof = receipt_of(analyst, release)
        assert proof.check([key]) == {key: None}
        event = json.loads(proof.leaf)
        body = event["body"]
        assert (body["release"], body["task"], event["sequence"]) == (release, "toys.colour@1", proof.index + 1)
        stored = signing.records.ledger.get_release(release)
        assert body["charge"] == stored.charge_id
        export = "".join(signing.records.audit.export()).encode().splitlines()
        assert export[proof.index] == proof.leaf
        assert proof.checkpoint.root == rfc6962.root(export[: proof.checkpoint.size])
        assert InclusionProof.read(str(proof)) == proof


def test_a_receipt_reveals_no_other_event_and_no_caller(signing: Services, analyst: TestClient) -> None:
    mine = ask(analyst, "mine")["id"]
    other = ask(client_of(signing, name="bo"), "another")["id"]
    written = str(receipt_of(analyst, mine))
    proof = InclusionProof.read(written)
    readable = written + proof.leaf.decode()
    events = signing.records.audit.events(limit=1000)
    (event,) = (one for one in events if one.sequence == proof.index + 1)
    for one in events:
        known = {event.sequence, event.sequence - 1}  # its own hash, and the one that it continues
        assert (one.hash in readable) == (one.sequence in known)
        assert one is event or json.loads(one.body)["nonce"] not in readable
    assert other not in readable
    assert not any(key.id in readable or key.name in readable.split() for key in signing.records.keys.list())
    assert set(json.loads(proof.leaf)["body"]) == {"release", "charge", "task", "answer_sha256", "nonce"}


def test_events_alike_have_different_numbers(signing: Services) -> None:
    for _ in range(3):
        signing.records.allow_remote_engine("toys", False, by="root")
    bodies = [event.body for event in signing.records.audit.events(kinds=["remote_engine.changed"])]
    assert len(bodies) == len(set(bodies)) == 3


def test_a_receipt_that_was_changed_is_found(signing: Services, analyst: TestClient) -> None:
    key = signing.records.log.verifier
    proof = receipt_of(analyst, ask(analyst, "a toy")["id"])
    changed = [
        InclusionProof(proof.leaf.replace(b"colour", b"shapes"), proof.index, proof.path, proof.checkpoint),
        InclusionProof(proof.leaf, proof.index - 1, proof.path, proof.checkpoint),
        InclusionProof(proof.leaf, proof.index, proof.path[:-1], proof.checkpoint),
        InclusionProof(proof.leaf, 10**6, proof.path, proof.checkpoint),
    ]
    for one in changed:
        with pytest.raises(NoteError, match="its event is not among those that were signed"):
            one.check([key])
    with pytest.raises(NoteError, match="no given verifier key"):
        proof.check([])
    witness = make_signer(Path(signing.records.settings.audit_key_file).with_name("witness.pem"), "w.example")
    with pytest.raises(NoteError, match=r"the witness w\.example did not sign"):
        proof.check([key, witness.verifier(WITNESS)])
    cosigned = witness.cosign(proof.checkpoint, datetime(2030, 1, 1, tzinfo=UTC))
    keys = [key, witness.verifier(WITNESS)]
    assert set(InclusionProof(proof.leaf, proof.index, proof.path, cosigned).check(keys)) == set(keys)


def test_an_older_checkpoint_serves_where_it_has_the_event(signing: Services, analyst: TestClient) -> None:
    release = ask(analyst, "a toy")["id"]
    first = receipt_of(analyst, release)
    ask(analyst, "another toy")
    assert receipt_of(analyst, release) == first  # an analyst's request signs nothing that is not needed


def test_an_unknown_release_and_an_unsigned_trail_are_refused(analyst: TestClient, tmp_path: Path) -> None:
    assert analyst.get(f"/v1/releases/{UNKNOWN}/receipt").status_code == 404
    services = serving(tmp_path / "unsigned")
    sign(services.records, prepare(services.records, load_plan(PLAN)), "root")
    other = client_of(services)
    response = other.get(f"/v1/releases/{ask(other, 'a toy')['id']}/receipt")
    assert (response.status_code, response.json()["type"]) == (409, "/problems/trail-not-signed")


def test_the_commands_fetch_and_verify(
    dpicl: Shell, signing: Services, analyst: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(receipts, "connect", lambda _service: TestClient(create_app(signing), headers=analyst.headers))
    release, file, key = ask(analyst, "a toy")["id"], tmp_path / "receipt", str(signing.records.log.verifier)
    file.touch(mode=0o644)  # for others to read
    dpicl.ok("receipt", "get", release, file)
    assert file.stat().st_mode & 0o777 == 0o600
    assert dpicl.ok("receipt", "get", release) == file.read_text()
    assert "no release" in dpicl.fails("receipt", "get", UNKNOWN)
    shown = json.loads(dpicl.ok("receipt", "verify", file, "--key", key, "--json"))
    assert (shown["release"], shown["task"], shown["signed_by"]) == (release, "toys.colour@1", [NAME])
    assert f"signed_by: {NAME}" in dpicl.ok("receipt", "verify", file, "--key", key)
    changed = file.read_text().replace("index ", "index 1")
    file.write_text(changed)
    assert "the receipt is not genuine" in dpicl.fails("receipt", "verify", file, "--key", key)
    for wrong in ("", "a\n\nb", changed.replace("extra", "other"), base64.b64encode(b"x").decode()):
        file.write_text(wrong)
        assert "it is not a" in dpicl.fails("receipt", "verify", file, "--key", key)
    made = signing.records.audit.events(kinds=["plan.signed"])[0]
    file.write_text(str(signing.records.log.prove(made)))
    assert "of another event than an answer" in dpicl.fails("receipt", "verify", file, "--key", key)
