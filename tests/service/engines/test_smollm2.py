"""A language model that means something: unpacked from its package, and asked."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoTokenizer

from exemplar_store import Exemplar
from service.answering.conversations import Conversation, Turn, as_task
from service.engines.configs import VllmConfig
from service.engines.factory import open_engine
from service.engines.task import Prompt, TaskSpec
from service.engines.vllm import memory, model_folder
from tests.service.engines.test_model_folder import refusal

pytestmark = [pytest.mark.lengthy, pytest.mark.vllm]

CODE = "from service.engines.vllm.model_folder import model_folder; print(model_folder('smollm2'))"
ROOT = Path(__file__).parents[3]
REVIEWS = [
    ("A joy from beginning to end.", "positive"),
    ("Two hours I will never get back.", "negative"),
    ("The best film of the year.", "positive"),
    ("Dull, loud and far too long.", "negative"),
]
CONVERSATION = Conversation(
    (
        Turn("user", "What is the capital of France?"),
        Turn("assistant", "Paris"),
        Turn("user", "How many people live there?"),
    )
)
QUERY = {"text": "I loved every minute of it."}


@pytest.fixture(scope="module", autouse=True)
def machine(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """One with empty caches, and without a compiler."""
    with pytest.MonkeyPatch.context() as environment:
        for cache in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"):
            environment.setenv(cache, str(tmp_path_factory.mktemp("cache")))
        environment.setenv("CXX", "none")
        yield


@pytest.fixture(scope="module")
def folder() -> Path:
    """Made by two processes that begin at the same time."""
    both = [subprocess.Popen([sys.executable, "-c", CODE], stdout=subprocess.PIPE, text=True, cwd=ROOT) for _ in "12"]
    first, second = (process.communicate(timeout=600)[0].strip() for process in both)
    assert first == second
    return Path(first)


@pytest.fixture(scope="module")
def exact() -> Path:
    return Path(model_folder.model_folder("smollm2", exact=True))


def test_it_is_unpacked_once(folder: Path) -> None:
    before = (folder / "model.safetensors").stat()
    assert model_folder.model_folder("smollm2") == str(folder)
    assert (folder / "model.safetensors").stat() == before
    assert {folder.name, f"{folder.name}.lock"} <= {one.name for one in folder.parent.iterdir()}
    assert not list(folder.parent.glob("*.partial"))


def test_integers_are_what_the_weights_are_rounded_to(folder: Path, exact: Path) -> None:
    if not torch.cpu.get_capabilities().get("avx512_vnni"):
        assert folder == exact
        return
    rounded, weights = (load_file(one / "model.safetensors") for one in (folder, exact))
    scaled = [name for name in rounded if name.endswith("_scale")]
    assert len(scaled) == 7 * 30
    for name, weight in weights.items():
        scale = rounded.get(f"{name}_scale")
        if scale is None:
            assert torch.equal(rounded[name], weight)
        else:
            assert ((rounded[name] * scale - weight.float()).abs() <= 0.5001 * scale).all(), name


def test_its_answers_are_those_of_transformers(exact: Path) -> None:
    config = VllmConfig(
        name="vllm", model="smollm2", dtype="float32", max_model_len=1024, kv_cache_gib=1, timeout_s=600
    )
    engine = open_engine(config, None)  # type: ignore[arg-type]
    prompt = Prompt("", "Review: {text}\nSentiment: {mood}", "Review: {text}\nSentiment:")
    task = TaskSpec("films.mood@1", ("positive", "negative"), prompt, "mood", knowledge_base="films")
    slots = [tuple(Exemplar({"text": text, "mood": mood}, None) for text, mood in REVIEWS[at:]) for at in range(3)]
    capital = Prompt("", "{text}\n{reply}", "{text}")
    question = TaskSpec(
        "places.capital@1", (), capital, "reply", kind="generate", candidates=1, knowledge_base="places"
    )

    async def ask():
        info = await engine.describe()
        zero_shot = await engine.zero_shot(task, QUERY)
        labels = await engine.contributions(task, QUERY, slots, zero_shot)
        said = await engine.zero_shot(question, {"text": "What is the capital of France?"})
        rewritten = [await engine.zero_shot(*as_task("places.capital@1", CONVERSATION, "")) for _ in "12"]
        return info, labels, said, rewritten

    try:
        info, labels, said, rewritten = asyncio.run(ask())
    finally:
        engine.close()
    assert info.notice == "Answers come from the language model SmolLM2-135M-Instruct."
    assert "Paris" in said.texts[0]
    assert rewritten[0] == rewritten[1]
    assert rewritten[0].texts
    assert not rewritten[0].cut
    tokenizer = AutoTokenizer.from_pretrained(exact)
    model = AutoModelForCausalLM.from_pretrained(exact, dtype="float32")
    for slot, label in zip(slots, labels, strict=True):
        shown = [f"Review: {one.fields['text']}\nSentiment: {one.fields['mood']}" for one in slot]
        text = "\n\n".join([*shown, f"Review: {QUERY['text']}\nSentiment:"])
        first = [tokenizer.encode(f" {name}")[0] for name in task.labels]
        with torch.no_grad():
            scores = model(torch.tensor([tokenizer.encode(text)])).logits[0, -1, first].double()
        assert label == pytest.approx(torch.softmax(scores, 0).numpy(), abs=1e-3)


def test_a_damaged_file_in_the_cache_is_noticed(folder: Path) -> None:
    weights = folder / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1000] ^= 1
    weights.write_bytes(content)
    assert refusal("smollm2") == f"{folder} is damaged: delete it, and it is made again"
    (folder / "sha256").unlink()
    assert "delete it" in refusal("smollm2")
    shutil.rmtree(folder)


def test_a_file_may_want_a_token_before_each_text(tmp_path: Path) -> None:
    content = bytearray(model_folder._packaged_file(*model_folder._PACKAGED["smollm2"]).read_bytes())
    content[content.index(b"add_bos_token") + len(b"add_bos_token") + 4] = True  # behind its type
    (tmp_path / "wants.gguf").write_bytes(content)
    tokenizer = AutoTokenizer.from_pretrained(model_folder.model_folder(str(tmp_path / "wants.gguf")))
    assert tokenizer.encode("Yes")[:-1] == [tokenizer.bos_token_id]


def test_files_that_are_no_models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    packaged = model_folder._packaged_file(*model_folder._PACKAGED["smollm2"])
    with packaged.open("rb") as file:
        beginning = file.read(30_000_000)
    given = tmp_path / "mine.gguf"
    for content in (b"", b"Dear model,", beginning):
        given.write_bytes(content)
        assert f"{given} is damaged, or no model that transformers reads" in refusal(given)
    (limit := tmp_path / "memory.max").write_text("100000000")
    monkeypatch.setattr(memory, "_LIMIT", limit)
    assert f"too little memory to unpack {packaged}: it takes 0.5 GiB, and 0.1 are left" == refusal("smollm2")


def test_too_little_room_leaves_nothing_behind(tmp_path: Path) -> None:
    limited = f"import resource; resource.setrlimit(resource.RLIMIT_FSIZE, (10**7, 10**7)); {CODE}"
    environment = {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, "-c", limited], capture_output=True, text=True, timeout=600, env=environment)
    assert "cannot be unpacked" in done.stderr
    assert "File too large" in done.stderr
    (left,) = (file.name for file in tmp_path.rglob("*") if file.is_file())
    assert left.startswith("SmolLM2-135M-Instruct")
    assert left.endswith(".lock")
