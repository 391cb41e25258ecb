"""``dpicl attack``, as typed, with the real embedder and engine."""

import json
import math
from pathlib import Path

import numpy as np
import pytest

from aggregation import noise
from tests.documented import DOCS, blocks, run
from tests.privacy.planting import replace_function
from tests.service.conftest import PLAN, TEXT_PLAN
from tests.service.shell import Shell, create

pytestmark = pytest.mark.model

THINGS = {"red": ("tomato", "cherry", "ruby", "poppy"), "blue": ("sea", "sky", "sapphire", "cornflower")}
QUICK = ("--trials", 60, "--answers", 2, "--rows", 40)
"""A person who fills a slot: a single row may have the label of the others in its slot, by chance."""


@pytest.fixture
def plan_file(tmp_path: Path) -> Path:
    file = tmp_path / "plan.yaml"
    file.write_text(PLAN)
    return file


@pytest.fixture
def public(tmp_path: Path) -> Path:
    file = tmp_path / "public.jsonl"
    rows = [
        {"text": f"a {kind} {thing}", "label": colour}
        for colour, things in THINGS.items()
        for thing in things
        for kind in ("small", "large", "painted")
    ]
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return file


def attacked(dpicl: Shell, *options: object) -> dict[tuple[str, str], dict]:
    report = json.loads(dpicl.ok("attack", "toys", *options, "--json"))
    return {(one["attack"], one["target"]): one for one in report["found"]}


@pytest.mark.slow
def test_a_person_shows_without_noise_and_not_as_signed(
    dpicl: Shell, tmp_path: Path, plan_file: Path, public: Path
) -> None:
    table = tmp_path / "leaks.csv"
    options = ("--plan", plan_file, "--exemplars", public, "--public-size", 60, *QUICK)
    found = attacked(dpicl, *options, "--csv", table)
    assert len(found) == 9
    for (_, target), one in found.items():
        assert one["trials"] == 60
        assert (one["epsilon_promised"] is None) == (target != "as signed")
        assert not one["broken"]
    assert found["ContextLeak", "one slot, no noise"]["epsilon_at_least"] > 0.5
    assert 0 < found["ContextLeak", "as signed"]["epsilon_promised"] < 4  # two answers of twenty
    assert len(table.read_text().splitlines()) == 10
    assert not (tmp_path / "cli.sqlite").exists()
    said = dpicl.ok("attack", "toys", *options, "--attack", "ContextLeak")
    assert "ε promised" in said
    assert "99.9 %" in said


@pytest.mark.slow
def test_noise_that_is_not_drawn_is_caught(
    dpicl: Shell, plan_file: Path, public: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options = (
        "--plan",
        plan_file,
        "--exemplars",
        public,
        "--public-size",
        21,
        "--trials",
        300,
        "--answers",
        1,
        "--rows",
        40,
    )
    aimed = ("--attack", "ContextLeak")
    assert not attacked(dpicl, *options, *aimed)["ContextLeak", "as signed"]["broken"]

    def silent(_right: object) -> object:
        return lambda values, _sigma: np.asarray(values)

    replace_function(noise, "add_gaussian_noise", silent(noise.add_gaussian_noise), monkeypatch)
    assert "above what is promised" in dpicl.fails("attack", "toys", *options, *aimed)


@pytest.mark.slow
@pytest.mark.parametrize(
    "mechanism",
    [
        "type: keyword_joint_em, k: 2",
        "type: keyword_ptr, k_min: 1, k_max: 2",
        "type: embedding_mean",
        "type: common_sentences, sentences: 1",
    ],
)
def test_texts_are_attacked(mechanism: str, dpicl: Shell, tmp_path: Path, public: Path) -> None:
    file = tmp_path / "texts.yaml"
    file.write_text(TEXT_PLAN.format(mechanism=mechanism, epsilon=8, answers=5))
    found = attacked(
        dpicl, "--plan", file, "--exemplars", public, "--public-size", 90, *QUICK, "--attack", "ContextLeak"
    )
    assert found["ContextLeak", "one slot, no noise"]["epsilon_at_least"] > 0.5
    assert not found["ContextLeak", "as signed"]["broken"]


@pytest.mark.slow
@pytest.mark.parametrize("drawn", ["sampling: blocks", "order: nearest\n    drawn: 4"])
def test_every_way_to_draw_is_attacked(drawn: str, dpicl: Shell, plan_file: Path, public: Path) -> None:
    plan_file.write_text(PLAN.replace("shots: 2", f"shots: 2\n    {drawn}"))
    found = attacked(
        dpicl, "--plan", plan_file, "--exemplars", public, "--public-size", 60, *QUICK, "--attack", "ContextLeak"
    )
    assert found["ContextLeak", "one slot, no noise"]["epsilon_at_least"] > 0.5
    assert not found["ContextLeak", "as signed"]["broken"]


@pytest.mark.slow
def test_a_signed_plan_is_attacked_by_its_version_and_not_charged(dpicl: Shell, plan_file: Path, public: Path) -> None:
    create(dpicl)
    dpicl.ok("plan", "sign", plan_file, "--yes")
    before = dpicl.ok("budget", "--json"), dpicl.ok("audit", "export")
    found = attacked(dpicl, "--plan", 1, "--exemplars", public, *QUICK, "--attack", "membership inference")
    assert math.isfinite(found["membership inference", "as signed"]["epsilon_promised"])
    assert (dpicl.ok("budget", "--json"), dpicl.ok("audit", "export")) == before
    assert "no signed plan of version 2" in dpicl.fails("attack", "toys", "--plan", 2, "--exemplars", public)


@pytest.mark.parametrize(
    ("change", "options", "reason"),
    [
        (("", ""), ("--answers", 21), "the plan has 20 answers for colour, not 21"),
        (("", ""), ("--task", "shape"), "no task 'shape'; it has colour"),
        (("", ""), ("--attack", "guessing"), "'guessing' is unknown"),
        (("toys", "trains"), (), "a plan for trains, not for toys"),
        (
            (
                "shots: 2\n    ensemble: 10\n    answers: 20\n    mechanism: {type: rnm_gaussian, vote: hard}",
                "release: once\n    mechanism: {type: prototypes}",
            ),
            ("--answers", 1),
            "colour is released once",
        ),
    ],
)
def test_what_does_not_fit_is_refused(
    change: tuple[str, str], options: tuple[object, ...], reason: str, dpicl: Shell, plan_file: Path, public: Path
) -> None:
    plan_file.write_text(PLAN.replace(*change))
    given = ("--plan", plan_file, "--exemplars", public, "--public-size", 60, *options)
    assert reason in dpicl.fails("attack", "toys", *given)


def test_a_file_that_does_not_fit_is_refused(dpicl: Shell, tmp_path: Path, plan_file: Path, public: Path) -> None:
    size = ("--public-size", 60)
    assert "there is no file" in dpicl.fails("attack", "toys", "--plan", "plan-b", "--exemplars", public, *size)
    public.write_text('{"text": "a", "label": "red"}\n')
    assert "at least 3 rows" in dpicl.fails("attack", "toys", "--plan", plan_file, "--exemplars", public, *size)
    public.write_text('{"text": "a"}\n')
    assert "label" in dpicl.fails("attack", "toys", "--plan", plan_file, "--exemplars", public, *size)


@pytest.mark.slow
def test_the_page_runs_as_written(tmp_path: Path) -> None:
    (tmp_path / "examples").symlink_to(DOCS.parent / "examples")
    (command,) = blocks(DOCS / "privacy" / "leaks.md", "sh")
    printed = run(command, tmp_path)
    for shown in ("membership inference", "prompt leak", "ContextLeak", "as signed"):
        assert shown in printed
