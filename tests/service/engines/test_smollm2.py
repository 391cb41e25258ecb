"""A language model with trained weights: unpacked from its package, and asked."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from exemplar_store import Exemplar
from service.answering.conversations import Conversation, Turn, as_task
from service.engines.configs import VllmConfig
from service.engines.factory import open_engine
from service.engines.task import Prompt, TaskSpec
from service.engines.vllm.model_folder import model_folder

pytestmark = [pytest.mark.lengthy, pytest.mark.vllm]

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


def test_its_answers_are_those_of_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caches of the machine are empty, and it has no compiler."""
    for cache in ("XDG_CACHE_HOME", "TORCHINDUCTOR_CACHE_DIR"):
        monkeypatch.setenv(cache, str(tmp_path / cache))
    monkeypatch.setenv("CXX", "none")
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
    exact = model_folder("smollm2", exact=True)
    tokenizer = AutoTokenizer.from_pretrained(exact)
    model = AutoModelForCausalLM.from_pretrained(exact, dtype="float32")
    for slot, label in zip(slots, labels, strict=True):
        shown = [f"Review: {one.fields['text']}\nSentiment: {one.fields['mood']}" for one in slot]
        text = "\n\n".join([*shown, f"Review: {QUERY['text']}\nSentiment:"])
        first = [tokenizer.encode(f" {name}")[0] for name in task.labels]
        with torch.no_grad():
            scores = model(torch.tensor([tokenizer.encode(text)])).logits[0, -1, first].double()
        assert label == pytest.approx(torch.softmax(scores, 0).numpy(), abs=1e-3)
