"""The documentation's own commands, plans and links."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from accounting.plan import calibrate_plan, load_plan
from sanitization.restore.training.data import TrainConfig
from service.serve_config import load_serve_config
from tests.documented import DOCS, blocks, run

ROOT = DOCS.parent
PAGES = sorted([ROOT / "README.md", *DOCS.rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
ELSEWHERE = {"scrape_configs", "groups", "apiVersion"}
"""Keys of Prometheus' and of Kubernetes' files, which other tests check."""


def test_the_tutorial_and_the_clients_run_as_written(tmp_path: Path) -> None:
    """Every command of the tutorial, in one shell, in a folder that has the examples; before its end every client."""
    (tmp_path / "examples").symlink_to(ROOT / "examples")
    *commands, end = blocks(DOCS / "tutorial.md", "sh")
    assert len(commands) >= 12
    clients = blocks(DOCS / "clients.md", "python")
    assert len(clients) >= 2
    for number, client in enumerate(clients):
        (tmp_path / f"client{number}.py").write_text(client)
        commands.append(f"python client{number}.py\n")
    printed = run("".join([*commands, end]), tmp_path)
    assert "Stored 900 exemplars of 250 new units" in printed
    assert "1 answer charged" in printed
    assert "free, answered before" in printed
    assert "support.team\n" in printed, "the models that OpenAI's client lists"
    assert "Deleted " in printed
    assert len((tmp_path / "answers.jsonl").read_text().splitlines()) == 3


def test_the_clients_are_typed(tmp_path: Path) -> None:
    for number, client in enumerate(blocks(DOCS / "clients.md", "python")):
        (tmp_path / f"client{number}.py").write_text(client)
    command = [sys.executable, "-m", "mypy", "--strict", "--config-file=", *map(str, sorted(tmp_path.iterdir()))]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_plans_shown_can_be_signed(page: Path) -> None:
    for block in blocks(page, "yaml"):
        if "knowledge_base" in yaml.safe_load(block):
            calibrate_plan(load_plan(block), public_size=10_000)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_configs_shown_can_be_served(page: Path, tmp_path: Path) -> None:
    """A YAML block is a plan, a bundle to train, another program's, or part of the config that comes along."""
    for block in blocks(page, "yaml"):
        shown = yaml.safe_load(block)
        if "declared" in shown:
            TrainConfig.model_validate(shown)
        elif "knowledge_base" not in shown and not shown.keys() & ELSEWHERE:
            config = yaml.safe_load((ROOT / "service" / "serve.yaml").read_text())
            assert shown.keys() <= config["applications"][0].keys()
            config["applications"][0].update(shown)
            file = tmp_path / "serve.yaml"
            file.write_text(yaml.safe_dump(config))
            load_serve_config(file)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#:]+)(?:#[^)]*)?\)", page.read_text()):
        if (page.parent / target).is_relative_to(DOCS / "reference"):
            continue  # written when the site is built, and checked there
        assert (page.parent / target).exists(), target
