"""One-time releases that measure themselves on units that were left out of them, with a real ledger and store."""

from collections.abc import Iterable, Sequence
from pathlib import Path

import numpy as np
import pytest

from accounting.plans.plan import PlanError, calibrate_plan, load_plan
from aggregation import softmax_regression
from exemplar_store import Exemplar, Part
from service.answering.latency import Grains
from service.answering.mechanisms.softmax_regression import SoftmaxRegressionAdapter
from service.answering.once import making
from service.answering.once.making import NotMadeError
from service.answering.plans.preview import preview
from service.answering.plans.signing import release, sign
from service.operations import overview, tasks
from service.operations.measured import measured
from service.operations.roles import Actor
from service.operations.services import Services, open_services
from service.records.records import Records
from service.records.replaying import replay
from tests.service.answering.test_once import PLAN, Crash, Reader, alone, ask, crash, embed, noisy, states
from tests.service.conftest import Embedding, make_records, unwitnessed

MEASURED = PLAN.replace("{type: prototypes}", "{type: softmax_regression, measured_on: 0.4}")
TASK = "toys.for-ever"
UNITS = 200
ADMIN = Actor("root", "root", "account", "admin")


def opened(folder: Path, wrong: int = 0, url: str | None = None) -> Records:
    """Red and blue toys, of which every fourth unit has two exemplars, and the first few are labelled wrong."""
    toys = []
    for i in range(UNITS):
        colour, other = ("red", "blue") if i % 2 else ("blue", "red")
        label = other if i < wrong else colour
        toys += [(f"u{i}", f"a {colour} toy {i} {part}", label) for part in range(1 + (i % 4 == 0))]
    return make_records(folder, epsilon=200, settings=unwitnessed(url) if url else None, toys=toys, embed=embed)


def signed(records: Records, plan: str = MEASURED) -> Services:
    sign(records, noisy(plan), "test", embed=embed)
    return open_services(records, Reader(), Embedding(embed))


Units = Iterable[Sequence[Exemplar]]


class Parts:
    """Units that releases were made of, and units that they were measured on, by the texts of each."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.made_of: list[list[str]] = []
        self.measured_on: list[list[str]] = []
        adapter, into = SoftmaxRegressionAdapter, self
        make, measure = adapter.make, adapter.measure

        def noted(units: Units, read: list[list[str]]) -> Units:
            for unit in units:
                read.append([exemplar.fields["text"] for exemplar in unit])
                yield unit

        monkeypatch.setattr(adapter, "make", lambda self, units, *more: make(self, noted(units, into.made_of), *more))
        monkeypatch.setattr(
            adapter, "measure", lambda self, made, units: measure(self, made, noted(units, into.measured_on))
        )


def left_out(records: Records) -> list[list[str]]:
    part = Part(f"{TASK}@1", 0.4, left_out=True)
    return [[one.fields["text"] for one in unit] for unit in records.store.every_unit("toys", part=part)]


def test_it_is_made_of_one_part_and_measured_on_the_other(database_url, tmp_path, monkeypatch) -> None:
    records, parts = opened(tmp_path, url=database_url), Parts(monkeypatch)
    signed(records)
    assert parts.measured_on == left_out(records)
    assert len(parts.made_of) + len(parts.measured_on) == UNITS
    assert not {tuple(unit) for unit in parts.made_of} & {tuple(unit) for unit in parts.measured_on}
    assert replay(records, recompute=False).problems == []
    records.database.dispose()


@pytest.mark.parametrize("wrong", [0, 80])
def test_every_answer_states_how_often_the_release_is_right(wrong: int, tmp_path: Path) -> None:
    """The noise is small here, and the release right about every unit but those that are labelled wrong."""
    services = signed(opened(tmp_path, wrong))
    texts = left_out(services.records)
    rightly = [unit for unit in texts if int(unit[0].split()[3]) >= wrong]
    stated = ask(services, "a red thing", TASK).release.answer["measured"]
    assert stated["units"] == pytest.approx(len(texts), abs=2)
    assert stated["accuracy"] == pytest.approx(len(rightly) / len(texts), abs=0.03)
    assert 0.005 < stated["standard_error"] < 0.08
    assert ask(services, "a blue thing", TASK).release.answer["measured"] == stated
    records = services.records
    (shown,) = measured(records.ledger, records.ledger.budgets.plans("toys")).values()
    assert shown.model_dump() == stated
    assert tasks.describe(ADMIN, records, TASK, Grains()).measured == shown
    assert {one.name: one.view.measured for one in tasks.list_(ADMIN, records)} == {"toys.colour": None, TASK: shown}
    assert overview.read_one(ADMIN, records, "toys").measured == {f"{TASK}@1": shown}
    assert f"right in {100 * stated['accuracy']:.1f} % ± " in str(shown)


def test_a_used_up_task_states_it_where_the_release_answers(tmp_path: Path) -> None:
    services = signed(opened(tmp_path))
    paid = [ask(services, query).release.answer for query in ("a red one", "a red two")]
    assert not any("measured" in answer for answer in paid)
    assert "measured" in ask(services, "a blue one").release.answer


def test_what_was_measured_stays_whatever_is_uploaded_and_deleted(tmp_path: Path) -> None:
    services = signed(opened(tmp_path))
    before = ask(services, "a red thing", TASK).release
    for unit in left_out(services.records)[:5]:
        services.records.forget("toys", f"u{unit[0].split()[3]}", by="root")
    assert ask(services, "a red thing", TASK).release == before
    assert release(services.records, TASK).answer["measured"] == before.answer["measured"]
    assert states(services.records, "for-ever") == {"released": 1}


def test_the_count_has_the_noise_that_was_signed(tmp_path: Path, monkeypatch) -> None:
    """Of neither release nor count is the noise less than that of a plan that measures nothing."""
    plans = [
        calibrate_plan(load_plan(alone(plan).replace("epsilon: 90", "epsilon: 1")), 60)
        for plan in (MEASURED, MEASURED.replace(", measured_on: 0.4", ""))
    ]
    assert plans[0].noise == plans[1].noise
    z = plans[0].noise["for-ever"].mechanism.noise_multiplier
    drawn: list[tuple[str, float]] = []
    for module in ("accuracy", "softmax_regression"):

        def noted(values: np.ndarray, sigma: float, module: str = module) -> np.ndarray:
            drawn.append((module, sigma))
            return values

        monkeypatch.setattr(f"aggregation.{module}.add_gaussian_noise", noted)
    records = opened(tmp_path)
    sign(records, plans[0], "test", embed=embed)
    each = z * np.sqrt(softmax_regression.STEPS) * softmax_regression.CLIP
    assert drawn == [("softmax_regression", pytest.approx(each))] * softmax_regression.STEPS + [("accuracy", z)]


def test_a_release_that_was_not_counted_is_lost_and_never_made_again(tmp_path: Path, monkeypatch) -> None:
    """Release and count are stored in one transaction: neither is seen without the other."""
    records = opened(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr(SoftmaxRegressionAdapter, "measure", crash)
        with pytest.raises(Crash):
            sign(records, noisy(alone(MEASURED)), "test", embed=embed)
    assert states(records, "for-ever") == {"charged": 1}
    with pytest.raises(NotMadeError):
        release(records, TASK, embed)
    assert measured(records.ledger, records.ledger.budgets.plans("toys")) == {}
    assert overview.read_one(ADMIN, records, "toys").measured == {}


def test_a_step_counts_on_the_public_number_of_units_that_are_not_left_out() -> None:
    plan = noisy(MEASURED)
    adapter = making.once_adapter_of(plan.plan.tasks["for-ever"], plan.noise["for-ever"])
    assert adapter.regression(2, 1000).public_size == 600
    assert adapter.voices(1000) == 300
    assert adapter.regression(2, 1).public_size == 1


def test_a_preview_states_the_error_bar_before_anything_is_signed() -> None:
    plan = calibrate_plan(load_plan(alone(MEASURED).replace("epsilon: 90", "epsilon: 1")), 5000)
    shown = preview(plan).tasks["for-ever"]
    assert shown.measured is not None
    assert shown.measured.units == 2000
    assert 0.5 / np.sqrt(2000) < shown.measured.standard_error < 0.012
    assert "About 2,000 people" in shown.gives
    assert "± 1.1 points" in shown.gives
    few = preview(calibrate_plan(plan.plan, 60)).tasks["for-ever"]
    assert few.measured is not None
    assert few.measured.standard_error > 0.1
    assert "too coarse" in few.gives
    without = load_plan(alone(PLAN).replace("epsilon: 90", "epsilon: 1"))
    assert preview(calibrate_plan(without, 60)).tasks["for-ever"].measured is None


@pytest.mark.parametrize("share", ["0", "0.6", "yes", "-0.1"])
def test_a_share_out_of_range_is_refused(share: str) -> None:
    with pytest.raises(PlanError, match="measured_on"):
        load_plan(alone(MEASURED).replace("0.4", share))


@pytest.mark.parametrize("mechanism", ["synthetic_exemplars", "rnm_gaussian"])
def test_other_mechanisms_do_not_measure_themselves(mechanism: str) -> None:
    written = alone(MEASURED).replace("{type: softmax_regression,", f"{{type: {mechanism},")
    with pytest.raises(PlanError, match="measured_on: unknown key"):
        load_plan(written)
