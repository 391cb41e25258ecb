"""``dpicl plan try``, as typed."""

import json
from pathlib import Path

import pytest
import yaml

from service.cli.serve import DEFAULT_CONFIG
from tests.service.conftest import TEXT_PLAN
from tests.service.shell import Shell, create

pytestmark = pytest.mark.model

TOYS = [
    {"unit_id": "u", "text": "a fire engine", "label": "red"},
    {"text": "a ripe tomato", "label": "red"},
    {"text": "the deep sea", "label": "blue"},
]


@pytest.fixture
def toys(tmp_path: Path) -> Path:
    file = tmp_path / "public.jsonl"
    file.write_text("".join(json.dumps(toy) + "\n" for toy in TOYS))
    return file


def test_a_plan_is_tried_before_there_is_a_knowledge_base(dpicl: Shell, tmp_path, plan_file, toys) -> None:
    options = ("--exemplars", toys, "--query", "a ladybird", "--public-size", 60)
    trial = json.loads(dpicl.ok("plan", "try", plan_file, *options, "--repeats", 7, "--json"))
    assert (trial["task"], trial["repeats"], trial["engine"]["name"]) == ("toys.colour", 7, "nearest_exemplar")
    assert (trial["exemplars"]["supplied"], trial["exemplars"]["public_size"]) == (3, 60)
    assert trial["took_s"] > 0
    assert not (tmp_path / "cli.sqlite").exists()
    said = dpicl.ok("plan", "try", plan_file, *options)
    for line in ("nothing was charged", "of 20", "3 exemplars", "Took "):
        assert line in said


def test_a_file_that_is_not_utf_8_is_refused(dpicl: Shell, tmp_path: Path, plan_file: Path) -> None:
    table = tmp_path / "public.csv"
    table.write_bytes("text;label\nein Bär;red\neine Ente;blue\n".encode("cp1252"))
    options = ("--exemplars", table, "--query", "ein Bär", "--public-size", 60, "--repeats", 2)
    assert "--encoding cp1252" in dpicl.fails("plan", "try", plan_file, *options)
    assert "2 exemplars" in dpicl.ok("plan", "try", plan_file, *options, "--encoding", "cp1252")
    plan = plan_file.read_bytes()
    plan_file.write_bytes("# Bär\n".encode("cp1252") + plan)
    assert "line 1 is not utf-8" in dpicl.fails("plan", "preview", plan_file)


def test_a_known_knowledge_base_gives_the_public_size(dpicl: Shell, plan_file, toys) -> None:
    create(dpicl)
    options = ("--exemplars", toys, "--query", "a ladybird", "--task", "colour")
    assert json.loads(dpicl.ok("plan", "try", plan_file, *options, "--json"))["exemplars"]["public_size"] == 60
    assert "colour" not in dpicl.ok("budget")  # nothing was signed


def test_words_are_tried_too(dpicl: Shell, tmp_path: Path, toys) -> None:
    file = tmp_path / "words.yaml"
    file.write_text(TEXT_PLAN.format(mechanism="type: keyword_ptr, k_min: 1, k_max: 2", epsilon=24, answers=2))
    said = dpicl.ok("plan", "try", file, "--exemplars", toys, "--query", "a ladybird", "--public-size", 60)
    assert "fell back" in said
    assert "slots" in said


def test_the_engine_of_a_serve_config_answers(dpicl: Shell, tmp_path: Path, plan_file, toys) -> None:
    """The config names a server that does not run, and the command reports it in one line."""
    config = yaml.safe_load(DEFAULT_CONFIG.read_text())
    remote = {"name": "openai_compatible", "base_url": "http://127.0.0.1:9/v1", "model": "m", "max_attempts": 1}
    config["applications"][0]["args"]["engine"] = {**remote, "isolation": "best_effort"}
    file = tmp_path / "serve.yaml"
    file.write_text(yaml.safe_dump(config))
    options = ("--exemplars", toys, "--query", "x", "--public-size", 60, "--engine-config", file)
    assert "does not answer" in dpicl.fails("plan", "try", plan_file, *options)


def test_a_trial_that_cannot_start_is_reported_in_one_line(dpicl: Shell, tmp_path: Path, plan_file, toys) -> None:
    size = ("--public-size", 60)
    options = ("--query", "x", *size)
    assert "it has colour" in dpicl.fails("plan", "try", plan_file, "--exemplars", toys, "--task", "taste", *options)
    bad = tmp_path / "bad.jsonl"
    bad.write_text('{"text": "no label"}\n')
    assert "label" in dpicl.fails("plan", "try", plan_file, "--exemplars", bad, *options)
    assert "empty" in dpicl.fails("plan", "try", plan_file, "--exemplars", toys, "--query", " ", *size)
    bad.write_text((json.dumps(TOYS[1]) + "\n") * 201)
    refused = dpicl.fails("plan", "try", plan_file, "--exemplars", bad, *options)
    assert "--exemplars: at most 200 rows are tried; the file has 201" in refused
