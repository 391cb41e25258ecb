"""A plan applies to the cohorts that it names at signing: it is charged to each of them, and draws on no other."""

import asyncio
from collections.abc import Iterator
from pathlib import Path

import pytest

from accounting.ledger.errors import BudgetExceededError, CohortError, KnowledgeBaseArchivedError
from accounting.plans.plan import CalibratedPlan, Plan, PlanError, load_plan, parse_plan
from exemplar_store import Layout, Row, Slot, read_json_lines
from service.answering.plans.signing import not_free, prepare, settled, sign
from service.operations.budget_report import budget_report
from service.operations.services import Services, open_services
from service.records.records import Records
from service.records.replaying import replay
from service.records.signed import read_signed
from tests.service.conftest import EMBEDDER, PLAN, MajorityEngine, embed, make_records, rows


def heard(engine: MajorityEngine) -> set[str]:
    """The kinds of toys whose exemplars the engine was shown."""
    shown = [slot for *_, slots in engine.shown for slot in slots]
    return {exemplar.fields["text"].split()[0] for slot in shown for exemplar in slot}


@pytest.fixture
def records(tmp_path: Path) -> Records:
    """Sixty toys of ε 8; then sixty trains of ε 5 and sixty cars of ε 4, each kind in a cohort of its own."""
    opened = make_records(tmp_path)
    for what, epsilon in (("train", 5), ("car", 4)):
        opened.open_cohort("toys", epsilon=epsilon, delta=1e-3, public_size=60, by="root")
        exemplars = [{"unit_id": f"{what}{i}", "text": f"{what} {i}", "label": "red"} for i in range(60)]
        opened.ingest("toys", read_json_lines(rows(exemplars), Layout(("text", "label"))), embed, by="root")
    return opened


def plan(**changes: object) -> Plan:
    return load_plan(PLAN).model_copy(update=changes)


def signed(records: Records, wanted: Plan) -> CalibratedPlan:
    calibrated = prepare(records, wanted)
    sign(records, calibrated, "root")
    return calibrated


def free(records: Records) -> list[float]:
    (budget,) = budget_report(records)
    return [one.free.epsilon for one in budget.cohorts]


@pytest.mark.parametrize(
    ("written", "cohorts", "left"),
    [({}, [1, 2, 3], [4, 1, 0]), ({"retain": 2}, [2, 3], [8, 1, 0]), ({"cohorts": [1, 3]}, [1, 3], [4, 5, 0])],
)
def test_a_plan_is_charged_to_the_cohorts_that_it_means_at_signing(records, written, cohorts, left) -> None:
    calibrated = signed(records, plan(**written))
    assert (calibrated.plan.cohorts, calibrated.plan.retain) == (cohorts, None)
    noise = calibrated.noise["colour"]
    assert (calibrated.public_size, noise.sampling_probability) == (60 * len(cohorts), 20 / (60 * len(cohorts)))
    assert free(records) == left
    (stored,) = records.ledger.budgets.plans("toys")
    assert list(stored.cohorts) == read_signed(stored.document).plan.cohorts == cohorts
    assert replay(records, recompute=False).problems == []


def test_what_a_plan_means_is_what_was_shown(records) -> None:
    shown = prepare(records, plan())
    records.open_cohort("toys", epsilon=1, delta=1e-5, public_size=60, by="root")
    sign(records, shown, "root")
    assert free(records) == [4, 1, 0, 1]


def test_a_cohort_that_has_too_little_left_is_named_and_can_be_left_out(records) -> None:
    signed(records, plan())
    assert "of cohort 2 of 'toys'" in (not_free(records, plan()) or "")
    again = prepare(records, plan())
    with pytest.raises(BudgetExceededError, match="cohort 2 of 'toys'"):
        sign(records, again, "root", again=1)
    assert free(records) == [4, 1, 0]
    assert not_free(records, plan(cohorts=[1])) is None
    sign(records, prepare(records, plan(cohorts=[1])), "root", again=1)
    assert free(records) == [0, 1, 0]


def test_a_closed_cohort_is_left_out_and_cannot_be_named(records) -> None:
    cohorts = records.ledger.cohorts
    early = prepare(records, plan(cohorts=[2]))
    cohorts.close("toys", 2, by="root")
    for refused in (2, 3, 4):
        with pytest.raises(CohortError, match=f"cohort {refused}"):
            cohorts.close("toys", refused, by="root")
    with pytest.raises(CohortError, match="closed"):
        sign(records, early, "root")
    assert settled(records, plan())[0].cohorts == settled(records, plan(retain=2))[0].cohorts == [1, 3]
    assert "is closed" in (not_free(records, plan(cohorts=[2])) or "")
    with pytest.raises(PlanError, match="number 3"):
        prepare(records, plan(cohorts=[1, 4]))


@pytest.mark.parametrize("written", ["cohorts: [2, 1]", "cohorts: [1, 1]", "cohorts: []", "cohorts: [0]", "retain: 0"])
def test_cohorts_are_numbers_in_order(written: str) -> None:
    with pytest.raises(PlanError, match=r"cohorts|retain"):
        load_plan(f"{PLAN}\n{written}\n")
    with pytest.raises(PlanError, match="one of them"):
        load_plan(f"{PLAN}\ncohorts: [1]\nretain: 1\n")


def reading_all_of(
    records: Records, cohorts: list[int], sampling: str, ensemble: int
) -> tuple[MajorityEngine, Services]:
    """Sign a plan whose questions read every exemplar of these cohorts."""
    whole = plan(cohorts=cohorts)
    sizes = {"shots": 10, "ensemble": ensemble, "sampling": sampling, "answers": 2, "slot_cap": 1000}
    task = whole.tasks["colour"].model_copy(update=sizes)
    signed(records, whole.model_copy(update={"tasks": {"colour": task}}))
    engine = MajorityEngine()
    return engine, open_services(records, engine, EMBEDDER)


@pytest.mark.parametrize("sampling", ["units", "blocks"])
def test_the_engine_sees_the_named_cohorts_and_no_other(records, sampling: str) -> None:
    engine, services = reading_all_of(records, [1, 3], sampling, 6 if sampling == "blocks" else 12)
    for query in ("one", "two"):
        asyncio.run(services.answering.answer("toys.colour", query, key_id="ana"))
    assert "car" in heard(engine)
    assert "train" not in heard(engine)


def arriving_as_it_is_charged(records: Records, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Make buses arrive after the charge and before anything is read; return the texts of all units read afterwards."""
    charge, every_unit = records.ledger.charge, records.store.every_unit
    seen: list[str] = []

    def and_then(*arguments: object, **more: object) -> object:
        charged = charge(*arguments, **more)
        bus = [Row(i, f"bus{i}", {"text": f"bus {i}", "label": "red"}) for i in range(30)]
        records.ingest("toys", bus, embed, by="root")
        return charged

    def reading(*arguments: object, **more: object) -> Iterator[Slot]:
        for slot in every_unit(*arguments, **more):
            seen.extend(exemplar.fields["text"] for exemplar in slot)
            yield slot

    monkeypatch.setattr(records.ledger, "charge", and_then)
    monkeypatch.setattr(records.store, "every_unit", reading)
    return seen


@pytest.mark.parametrize("sampling", ["units", "blocks"])
def test_no_unit_that_came_after_the_charge_is_drawn(records, monkeypatch, sampling: str) -> None:
    """The upload of such units was not witnessed with the charge, so a restore could lose it unnoticed."""
    engine, services = reading_all_of(records, [3], sampling, 6)
    arriving_as_it_is_charged(records, monkeypatch)
    asyncio.run(services.answering.answer("toys.colour", "one", key_id="ana"))
    assert heard(engine) == {"car"}
    asyncio.run(services.answering.answer("toys.colour", "two", key_id="ana"))
    assert heard(engine) == {"car", "bus"}


@pytest.mark.parametrize("mechanism", ["prototypes", "softmax_regression"])
def test_no_unit_that_came_after_the_charge_is_read_for_a_one_time_release(
    records, monkeypatch, mechanism: str
) -> None:
    seen = arriving_as_it_is_charged(records, monkeypatch)
    once = {"kind": "classify", "release": "once", "labels": ["red", "blue"], "mechanism": {"type": mechanism}}
    once["prompt"] = {"exemplar": "{text}: {label}", "query": "{text}:"}
    budget = {"epsilon": 4, "delta": 1e-4}
    made = parse_plan({"knowledge_base": "toys", "budget": budget, "cohorts": [3], "tasks": {"colour": once}})
    sign(records, prepare(records, made), "root", embed=embed)
    assert len(seen) == 60
    assert not [text for text in seen if text.startswith("bus")]


def test_an_upload_that_archiving_overtakes_stores_nothing(records) -> None:
    def overtaken():
        records.ledger.cohorts.archive("toys", by="root")
        yield Row(1, "late", {"text": "late toy", "label": "red"})

    before = len([*records.store.every_unit("toys", (1, 2, 3))])
    with pytest.raises(KnowledgeBaseArchivedError):
        records.ingest("toys", overtaken(), embed, by="root")
    with pytest.raises(KnowledgeBaseArchivedError):
        records.ingest("toys", [], embed, by="root")
    assert len([*records.store.every_unit("toys", (1, 2, 3))]) == before == 180
    assert records.audit.events(newest_first=True, limit=1)[0].kind == "knowledge_base.archived"
    assert replay(records, recompute=False).problems == []
