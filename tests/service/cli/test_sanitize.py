"""``dpicl sanitize``, and its page of the documentation."""

import io
import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from service.cli import app, main
from service.engines.embedding.embedder import Embedder
from service.engines.embedding.model import EmbeddingModelError
from service.engines.embedding.words import SHIPPED, local_words, minilm_words
from tests.documented import DOCS, blocks, run
from tests.sanitization.causal import llama  # noqa: F401  (fixture)
from tests.sanitization.made_up import letter_words

pytestmark = pytest.mark.model


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def glove(tmp_path_factory: pytest.TempPathFactory) -> Path:
    words = letter_words(60)
    file = tmp_path_factory.mktemp("vectors") / "glove.txt"
    file.write_text("".join(f"{w} {' '.join(map(str, v))}\n" for w, v in zip(words.words, words.vectors, strict=True)))
    return file


def printed(*args: object, stdin: str | bytes | None = None) -> list[str]:
    done = CliRunner().invoke(app, ["sanitize", *map(str, args)], input=stdin, catch_exceptions=False)
    assert done.exit_code == 0, done.output
    return done.stdout_bytes.decode().split("\n")


@pytest.fixture
def texts(glove: Path, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Options that keep all files of ``dpicl sanitize`` in folders of the tests."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return ["--vectors", glove, "--cache", cache]


def test_a_file_line_by_line(texts: list[object], tmp_path: Path) -> None:
    file = tmp_path / "questions.txt"
    file.write_bytes(b"The bcd, of 1999!\n\nbcf caf\xe9 bcf\r\nThe bcd, of 1999!")
    first = printed(file, *texts)
    assert re.fullmatch(r"The \w{3}, of \d+!", first[0])
    assert (first[1], first[3:]) == ("", [first[0], ""])
    assert re.fullmatch(r"\w{3} \w{3} \w{3}\r", first[2])
    assert printed(file, *texts) == first == printed("text", *texts, stdin=file.read_bytes())
    other = printed(file, *texts, "--epsilon", 1)
    assert re.fullmatch(r"The \w{3}, of \d+!", other[0])


def test_json(texts: list[object]) -> None:
    options = [*texts, "--conversation", "today", "--keep", "", "--epsilon", 2]
    said = json.loads("".join(printed(*options, "--json", stdin="The bcd, of 1999!\nbcf\nbcf\n")))
    epsilon = said["artifact"]["audit"]["epsilon"]
    assert 1.99 < epsilon <= 2
    assert [item["tokens"] for item in said["items"]] == [6, 1, 1]
    assert [item["epsilon_text"] for item in said["items"]] == pytest.approx([5 * epsilon, epsilon, epsilon])
    assert said["ledger"]["charged"] == said["ledger"]["epsilon"] == pytest.approx(6 * epsilon)
    assert "punctuation" not in said["released_as_public"]
    lines = printed(*options, "--jsonl", stdin="The bcd, of 1999!\nbcf\n")
    assert [json.loads(line) for line in lines[:-1]] == said["items"][:2]


def test_whole_texts(texts: list[object], tmp_path: Path) -> None:
    file = tmp_path / "public.txt"
    public = ["Can I keep a cat?", "Who pays for repairs?", "When is the rent due?", "How do I give notice?"]
    file.write_text("\n\n".join([*public, public[0]]))
    options = ["--public-texts", file, "--epsilon", 25, "--cache", tmp_path]
    asked = "Is a landlord liable for repairs?\n\nIs a landlord liable for repairs?\n"
    first, empty, again, end = printed(*options, stdin=asked)
    assert first == again == public[1], "another with a chance below 1e-10"
    assert (empty in public, end) == (True, "")
    said = json.loads("".join(printed(*options, "--json", stdin=asked)))
    assert [item["epsilon_text"] for item in said["items"]] == pytest.approx([25] * 3)
    assert said["ledger"]["epsilon"] == pytest.approx(50)
    assert said["artifact"]["parameters"] == "4 of 4 public texts"
    assert printed(*options, "--mechanism", "whole_rr", stdin=asked)[0] == first
    for refused in ([*options, "--mechanism", "medoid_rr"], ["--mechanism", "whole_rr"], [*options, *texts]):
        done = CliRunner().invoke(app, ["sanitize", "text", *map(str, refused)])
        assert (done.exit_code, done.stdout) == (2, "")


def test_in_context(texts: list[object], llama: Path) -> None:  # noqa: F811
    options = [*texts, "--context-model", llama]
    asked = "The bcd, of 1999!\nbcf bcf\n"
    first, second, _ = printed(*options, "--epsilon", 25, stdin=asked)
    assert re.fullmatch(r"The \w{3}, of \d+!", first)
    assert printed(*options, "--epsilon", 25, stdin=asked)[:2] == [first, second], "remembered"
    said = json.loads("".join(printed(*options, "--logit-power", 1, "--buckets", 20, "--json", stdin=asked)))
    artifact = said["artifact"]
    assert artifact["mechanism"] == "cape"
    assert artifact["parameters"].startswith("λ_L 1, λ_D 1, 20 buckets, nominal ")
    assert 7.99 < artifact["audit"]["epsilon"] <= 8
    assert [item["epsilon_text"] for item in said["items"]] == pytest.approx([8, 16], abs=1e-3)
    assert "reads only what is released" in said["guarantee"]


def test_lines_come_out_as_they_go_in(texts: list[object]) -> None:
    command = [sys.executable, "-c", "from service.cli import main; main()", "sanitize", *map(str, texts)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as running:
        assert running.stdin is not None
        assert running.stdout is not None
        for line in (b"the bcd!\n", b"bcf and\n"):
            running.stdin.write(line)
            running.stdin.flush()
            assert len(running.stdout.readline()) == len(line)
        running.stdin.close()
        assert running.wait(60) == 0


@pytest.mark.parametrize(
    "options",
    [
        ["--context-model", ".", "--mechanism", "medoid_rr"],
        ["--context-model", ".", "--buckets", "20", "--buckets", "50"],
        ["--logit-power", "1"],
        ["--mechanism", "medoid_rr", "--buckets", "20"],
    ],
)
def test_a_context_is_for_cape(options: list[str]) -> None:
    done = CliRunner().invoke(app, ["sanitize", "text", *options], input="bcd")
    assert (done.exit_code, done.stdout) == (2, "")
    assert "--context-model" in done.output


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (["--epsilon", "26"], "from 0.001 to 25"),
        (["--keep", "names"], "'names' cannot be kept"),
        (["--keep", "case", "--mechanism", "whole_rr"], "keep nothing"),
        (["--mechanism", "rot13"], "no mechanism 'rot13'"),
        (["--context-model", "/"], "/ holds no model"),
        (["--cap", "15"], "the cap of 15"),
        (["My flat"], "no file My flat"),
    ],
)
def test_a_refusal_explains_itself(options: list[str], said: str, texts: list[object], monkeypatch, capfd) -> None:
    monkeypatch.setattr(sys, "argv", ["dpicl", "sanitize", *map(str, texts), *options])
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(b"bcd bcf\n")))
    with pytest.raises(SystemExit, match="1"):
        main()
    out, err = capfd.readouterr()
    assert said in err
    assert out == ""


def test_only_the_user_can_read_its_secret(texts: list[object], tmp_path: Path) -> None:
    printed(*texts, stdin="bcd")
    key = tmp_path / "state" / "dpicl" / "texts.key"
    assert len(key.read_bytes()) == 32
    assert key.stat().st_mode & 0o777 == 0o600
    assert key.parent.stat().st_mode & 0o777 == 0o700


def test_a_ledger_without_its_key_or_of_another_format_is_refused(texts: list[object], tmp_path: Path) -> None:
    """With another key, it would draw the same texts a second time, and the draws add up."""
    printed(*texts, "--ledger", tmp_path / "mine.sqlite", stdin="bcd")
    (tmp_path / "mine.key").unlink()
    (tmp_path / "other.sqlite").write_text("no database")
    for file, said in (("mine", "mine.key"), ("other", "not a ledger")):
        with pytest.raises(ValueError, match=said):
            printed(*texts, "--ledger", tmp_path / f"{file}.sqlite", stdin="bcd")
        assert not (tmp_path / f"{file}.key").exists()


def never(_: object) -> np.ndarray:
    pytest.fail("embedded again")


def test_the_built_in_words_are_embedded_once(cache: Path) -> None:
    words = minilm_words(60, cache)
    assert words.words[:3] == ("the", "of", "and")
    np.testing.assert_allclose(np.linalg.norm(words.vectors, axis=1), 1, atol=1e-6)
    assert minilm_words(60, cache, never).digest == words.digest
    assert minilm_words(59, cache).words == words.words[:59]


def test_the_words_that_come_with_the_package_are_minilms(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shipped = local_words(SHIPPED, Path())
    assert shipped.words == minilm_words(SHIPPED, cache, lambda _: shipped.vectors).words
    embedded = Embedder().embed_many(shipped.words[::10])
    np.testing.assert_allclose(shipped.vectors[::10], embedded, atol=2e-4)
    monkeypatch.setenv("DPICL_EMBEDDING_MODEL", str(cache))
    with pytest.raises(EmbeddingModelError, match="no weights"):  # another model, whose words are not here
        local_words(60, cache)


@pytest.mark.lengthy
def test_the_documentation_runs_as_written(tmp_path: Path) -> None:
    page = DOCS / "sanitization.md"
    examples = sorted((DOCS.parent / "examples" / "sanitising").glob("*.py"))
    shown = [block for block in blocks(page, "sh") if "smollm2" not in block]
    commands = "".join([*shown, *(f"python {example}\n" for example in examples)])
    assert "sanitize audit" in commands
    assert "| dpicl sanitize\n" in commands
    assert "sanitize attack" in commands
    printed = run(f"export COLUMNS=80 XDG_CACHE_HOME=$PWD/cache XDG_STATE_HOME=$PWD/state\n{commands}", tmp_path)
    assert re.search(r"rantext +│ 6 +│ 6 +│ infinite", printed)
    assert re.search(r"medoid_rr +│ \d+ medoids +│ 8\.00000", printed)
    assert re.search(r"│ santext_plus +│ 0\.\d\d +│", printed), "not cut off on a usual terminal"
    assert re.search(r"^Write to ann@example\.org\. \(ε = 24\.00\)", printed, re.MULTILINE)
    assert re.search(r"^I live in (Boston|Paris|Tokyo)\.$", printed, re.MULTILINE)


@pytest.mark.vllm
@pytest.mark.lengthy
def test_the_documented_context_runs_as_written(tmp_path: Path) -> None:
    (command,) = (block for block in blocks(DOCS / "sanitization.md", "sh") if "smollm2" in block)
    printed = run(f"export XDG_CACHE_HOME=$PWD/cache XDG_STATE_HOME=$PWD/state\n{command}", tmp_path)
    assert re.fullmatch(r"My \S+ in \S+ \S+ the \S+ of [\d,]+ \S+\.\n", printed)
