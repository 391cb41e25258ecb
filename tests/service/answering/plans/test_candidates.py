"""``dpicl plan candidates`` against a real chat server: what the server is shown, and what becomes of its replies."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from service.cli.serve import DEFAULT_CONFIG
from tests.service.engines.chat_server import Asked, ChatServer, completion
from tests.service.shell import Shell

pytestmark = pytest.mark.model


async def writing(asked: Asked) -> bytes:
    """A text with white space around it: number 0 without a temperature, otherwise a different number for each seed."""
    label = "red" if "“red”" in asked.prompt else "blue"
    number = asked.body["seed"] if asked.body["temperature"] else 0
    return completion(f" A {label}\n toy,  number {number}.\n")


async def saying_nothing_of_blue(asked: Asked) -> bytes:
    return completion("" if "“blue”" in asked.prompt else "A toy.")


@pytest.fixture
def asking(dpicl: Shell, tmp_path: Path) -> Callable[..., tuple[Any, list[Asked]]]:
    def ask(behaviour, *arguments: object, fails: bool = False) -> tuple[Any, list[Asked]]:
        async def run() -> tuple[Any, list[Asked]]:
            async with ChatServer(behaviour) as server:
                config = yaml.safe_load(DEFAULT_CONFIG.read_text())
                engine = {"name": "openai_compatible", "base_url": server.url, "model": "m"}
                config["applications"][0]["args"]["engine"] = {**engine, "isolation": "best_effort", "max_attempts": 1}
                (tmp_path / "serve.yaml").write_text(yaml.safe_dump(config))
                options = ("plan", "candidates", *arguments, "--engine-config", tmp_path / "serve.yaml")
                return await asyncio.to_thread(dpicl.fails if fails else dpicl.ok, *options), server.asked

        return asyncio.run(run())

    return ask


def test_they_are_written_for_each_label_and_make_a_plan(
    dpicl: Shell, asking: Callable[..., tuple[Any, list[Asked]]], plan_file: Path
) -> None:
    plan = yaml.safe_load(plan_file.read_text())
    task = plan["tasks"]["colour"]
    task["prompt"] |= {"instruction": "Name the toy's colour.", "exemplar": "Toy: {text}\nColour: {label}"}
    plan_file.write_text(yaml.safe_dump(plan))
    printed, asked = asking(writing, plan_file, "--per-label", 4)
    written = yaml.safe_load(printed)
    assert [one["label"] for one in written] == ["red"] * 4 + ["blue"] * 4
    assert len({one["text"] for one in written}) == 8
    assert (written[0]["text"], written[4]["text"]) == ("A red toy, number 0.", "A blue toy, number 0.")
    assert all("Name the toy's colour." in one.prompt and one.prompt.endswith("\n\nToy:") for one in asked)
    mechanism = {"type": "synthetic_exemplars", "per_label": 2, "candidates": written}
    plan["tasks"]["colour"] = {name: task[name] for name in ("kind", "labels", "prompt")} | {
        "release": "once",
        "mechanism": mechanism,
    }
    plan_file.write_text(yaml.safe_dump(plan))
    assert "σ" in dpicl.ok("plan", "preview", plan_file, "--public-size", 600, "--details")


def test_what_was_chosen_is_varied(asking: Callable[..., tuple[Any, list[Asked]]], plan_file: Path, tmp_path) -> None:
    chosen = tmp_path / "chosen.jsonl"
    given = [{"text": "A red toy, number 0.", "label": "red"}, {"text": "the {sea}", "label": "blue"}]
    chosen.write_text("".join(json.dumps(one) + "\n" for one in given))
    printed, asked = asking(writing, plan_file, "--per-label", 2, "--vary", chosen)
    written = [one["text"] for one in yaml.safe_load(printed)]
    assert len(written) == 3
    assert given[0]["text"] not in written, "it is there already"
    shown = [[one["text"] in question.prompt for question in asked] for one in given]
    assert [sum(of) for of in shown] == [2, 2]
    chosen.write_text(json.dumps({"text": "x", "label": "green"}))
    assert "a label of" in asking(writing, plan_file, "--vary", chosen, fails=True)[0]


def test_what_cannot_be_written_is_one_line(dpicl, asking: Callable[..., tuple[Any, list[Asked]]], plan_file) -> None:
    assert "nothing for blue" in asking(saying_nothing_of_blue, plan_file, fails=True)[0]
    assert "nearest_exemplar writes no texts" in dpicl.fails("plan", "candidates", plan_file)
    assert "has no task 'shape' with labels" in dpicl.fails("plan", "candidates", plan_file, "--task", "shape")
    plan_file.write_text(plan_file.read_text().replace("{text}", "{text} {size}"))
    assert "the prompt shows size, text" in asking(writing, plan_file, fails=True)[0]
