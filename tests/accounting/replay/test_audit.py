"""The audit trail: appended with what it records, and no change of an export goes unnoticed."""

import json
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, date, datetime, timedelta

import pytest
import sqlalchemy as sa

from accounting.ledger import tables
from accounting.ledger.budgets import SignedTask
from accounting.ledger.charges import AnswersExhaustedError, Charged, Ledger
from accounting.ledger.errors import LedgerError
from accounting.ledger.events import (
    KINDS,
    AccuracyRecorded,
    BundlePublished,
    EncryptionKeyChanged,
    ExemplarsIngested,
    ExemplarsReencrypted,
    KeyChanged,
    KeyCreated,
    KeyRevoked,
    KeyRotated,
    KeySignedIn,
    KeySignedOut,
    LedgerRestored,
    Mark,
    PersonSignedIn,
    PersonSignedOut,
    RemoteEngineChanged,
    UnitForgotten,
    UploadEnded,
)
from accounting.ledger.quotas import QuotaExhaustedError, set_quota
from accounting.ledger.trail import FIRST, AuditTrail, append, canonical, digest
from accounting.plans.plan import CalibratedPlan
from accounting.replay.trail import verify
from service.records.database import open_database
from tests.accounting.books import signed
from tests.conftest import Clock

NOW = datetime(2030, 1, 1, tzinfo=UTC)
Events = list[dict]


@pytest.fixture
def ledger(engine: sa.Engine, clock: Clock) -> Ledger:
    tables.metadata.create_all(engine)
    return Ledger(engine, lease_s=60, clock=clock)


def sign(ledger: Ledger, engine: sa.Engine, calibrated: CalibratedPlan) -> SignedTask:
    with engine.begin() as connection:
        ledger.budgets.open(connection, "kb", 2, 1e-4)
    signed(ledger, document=calibrated.model_dump_json())
    return ledger.budgets.task("kb.topic")


def make_key(ledger: Ledger, engine: sa.Engine, key: str, quota: int | None = None) -> None:
    with engine.begin() as connection:
        set_quota(connection, key, quota)
        append(connection, NOW, KeyCreated(key=key, name=key, role="analyst", quota=quota, by="root"))


def charge(ledger: Ledger, task: SignedTask, query: bytes, key: str = "ana") -> str:
    outcome = ledger.charge(task, query, key_id=key)
    assert isinstance(outcome, Charged)
    return outcome.id


def busy_day(ledger: Ledger, engine: sa.Engine, clock: Clock, calibrated: CalibratedPlan) -> list[str]:
    """Every kind of event; returns the export."""
    task = sign(ledger, engine, calibrated)
    make_key(ledger, engine, "ana")
    make_key(ledger, engine, "bo", quota=1)
    ledger.release(charge(ledger, task, b"1"), {"label": "a"})
    ledger.void(charge(ledger, task, b"2"), "engine-unavailable")
    ledger.release(charge(ledger, task, b"3", "bo"), {"label": "b"})
    with pytest.raises(QuotaExhaustedError):
        ledger.charge(task, b"4", key_id="bo")
    ledger.refuse(task.address, "bo", "quota-exhausted")
    with engine.begin() as connection:
        ledger.cohorts.open(connection, "kb", 2, 1, 1e-5, public_size=900, by="root")
    ledger.cohorts.close("kb", 1, by="root")
    ledger.groups.open("care", 3, 1e-4, by="root")
    ledger.groups.join("care", "kb", by="root")
    late = charge(ledger, task, b"5")
    clock.now += timedelta(seconds=61)
    assert ledger.expire_leases() == 1
    ledger.release(late, {"label": "ä"})  # its holder was only slow
    charge(ledger, task, b"6")
    clock.now += timedelta(seconds=61)
    with pytest.raises(AnswersExhaustedError):  # and the lost charge stays lost
        ledger.charge(task, b"7", key_id="ana")
    ledger.refuse(task.address, "ana", "answers-exhausted")
    with engine.begin() as connection:
        append(
            connection,
            NOW,
            KeyCreated(key="root", name="root", role="admin", quota=None),
            KeySignedIn(key="root"),
            KeySignedOut(key="root"),
            PersonSignedIn(by="7 at https://a.example", issuer="https://a.example", subject="7", role="auditor"),
            PersonSignedOut(by="7 at https://a.example"),
            KeyChanged(key="bo", quota=5, by="root"),
            KeyRotated(key="bo", token_sha256="ab" * 32, until=None, by="root"),
            KeyRevoked(key="bo", by="root"),
            ExemplarsIngested(knowledge_base="kb", upload="one", by="root"),
            UploadEnded(knowledge_base="kb", upload="one", by="root"),
            UnitForgotten(knowledge_base="kb", by="root"),
            RemoteEngineChanged(knowledge_base="kb", allowed=True, by="root"),
            BundlePublished(
                bundle="clinic@1", sha256="0" * 64, data="public", data_sha256="1" * 64, declared_by="bo", by="root"
            ),
            AccuracyRecorded(
                task=task.address, accuracy=90.5, zero_shot=71.0, rows=200, engine="nearest_exemplar", by="root"
            ),
            EncryptionKeyChanged(fingerprint="0123456789abcdef", by="root"),
            ExemplarsReencrypted(by="root"),
            LedgerRestored(by="root", common=9, witness=Mark(30, "0" * 64), charges=0),
        )
    ledger.budgets.retire("kb", 1, by="root")
    ledger.cohorts.archive("kb", by="root")
    with engine.begin() as connection:
        ledger.budgets.open(connection, "typo", 1, 1e-5, "root")
        ledger.cohorts.open(connection, "typo", 2, 1, 1e-5, public_size=900, by="root")
    ledger.cohorts.close("typo", 1, by="root")
    with engine.begin() as connection:
        ledger.budgets.delete(connection, "typo", "root")
        ledger.budgets.open(connection, "typo", 2, 1e-5, "root")
    return [*AuditTrail(engine).export()]


def test_every_kind_is_replayed_and_every_plan_computed_again(ledger, engine, clock, calibrated):
    lines = busy_day(ledger, engine, clock, calibrated)
    report = verify(lines)
    assert report.problems == []
    assert report.events == len(lines) - 1 == AuditTrail(engine).head().sequence
    assert report.head == AuditTrail(engine).head().hash
    assert (report.charged, report.released) == ({"kb.topic@1": 4}, {"kb.topic@1": 3})
    assert set(report.plans["kb@1"]) == {"pld", "prv", "rdp"}
    assert report.plans["kb@1"]["prv"].upper == pytest.approx(1, rel=0.02)
    kinds = [json.loads(line).get("kind") for line in lines[:-1]]
    assert set(kinds) == set(KINDS)
    assert kinds.count("charge") == 5
    assert [kinds.count(kind) for kind in ("release", "void", "lost", "refusal")] == [3, 1, 1, 2]
    assert verify(lines, heads=[json.loads(lines[3])["hash"]], recompute=False).problems == []


@pytest.fixture(scope="module")
def exported(tmp_path_factory: pytest.TempPathFactory, calibrated: CalibratedPlan) -> Events:
    engine = open_database(f"sqlite:///{tmp_path_factory.mktemp('audit')}/a.sqlite")
    tables.metadata.create_all(engine)
    clock = Clock()
    lines = busy_day(Ledger(engine, lease_s=60, clock=clock), engine, clock, calibrated)
    engine.dispose()
    return [json.loads(line) for line in lines]


def problems(events: Events, **options) -> list[str]:
    return verify([canonical(event) for event in events], recompute=False, **options).problems


def copied(events: Events) -> Events:
    return json.loads(json.dumps(events))


def chained(events: Events) -> Events:
    """The same events with new numbers and hashes, as an attacker who can write to the database could make them."""
    head = FIRST
    for number, event in enumerate(events[:-1], 1):
        event["sequence"], event["previous"] = number, head
        head = event["hash"] = digest(number, event["at"], event["kind"], canonical(event["body"]), head)
    events[-1]["end"] = {"sequence": len(events) - 1, "hash": head}
    return events


def test_an_event_that_is_missing_repeated_or_out_of_order_is_found(exported: Events):
    for i in range(len(exported)):
        before, after = exported[:i], exported[i + 1 :]
        assert problems([*before, *after]), i
        assert problems([*before, exported[i], exported[i], *after]), i
        if after:
            assert problems([*before, after[0], exported[i], *after[1:]]), i


def test_an_altered_event_is_found(exported: Events):
    for i in range(len(exported) - 1):
        for name in ("sequence", "at", "kind", "previous", "hash"):
            events = copied(exported)
            events[i][name] = events[i - 1][name] if i else events[1][name]
            if events != exported:
                assert problems(events), (i, name)
        for name, value in exported[i]["body"].items():
            events = copied(exported)
            events[i]["body"][name] = [value]
            assert problems(events), (i, name)
            assert name != "nonce" or len(value) == 32


def of_kind(events: Events, kind: str) -> int:
    return next(i for i, event in enumerate(events) if event.get("kind") == kind)


def without(kind: str) -> Callable[[Events], None]:
    return lambda events: events.pop(of_kind(events, kind))


def changed(kind: str, **body: object) -> Callable[[Events], None]:
    return lambda events: events[of_kind(events, kind)]["body"].update(body)


def later(kind: str, **body: object) -> Callable[[Events], None]:
    """Repeat an event at the end, with some values changed."""

    def forge(events: Events) -> None:
        again = copied(events)[of_kind(events, kind)]
        events.insert(-1, {**again, "body": {**again["body"], **body}})

    return forge


def less_noise(events: Events) -> None:
    body = events[of_kind(events, "plan.signed")]["body"]
    document = json.loads(body["document"])
    mechanism = document["noise"]["topic"]["mechanism"]
    (name,) = [name for name, value in mechanism.items() if isinstance(value, float)]
    mechanism[name] /= 2
    body["document"] = json.dumps(document)


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (without("charge"), "never made"),
        (without("plan.signed"), "no signed plan"),
        (without("budget.opened"), "no lifetime budget"),
        (without("key.created"), "was never made"),
        (changed("plan.signed", answers={"topic": 3}), "not those of the plan"),
        (changed("plan.signed", epsilon="0.5"), "not that of the plan"),
        (changed("budget.opened", epsilon="0.9"), "more than its lifetime"),
        (changed("group.opened", epsilon="0.9"), "the group care promise"),
        (changed("group.joined", group="other"), "could join other"),
        (without("group.opened"), "could join care"),
        (changed("plan.signed", cohorts=[2]), "no cohort 2"),
        (changed("plan.signed", cohorts=[2]), "not those of the plan"),
        (changed("plan.signed", cohorts=[]), "to no cohort"),
        (changed("cohort.opened", cohort=3), "follows cohort 1"),
        (changed("cohort.closed", cohort=3), "could be closed"),
        (changed("plan.retired", version=2), "could be retired"),
        (later("plan.retired"), "could be retired"),
        (later("charge", charge="late"), "was charged after its plan was retired"),
        (without("cohort.closed"), "kb was archived with"),
        (changed("knowledge_base.archived", knowledge_base="other"), "other was archived with"),
        (later("knowledge_base.archived"), "kb was archived before"),
        (changed("knowledge_base.deleted", knowledge_base="kb"), "kb was deleted"),
        (changed("knowledge_base.deleted", knowledge_base="other"), "no knowledge base other"),
        (changed("knowledge_base.deleted", cohorts=1), "typo had other cohorts"),
        (without("knowledge_base.deleted"), "budget already"),
        (without("exemplars.ingested"), "never announced"),
        (later("exemplars.ingested"), "(exemplars.ingested): kb was archived"),
        (later("cohort.opened", cohort=3), "(cohort.opened): kb was archived"),
        (changed("key.signed_in", key="zoe"), "may not sign in"),
        (changed("key.rotated", key="ghost"), "key ghost is not"),
        (later("key.rotated"), "key bo is not"),
        (later("key.rotated", key="ana"), "key ana got a token"),
        (changed("encryption_key.changed", by=""), "who changed it"),
        (changed("void", charge="other"), "cannot be voided"),
        (changed("lost", task="kb.other@1"), "not of kb.other@1"),
        (changed("accuracy.recorded", task="kb.other@1"), "the task kb.other@1"),
        (changed("accuracy.recorded", rows=0), "share of any"),
        (lambda events: events.insert(-1, copied(events)[of_kind(events, "charge")]), "was made before"),
        (lambda events: events.insert(-1, copied(events)[of_kind(events, "release")]), "was released"),
        (lambda events: events.insert(-1, copied(events)[of_kind(events, "void")]), "was voided"),
        (lambda events: events[of_kind(events, "lost")].update(kind="found"), "does not know"),
    ],
)
def test_a_forger_who_chains_anew_must_still_keep_the_books(exported: Events, forge, says: str):
    events = copied(exported)
    forge(events)
    assert any(says in problem for problem in problems(chained(events))), problems(events)


def test_an_overspent_plan_and_an_overspent_quota_are_found(exported: Events):
    for key, says in (("ana", "5 answers of 4 planned"), ("bo", "2 answers of its quota")):
        events = [event for event in copied(exported) if event.get("kind") != "key.changed"]
        events.insert(
            -1, {"at": NOW.isoformat(), "kind": "charge", "body": {"charge": "x", "task": "kb.topic@1", "key": key}}
        )
        assert any(says in problem for problem in problems(chained(events)))


def test_a_charge_by_a_key_for_other_tasks_is_found(exported: Events):
    for scope, found in (["kb.other"], True), (["other"], True), (["kb.topic"], False), (["kb"], False):
        events = copied(exported)
        for event in events:
            if event.get("kind") == "key.created" and event["body"]["key"] == "ana":
                event["body"]["scope"] = scope
        assert any("not in its scope" in problem for problem in problems(chained(events))) is found


def test_a_charge_by_a_key_that_cannot_ask_is_found(exported: Events):
    events = copied(exported)
    made = next(event for event in events if event.get("body", {}).get("key") == "ana" and "role" in event["body"])
    made["body"]["role"] = "viewer"
    assert "key ana was charged, and viewers cannot ask" in problems(chained(events))[0]


def test_a_plan_with_too_little_noise_is_found_by_computing_it_again(exported: Events):
    events = copied(exported)
    less_noise(events)
    report = verify([canonical(event) for event in chained(events)])
    assert [problem for problem in report.problems if "promises epsilon 1, and pld finds" in problem]
    assert [problem for problem in report.problems if "and prv finds at least" in problem]


def test_a_rewritten_or_cut_trail_is_found_by_a_hash_noted_earlier(exported: Events):
    noted = exported[-2]["hash"]
    assert problems(exported, heads=[noted]) == []
    cut = chained([*copied(exported)[:-3], {}])
    assert problems(cut) == []  # by itself it is a valid trail
    assert "noted earlier" in problems(cut, heads=[noted])[0]


@pytest.mark.parametrize("line", ["", "nonsense", "[]", "{}", '{"sequence": 1}', '{"end": 3}'])
def test_no_file_makes_the_replay_fail(exported: Events, line: str):
    assert verify([line]).problems
    assert verify([*(canonical(event) for event in exported[:-1]), line]).problems


def test_the_trail_is_read_in_parts(ledger, engine, clock, calibrated):
    busy_day(ledger, engine, clock, calibrated)
    trail = AuditTrail(engine)
    newest = trail.events(limit=2, newest_first=True)
    assert newest[0] == trail.head()
    assert trail.events(before=newest[0].sequence, after=newest[0].sequence - 2)[0] == newest[1]
    assert {event.kind for event in trail.events(kinds=["charge", "void"])} == {"charge", "void"}
    others = {"ledger.restored", "encryption_key.changed", "exemplars.reencrypted", "bundle.published", "group.opened"}
    of_kb = [
        event
        for event in trail.events()
        if event.kind not in others and not event.kind.startswith(("key.", "person.")) and '"typo"' not in event.body
    ]
    assert trail.events(knowledge_base="kb") == of_kb
    assert trail.events(knowledge_base="k") == []
    assert AuditTrail(engine).events(knowledge_base='kb"') == []


def test_the_trail_is_read_by_who_and_when(ledger, engine, clock, calibrated):
    busy_day(ledger, engine, clock, calibrated)
    trail = AuditTrail(engine)
    by_bo = trail.events(by=["bo"])
    changed = [f"key.{did}" for did in ("changed", "rotated", "revoked")]
    assert [event.kind for event in by_bo] == ["key.created", "charge", "refusal", *changed]
    assert trail.events(by=["root"])[0].kind == "plan.signed"
    assert trail.events(by=["b", "o", 'bo"']) == trail.events(by=[]) == []
    assert trail.events(by=["bo", "root"], kinds=["key.created", "charge"]) == [
        event for event in trail.events(kinds=["key.created", "charge"]) if event in by_bo or '"root"' in event.body
    ]
    newest = [event for event in by_bo[::-1] if event.sequence < by_bo[-1].sequence][:2]
    assert trail.events(by=["bo", "bo"], before=by_bo[-1].sequence, newest_first=True, limit=2) == newest
    assert trail.events(by=["bo"], kinds=[]) == []


def test_the_trail_is_read_by_days_of_utc(ledger, engine, clock):
    tables.metadata.create_all(engine)
    with engine.begin() as connection:
        for hours, key in ((23.9, "late"), (24, "midnight"), (47.99, "day"), (48, "next"), (1, "behind")):
            append(connection, NOW + timedelta(hours=hours), KeySignedIn(key=key))
    trail = AuditTrail(engine)

    def keys(day: date, **options) -> list[str]:
        return [json.loads(event.body)["key"] for event in trail.events(day=day, **options)]

    assert keys(date(2030, 1, 1)) == ["late", "behind"]
    assert keys(date(2030, 1, 2), newest_first=True) == ["day", "midnight"]
    assert keys(date(2030, 1, 2), limit=1) == ["midnight"]
    assert keys(date(2030, 1, 2), by=["day"]) == ["day"]
    assert keys(date(2030, 1, 4)) == keys(date.max) == keys(date.min) == []


def test_events_are_never_changed_or_deleted(ledger, engine, calibrated):
    sign(ledger, engine, calibrated)
    for statement in ("UPDATE audit_events SET kind = 'x'", "DELETE FROM audit_events"):
        with pytest.raises(sa.exc.DatabaseError, match="audit trail"), engine.begin() as connection:
            connection.execute(sa.text(statement))


def test_what_is_rolled_back_leaves_no_event(ledger, engine):
    with engine.connect() as connection:
        connection.begin()
        ledger.budgets.open(connection, "kb", 1, 0)
        connection.rollback()
    assert ledger.budgets.statuses() == []
    assert AuditTrail(engine).head() is None
    assert [json.loads(line) for line in AuditTrail(engine).export()] == [{"end": {"sequence": 0, "hash": FIRST}}]


def test_racing_writers_make_one_chain(ledger, engine, calibrated):
    task = sign(ledger, engine, calibrated)
    make_key(ledger, engine, "ana")

    def ask(query: int) -> None:
        try:
            outcome = ledger.charge(task, bytes([query % 6]), key_id="ana")
            if isinstance(outcome, Charged):
                ledger.void(outcome.id) if query % 2 else ledger.release(outcome.id, {"label": "a"})
        except LedgerError:
            pass

    with ThreadPoolExecutor(8) as pool:
        list(pool.map(ask, range(48)))
    assert verify(AuditTrail(engine).export(), recompute=False).problems == []


def test_refusals_are_counted_one_by_one_and_recorded_once_a_minute(ledger, engine, clock, calibrated):
    task = sign(ledger, engine, calibrated)
    for _ in range(3):
        ledger.refuse(task.address, "ana", "answers-exhausted")
    clock.now += timedelta(seconds=60)
    ledger.refuse(task.address, "ana", "answers-exhausted")
    ledger.refuse(task.address, "bo", "quota-exhausted")
    told = [event.particulars.times for event in AuditTrail(engine).events(kinds=["refusal"])]
    assert told == [1, 3, 1]
    found = {(one.key_id, one.reason): one.times for one in ledger.refusals("kb")}
    assert found == {("ana", "answers-exhausted"): 4, ("bo", "quota-exhausted"): 1}
    assert ledger.refusals("k") == []


def test_a_quota_is_never_overdrawn_by_racing_queries(ledger, engine, calibrated):
    task = sign(ledger, engine, calibrated)
    make_key(ledger, engine, "ana", quota=2)

    def ask(query: int) -> bool:
        try:
            return isinstance(ledger.charge(task, bytes([query]), key_id="ana"), Charged)
        except QuotaExhaustedError:
            return False

    with ThreadPoolExecutor(8) as pool:
        assert sum(pool.map(ask, range(16))) == 2
    with engine.connect() as connection:
        assert connection.execute(sa.select(tables.quotas.c.charged)).scalars().all() == [2]
    assert ledger.answers_left(task) == 2  # a refused query took nothing from the task


def test_a_line_that_nests_too_deeply_is_unreadable() -> None:
    assert "RecursionError" in verify(["[" * 100_000]).problems[0]
