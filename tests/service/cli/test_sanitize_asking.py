"""``dpicl sanitize ask`` over real HTTP: what leaves, what it costs, what comes back."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from sanitization.inference import INSTRUCTION
from service.cli import app
from service.engines.remote.asking import NoReplyError
from tests.documented import DOCS, blocks, run
from tests.sanitization.made_up import letter_words
from tests.service.engines.chat_server import Asked, Behaviour, ChatServer, completion, response, saying

WORDS = letter_words(60)
SECRET = f"{WORDS.words[3]} zebrafish {WORDS.words[20]} of 1999"
DRAWN = 3


@pytest.fixture
def options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Options that keep all files in folders of the test, and a key that only the remote model may see."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    monkeypatch.setenv("DPICL_REMOTE_API_KEY", "remote-key")
    vectors = tmp_path / "glove.txt"
    rows = zip(WORDS.words, WORDS.vectors, strict=True)
    vectors.write_text("".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in rows))
    return ["--vectors", vectors, "--cache", tmp_path, "--model", "far", "--epsilon", 0.01, "--local-model", "near"]


def asked(*args: object, stdin: str = SECRET) -> Any:
    done = CliRunner().invoke(app, ["sanitize", *map(str, args)], input=stdin, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done


def between(remote: Behaviour, local: Behaviour, work: Callable[[str, str], Any]) -> tuple[Any, ChatServer, ChatServer]:
    """Work beside two servers; each records what it is asked."""

    async def run() -> tuple[Any, ChatServer, ChatServer]:
        async with ChatServer(remote) as far, ChatServer(local) as near:
            return await asyncio.to_thread(work, far.url, near.url), far, near

    return asyncio.run(run())


def test_the_text_never_leaves(options: list[object]) -> None:
    """The remote model is sent the instruction with the sanitised text and nothing else, byte for byte."""
    alone = asked("text", *(o for o in options[:4]), "--epsilon", 0.01).stdout.rstrip("\n")
    done, far, near = between(
        saying("They met at noon."),
        saying(" The fish swam. "),
        lambda far, near: asked("ask", "--endpoint", far, "--local-endpoint", near, *options, "--json"),
    )
    answer = json.loads(done.stdout)
    (sent,) = far.asked
    assert sent.prompt == INSTRUCTION.replace("{text}", alone), "the same text as `dpicl sanitize` has for it"
    assert sent.headers["authorization"] == "Bearer remote-key"
    assert not {"zebrafish", "1999"} & set(json.dumps([sent.body, sent.headers]).replace('"', " ").split())
    assert (sent.body["model"], sent.body["temperature"], sent.body["max_tokens"]) == ("far", 0.7, 256)
    (extraction,) = near.asked
    assert f'"Prefix Text": {SECRET}\n' in extraction.prompt
    assert '"Perturbed Generation": They met at noon.\n' in extraction.prompt
    assert "authorization" not in extraction.headers
    assert (answer["text"], answer["generation"]) == ("The fish swam.", "They met at noon.")
    assert answer["sanitized"]["text"] == alone
    assert answer["ledger"]["charged"] == 0, "it was charged when it was sanitised first"


def test_a_repeat_is_free_and_sends_the_same(options: list[object]) -> None:
    def twice(far: str, near: str) -> list[Any]:
        command = ["ask", "--endpoint", far, "--local-endpoint", near, *options, "--json", "--conversation", "today"]
        return [json.loads(asked(*command).stdout)["ledger"] for _ in range(2)]

    (first, second), far, _ = between(saying("x"), saying("y"), twice)
    assert first["charged"] == pytest.approx(DRAWN * 0.01, rel=0.01)
    assert (second["charged"], second["epsilon"]) == (0, first["epsilon"])
    assert far.asked[0].prompt == far.asked[1].prompt


def test_what_a_person_sees(options: list[object], tmp_path: Path) -> None:
    file = tmp_path / "letter.txt"
    file.write_text(f"{SECRET}\nThe second {{text}} line\n")
    instruction = "Summarise: {text} In one line."
    command = ["ask", file, *options, "--instruction", instruction, "--temperature", 0, "--most-tokens", 9]
    done, far, _ = between(
        saying("a"), saying("Fin."), lambda far, near: asked(*command, "--endpoint", far, "--local-endpoint", near)
    )
    assert done.stdout == "Fin.\n"
    assert "New words: " in done.stderr
    assert far.asked[0].prompt.startswith("Summarise: ")
    assert far.asked[0].prompt.endswith(" In one line.")
    assert len(far.asked[0].prompt.split("\n")) == 2
    assert (far.asked[0].body["temperature"], far.asked[0].body["max_tokens"]) == (0, 9)


async def refusing(_: Asked) -> bytes:
    return response(401, json.dumps({"error": SECRET}))


def test_a_model_that_fails_is_an_error_without_the_text(options: list[object]) -> None:
    for remote, local in ((refusing, saying("b")), (saying("a"), refusing)):
        with pytest.raises(NoReplyError, match="401") as refused:
            between(
                remote, local, lambda far, near: asked("ask", "--endpoint", far, "--local-endpoint", near, *options)
            )
        assert "zebrafish" not in str(refused.value)


@pytest.mark.parametrize(
    ("more", "stdin", "said"),
    [
        (["--local-endpoint", "http://192.0.2.1/v1"], SECRET, "must be on this machine"),
        (["--local-model", "no/such/folder"], SECRET, "there is no folder"),
        (["--local-endpoint", "http://127.0.0.1:1/v1"], " \n\n", "blank"),
        (["--local-endpoint", "http://127.0.0.1:1/v1", "--cap", "0.01"], SECRET, "cap of 0.01"),
        (["--local-endpoint", "http://127.0.0.1:1/v1", "--mechanism", "fbdd"], SECRET, "no mechanism"),
        (["--local-endpoint", "http://127.0.0.1:1/v1", "--instruction", "{text}{text}"], SECRET, "once at most"),
        (["--endpoint", "ftp://x"], SECRET, "URL such as"),
    ],
)
def test_what_is_refused_sends_nothing(options: list[object], more: list[str], stdin: str, said: str) -> None:
    def work(far: str, _: str) -> Any:
        command = ["sanitize", "ask", "--endpoint", far, *map(str, options), *more]
        return CliRunner().invoke(app, command, input=stdin)

    done, far, _ = between(saying("x"), saying("y"), work)
    assert done.exit_code != 0
    assert said in " ".join(f"{done.output} {done.exception}".replace("│", " ").split())
    assert not far.asked


async def telling(asked: Asked) -> bytes:
    return completion(asked.prompt)


def test_a_planted_leak_is_found(options: list[object], monkeypatch: pytest.MonkeyPatch) -> None:
    """The same comparison fails where the remote model is sent the text as it was written."""
    monkeypatch.setattr("sanitization.inference.InferDpt.remote_prompt", lambda self, text: SECRET)
    _, far, _ = between(
        telling, telling, lambda far, near: asked("ask", "--endpoint", far, "--local-endpoint", near, *options)
    )
    with pytest.raises(AssertionError):
        assert "zebrafish" not in far.asked[0].prompt


@pytest.mark.lengthy
@pytest.mark.model
def test_the_documented_command_with_smollm2(tmp_path: Path) -> None:
    """As written, but for the address of the remote model."""
    (command,) = (block for block in blocks(DOCS / "sanitization.md", "bash") if "sanitize ask" in block)

    def work(far: str, _: str) -> str:
        exported = "export XDG_STATE_HOME=$PWD/state\n"
        return run(exported + command.replace("http://127.0.0.1:8000/v1", far), tmp_path)

    printed, far, _ = between(saying("He will not give it back."), saying(""), work)
    assert len(printed.split()) > 3
    (sent,) = far.asked
    assert "landlord in Boston" not in sent.prompt
