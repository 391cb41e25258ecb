"""``dpicl eval --engine-config``: a language model behind a real HTTP server, and its replies kept on disk."""

import asyncio
import contextlib
import hashlib
import json
import sqlite3
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import yaml

from research.evaluation.replies import KeptEngine
from service.engines.configs import OpenAiCompatibleConfig, VllmConfig
from service.engines.errors import EngineUnavailableError
from service.engines.task import Prompt, TaskSpec, ZeroShot
from tests.research.evaluation.conftest import FOOD
from tests.service.conftest import EMBEDDER, TEXT_PLAN
from tests.service.engines.chat_server import Asked, ChatServer, completion, response, saying
from tests.service.shell import Shell

pytestmark = pytest.mark.model

ROWS = 4
"""The number of test rows that are asked; these first rows are all about food."""


async def by_prompt(asked: Asked) -> bytes:
    """One of the two labels, chosen by a hash of the prompt."""
    return completion(("kitchen", "workshop")[hashlib.sha256(asked.prompt.encode()).digest()[0] % 2])


@pytest.fixture
def server() -> Iterator[ChatServer]:
    """A server in a thread of its own; commands are run in this one."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    running = ChatServer(by_prompt)
    asyncio.run_coroutine_threadsafe(running.__aenter__(), loop).result()
    yield running
    asyncio.run_coroutine_threadsafe(running.stop(), loop).result()
    loop.call_soon_threadsafe(loop.stop)
    thread.join()
    loop.close()


def remote(server: ChatServer, **settings: Any) -> dict[str, Any]:
    shown = {"name": "openai_compatible", "base_url": server.url, "model": "m", "isolation": "best_effort"}
    return {**shown, "max_attempts": 1, **settings}


@pytest.fixture
def command(tmp_path: Path, dataset: Path, plan_file: Path, server: ChatServer) -> Callable[..., list[object]]:
    """The command line of a run; arguments are options, or changes of the engine or of the plan's task."""

    def arguments(*options: object, engine: dict[str, Any] | None = None, **task: Any) -> list[object]:
        plan = yaml.safe_load(plan_file.read_text())
        (name,) = plan["tasks"]
        plan["tasks"][name] |= task
        (tmp_path / "changed.yaml").write_text(yaml.safe_dump(plan))
        (tmp_path / "engine.yaml").write_text(yaml.safe_dump(remote(server, **(engine or {}))))
        common = ["eval", dataset, "--plan", tmp_path / "changed.yaml", "--engine-config", tmp_path / "engine.yaml"]
        kept = ["--replies", tmp_path / "kept", "--json"]
        return [*common, *kept, "--queries", ROWS, "--epsilon", 8, "--answers", 5, "--draws", 2, *options]

    return arguments


Command = Callable[..., list[object]]
NOISELESS = 4
"""Number of rows of the table that come from replies alone."""


def test_other_noise_votes_and_calibrations_ask_nothing(
    dpicl: Shell, command: Command, server: ChatServer, monkeypatch: pytest.MonkeyPatch, plan_file: Path
) -> None:
    first = json.loads(dpicl.ok(*command()))
    asked = len(server.asked)
    assert asked > ROWS * 5  # zero-shot, and most of ten slots
    assert all(any(word in one.prompt for word in FOOD) for one in server.asked)
    # Not even the engine is started: it would not take this key.
    monkeypatch.setenv("DPICL_REMOTE_API_KEY", "é")
    soft = {"type": "rnm_gaussian", "vote": "soft", "calibration": {"decisiveness": 3}}
    plan_file.write_text(plan_file.read_text().replace("toys", "games").replace("colour", "hue"))
    patient = {"max_concurrency": 2, "max_queued_prompts": 500}
    again = command("--epsilon", 1, "--answers", 7, "--fit", engine=patient, mechanism=soft, answers=9)
    second = json.loads(dpicl.ok(*again))["rows"]
    assert len(server.asked) == asked
    # They are the same votes, so the same slots: another draw of ten would have others.
    assert second[:NOISELESS] == first[:NOISELESS]
    assert {(row["epsilon"], row["answers"]) for row in second[NOISELESS:]} == {(8, 5), (8, 7), (1, 5), (1, 7)}
    monkeypatch.delenv("DPICL_REMOTE_API_KEY")
    dpicl.ok(*command("--queries", ROWS + 1))
    new = server.asked[asked:]
    assert new
    assert {FOOD[ROWS] in one.prompt.splitlines()[-1] for one in new} == {True}


def test_what_replies_depend_on_asks_again(dpicl: Shell, command: Command, server: ChatServer, dataset: Path) -> None:
    def asked_again(*options: object, **change: Any) -> int:
        """The number of rows asked again, counted by their zero-shot prompts, which show the question alone."""
        before = len(server.asked)
        dpicl.ok(*command(*options, **change))
        return sum(one.prompt.count("I bought") == 1 for one in server.asked[before:])

    assert (asked_again(), asked_again()) == (ROWS, 0)
    for change in (
        {"prompt": {"exemplar": "{text}: {label}", "query": "{text}:", "instruction": "Which?"}},
        {"labels": ["workshop", "kitchen"]},
        {"calibrate": "none"},
        {"public_texts": ["A text."] * 8},
        {"slot_tokens": 500},
        {"shots": 3},
        {"ensemble": 9},
        {"sampling": "blocks"},
        {"max_exemplars": 3},
        {"engine": {"model": "n"}},
        {"engine": {"temperature": 0.5}},
        {"engine": {"extra_body": {"seed": 1}}},
    ):
        assert asked_again(**change) == ROWS, change
    assert asked_again("--unit-id", "text") == ROWS
    for name, old, new, rows in (("test", "soup", "stew", 1), ("train", "saw for", "fretsaw for", ROWS)):
        file = dataset / f"{name}.jsonl"
        file.write_text(file.read_text().replace(old, new))
        assert asked_again() == rows, name


@pytest.mark.lengthy
def test_a_killed_run_goes_on(dpicl: Shell, command: Command, server: ChatServer) -> None:
    reached, killed = threading.Event(), threading.Event()

    async def stuck(asked: Asked) -> bytes:
        if not killed.is_set() and FOOD[2] in asked.prompt.splitlines()[-1]:
            reached.set()
            await asyncio.sleep(60)
        return await by_prompt(asked)

    server.behaviour = stuck
    call = [sys.executable, "-c", "from service.cli import main; main()", *map(str, command())]
    with subprocess.Popen(call, stdout=subprocess.DEVNULL) as running:
        assert reached.wait(120)
        running.kill()
    asked = len(server.asked)
    killed.set()
    dpicl.ok(*command())
    new = [one.prompt.splitlines()[-1] for one in server.asked[asked:]]
    assert {word for word in FOOD if any(word in last for last in new)} == set(FOOD[2:ROWS])


def test_a_row_whose_slots_were_all_silent_is_asked_again(dpicl: Shell, command: Command, server: ChatServer) -> None:
    """The server went down after the zero-shot answer: the next run asks that row again, and no other."""
    down = True

    async def half(asked: Asked) -> bytes:
        shown = asked.prompt.count("I bought") > 1
        failing = down and shown and FOOD[1] in asked.prompt.splitlines()[-1]
        return response(503, "") if failing else await by_prompt(asked)

    server.behaviour = half
    dpicl.ok(*command())
    asked, down = len(server.asked), False
    dpicl.ok(*command())
    assert {FOOD[1] in one.prompt.splitlines()[-1] for one in server.asked[asked:]} == {True}


def test_equal_test_rows_have_draws_of_their_own(dpicl: Shell, command: Command, tmp_path: Path, dataset: Path) -> None:
    line = (dataset / "test.jsonl").read_text().splitlines()[0]
    (dataset / "test.jsonl").write_text(f"{line}\n" * ROWS)
    dpicl.ok(*command())
    with sqlite3.connect(tmp_path / "kept" / "replies.sqlite") as database:
        assert database.execute("SELECT count(*) FROM replies").fetchone() == (ROWS,)


@pytest.mark.parametrize("options", [(), ("--same-slots",)])
def test_slots_are_drawn_for_each_row_or_once(
    dpicl: Shell, command: Command, server: ChatServer, options: tuple[str, ...]
) -> None:
    """The part of each prompt before the question is compared."""
    dpicl.ok(*command(*options))
    rows: dict[str, set[str]] = {}
    for one in server.asked:
        exemplars, _, question = one.prompt.rstrip().rpartition("\n\n")
        rows.setdefault(question, set()).add(exemplars)
    assert len(rows) == ROWS
    assert all(len(shown) > 5 for shown in rows.values())
    first, *others = rows.values()
    assert all(shown == first for shown in others) == bool(options)


def test_a_damaged_file_is_explained(dpicl: Shell, command: Command, tmp_path: Path) -> None:
    dpicl.ok(*command())
    file = tmp_path / "kept" / "replies.sqlite"
    content = file.read_bytes()
    for damaged, said in (
        (b"replies" * 1000, "file is not a database"),
        (content[: len(content) // 2], "database disk image is malformed"),
    ):
        file.write_bytes(damaged)
        assert f"{file} cannot be used ({said}): delete it" in dpicl.fails(*command())


def test_no_changed_bit_goes_unnoticed(tmp_path: Path) -> None:
    replies = KeptEngine(VllmConfig(name="vllm", model="m"), EMBEDDER, tmp_path)
    said = [0.25, 0.75, "a text"]
    replies.store("key", said)
    with sqlite3.connect(tmp_path / "replies.sqlite") as database:
        (content,) = database.execute("SELECT said FROM replies").fetchone()
        for bit in range(8 * len(content)):
            changed = bytearray(content)
            changed[bit // 8] ^= 1 << bit % 8
            database.execute("UPDATE replies SET said = ?", [bytes(changed)])
            database.commit()
            with contextlib.suppress(OSError):
                assert replies.get("key") == said  # a bit that pads the last byte has no meaning
    replies.close()


def test_what_cannot_be_asked_is_one_line(
    dpicl: Shell, command: Command, server: ChatServer, tmp_path: Path, dataset: Path, plan_file: Path
) -> None:
    server.behaviour = saying("")
    bad = tmp_path / "bad.yaml"
    run = partial(dpicl.fails, "eval", dataset, "--plan", plan_file, "--engine-config", bad)
    for written, said in (
        ("[", "not valid YAML"),
        ("x", "is a mapping"),
        ("{}", "applications: "),
        ("applications: []", "it has 0 applications"),
        ("name: gpt", "engine: Input tag 'gpt'"),
        ("name: vllm", "engine.vllm.model: "),
        ("{name: vllm, model: m, seed: 1}", "engine.vllm.seed: "),
    ):
        bad.write_text(written)
        assert said in run()

    async def wants_a_key(asked: Asked) -> bytes:
        return response(401, "")

    server.behaviour = wants_a_key
    assert "status 401: check --engine-config" in dpicl.fails(*command())

    async def too_long(asked: Asked) -> bytes:
        return response(400, "")

    server.behaviour = too_long
    assert "refuses this question" in dpicl.fails(*command())
    (tmp_path / "odd" / "replies.sqlite").mkdir(parents=True)
    assert "replies.sqlite cannot be used (unable to open" in dpicl.fails(*command("--replies", tmp_path / "odd"))
    (tmp_path / "taken").write_text("")
    assert "taken" in dpicl.fails(*command("--replies", tmp_path / "taken" / "kept"))


STORY = TaskSpec("x.story", (), Prompt("", "{text}: {label}", "{text}:"), kind="generate", candidates=2)
QUERY = {"text": "a toy"}


@pytest.fixture
def kept(tmp_path: Path, server: ChatServer) -> Iterator[tuple[KeptEngine, asyncio.Runner]]:
    config = OpenAiCompatibleConfig(**remote(server))
    with asyncio.Runner() as runner:
        engine = KeptEngine(config, EMBEDDER, tmp_path / "kept")
        yield engine, runner
        engine.close()


def test_sentences_are_kept_and_words_of_which_none_is_made_stay(kept, server: ChatServer) -> None:
    engine, runner = kept

    def made(*words: str) -> str:
        sentence = runner.run(engine.reconstruct(STORY, QUERY, words, True, ZeroShot(texts=("x",))))
        return str(sentence.text)

    server.behaviour = saying("About a kite.")
    assert made("kite", "red") == "About a kite."
    server.behaviour = saying(" ")
    assert made("kite", "blue") == "kite blue"
    asked = len(server.asked)
    server.behaviour = saying("Something else.")
    assert (made("kite", "red"), made("kite", "blue"), len(server.asked)) == ("About a kite.", "kite blue", asked)
    assert made("red", "kite") == "Something else."
    server.behaviour, server.models = saying(" "), response(503, "")
    with pytest.raises(EngineUnavailableError):
        made("a", "server that is down")


def test_texts_are_measured_too(dpicl: Shell, command: Command, server: ChatServer, dataset: Path) -> None:
    """Slots and, afterwards, sentences are asked for on one event loop: the engine's connections belong to it."""
    (dataset / "plan.yaml").write_text(TEXT_PLAN.format(mechanism="type: keyword_joint_em, k: 1", epsilon=8, answers=2))

    async def writing(asked: Asked) -> bytes:
        return completion("a kitchen" if asked.prompt.count("I bought") == 1 else "of kitchen use")

    server.behaviour = writing
    written = "{type: keyword_joint_em, k: 1}"
    rows = json.loads(dpicl.ok(*command("--mechanism", written, ensemble=10)))
    assert [row["method"] for row in rows] == ["zero-shot", "one slot of 3", "aggregate, no noise", "private"]
    asked = len(server.asked)
    again = json.loads(dpicl.ok(*command("--mechanism", "{type: embedding_mean}", "--epsilon", 2, ensemble=10)))
    assert (len(server.asked), again[:2]) == (asked, rows[:2])


def test_answers_with_public_exemplars_only_are_kept_beside_those_without(
    dpicl: Shell, command: Command, server: ChatServer
) -> None:
    """The server knows a kitchen only where it is shown a public exemplar."""

    async def shown(asked: Asked) -> bytes:
        return completion("kitchen" if "I bought a lamp" in asked.prompt else "workshop")

    server.behaviour = shown
    public = [{"text": "I bought a lamp.", "label": "Workshop"}]
    rows = json.loads(dpicl.ok(*command(public_exemplars=public)))
    assert [(row["method"], row["accuracy"]) for row in rows[:2]] == [("zero-shot", 0), ("public exemplars only", 100)]
    bare = [asked.prompt for asked in server.asked if "I bought a lamp" not in asked.prompt]
    assert len(bare) == ROWS
    assert all(prompt.count("I bought") == 1 for prompt in bare)
    asked = len(server.asked)
    again = json.loads(dpicl.ok(*command("--epsilon", 1, public_exemplars=public)))
    assert (len(server.asked), again[: NOISELESS + 1]) == (asked, rows[: NOISELESS + 1])


def test_a_local_model_is_known_by_its_files(tmp_path: Path) -> None:
    """Its path does not matter: a folder that was moved gives the same replies, and one that was changed may not."""
    keys = []
    for number, (weights, name) in enumerate([("w", "a"), ("w", "a"), ("v", "a"), ("w", "b")]):
        folder = tmp_path / str(number)
        (folder / "sub").mkdir(parents=True)
        (folder / "sub" / name).write_text(weights)
        kept = KeptEngine(VllmConfig(name="vllm", model=str(folder)), EMBEDDER, tmp_path / "kept")
        keys.append(kept.key("row"))
        kept.close()
    assert keys[0] == keys[1]
    assert len({*keys}) == 3
