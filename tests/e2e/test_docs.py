"""The documentation's own commands, plans and links."""

import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from accounting.plans.plan import calibrate_plan, load_plan
from research.restore.data import TrainConfig
from service.serving.serve_config import load_serve_config
from tests.documented import DOCS, SOURCES, blocks, run

ROOT = DOCS.parent
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
ELSEWHERE = {"scrape_configs", "groups", "apiVersion"}
"""Keys of files for Prometheus and Kubernetes, which other tests check."""
PART_OF_A_TASK = {"mechanism", "public_exemplars"}
"""Keys of a task in a plan."""


@pytest.mark.service
def test_the_tutorial_runs_as_written(tmp_path: Path) -> None:
    """Every command of the tutorial, in one shell, in a folder that has the examples."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    commands = blocks(DOCS / "tutorial.md", "sh")
    assert len(commands) >= 12
    printed = run("".join(commands), tmp_path)
    assert "Stored 900 exemplars of 250 new units" in printed
    assert "1 answer charged" in printed
    assert "free, answered before" in printed
    assert "Deleted " in printed
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 3


@pytest.mark.service
@pytest.mark.lengthy
def test_the_hotline_runs_as_written(tmp_path: Path) -> None:
    """Every command about the hospital's hotline, in one shell: its file is measured before the plan is signed."""
    for name in ("hotline.py", "plan.yaml"):
        (tmp_path / name).write_text((SOURCES / "decide" / name).read_text())
    printed = run("".join(blocks(DOCS / "decide.md", "sh")), tmp_path)
    rows = (tmp_path / "hotline.csv").read_bytes()
    assert b"R\xfcckruf" in rows  # cp1252
    assert b";;R" in rows or b";;T" in rows or b";;A" in rows
    shown = " ".join(printed.split())
    assert "Stored 891 exemplars of 470 new units" in shown
    found = re.search(r"queue: (\d+)\S* (?:± \S+ )?%.* of answers right on 167 held-out rows, zero-shot (\d+)", shown)
    assert found is not None, shown
    assert int(found[1]) > 90 > 50 > int(found[2])
    assert re.search(r"\bTermin\b", shown.partition("Signed as version 1")[2])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_plans_shown_can_be_signed(page: Path) -> None:
    for block in blocks(page, "yaml"):
        if "knowledge_base" in yaml.safe_load(block):
            calibrate_plan(load_plan(block), public_size=10_000)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_parts_of_a_task_shown_fit_a_task_that_is_shown(page: Path) -> None:
    texts = [
        (ROOT / "examples" / "support" / "plan.yaml").read_text(),
        *(one for p in PAGES for one in blocks(p, "yaml")),
    ]
    plans = [plan for plan in map(yaml.safe_load, texts) if "knowledge_base" in plan]
    tasks = [(plan, task) for plan in plans for task in plan["tasks"].values()]
    for part in map(yaml.safe_load, blocks(page, "yaml")):
        if part.keys() & PART_OF_A_TASK:
            assert any(signs({**plan, "tasks": {"one": {**task, **part}}}) for plan, task in tasks), part


def signs(plan: dict[str, Any]) -> bool:
    """Whether a plan is accepted with noise for every task."""
    try:
        calibrate_plan(load_plan(yaml.safe_dump(plan)), public_size=10_000)
    except ValueError:
        return False
    return True


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configs_shown_can_be_served(page: Path, tmp_path: Path) -> None:
    """A YAML block is a plan or part of one, a bundle to train, another program's file, or part of our config."""
    for block in blocks(page, "yaml"):
        shown = yaml.safe_load(block)
        if "declared" in shown:
            TrainConfig.model_validate(shown)
        elif "knowledge_base" not in shown and not shown.keys() & (ELSEWHERE | PART_OF_A_TASK):
            config = yaml.safe_load((ROOT / "service" / "serving" / "serve.yaml").read_text())
            assert shown.keys() <= config["applications"][0].keys()
            config["applications"][0].update(shown)
            file = tmp_path / "serve.yaml"
            file.write_text(yaml.safe_dump(config))
            load_serve_config(file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        assert (page.parent / target).exists(), target


@pytest.mark.parametrize("folder", sorted(SOURCES.iterdir()), ids=lambda folder: folder.name)
def test_a_page_shows_the_files_of_its_folder(folder: Path) -> None:
    shown = blocks(DOCS / f"{folder.name}.md", r"\w+")
    for file in sorted(folder.iterdir()):
        assert shown.count(file.read_text()) == 1, file.name
