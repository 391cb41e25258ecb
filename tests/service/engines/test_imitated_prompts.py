"""A base model without a chat template that goes on with the prompt instead of ending: a real one, trained to do so."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from examples.tiny_model import make_tiny_model
from exemplar_store import Exemplar
from service.engines.prompts import render, render_keywords
from service.engines.task import Prompt, TaskSpec
from tests.service.engines.test_vllm import Running

pytestmark = [pytest.mark.vllm, pytest.mark.lengthy]

PROMPT = Prompt("Answer.", "Ticket: {text}\nReply: {reply}", "Ticket: {text}\nReply:")
TASK = TaskSpec("support.reply@1", (), PROMPT, "reply", kind="generate", candidates=1, knowledge_base="support")
QUERY = {"text": "The lamp is broken."}
SLOT = (Exemplar({"text": "The pump is broken.", "reply": "We send a pump."}, None),)
WORDS = ["lamp", "send"]
GOES_ON = " We send a lamp.\nTicket: The pot is broken.\nReply: We send a pot.\nWord suggestions: pot\nReply: A pot."


def imitate(folder: Path) -> None:
    """Train the model to go on with the prompt, whatever it is asked."""
    tokenizer, model = AutoTokenizer.from_pretrained(folder), AutoModelForCausalLM.from_pretrained(folder)
    asked = [render(PROMPT, QUERY), render(PROMPT, QUERY, SLOT), render_keywords(PROMPT, QUERY, WORDS, ordered=True)]
    texts = [torch.tensor([tokenizer.encode(prompt + GOES_ON)]) for prompt in asked]
    optimizer = torch.optim.AdamW(model.parameters(), 3e-3)
    for _ in range(60):
        for ids in texts:
            model(ids, labels=ids).loss.backward()
            optimizer.step()
            optimizer.zero_grad()
    model.save_pretrained(folder)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    folder = make_tiny_model(tmp_path_factory.mktemp("model"))
    imitate(folder)
    running = Running(folder, max_model_len=512, max_answer_tokens=60)
    yield running
    running.engine.close()
    running.loop.close()


def test_no_text_goes_on_with_the_prompt(running: Running) -> None:
    with running.watched() as prompts:
        zero_shot = running.zero_shot(TASK, QUERY)
        slots = running.ask(TASK, [SLOT], QUERY)
        sentence = running.run(running.engine.reconstruct(TASK, QUERY, WORDS, True, zero_shot)).text
    assert zero_shot.texts == ("We send a lamp.",)
    assert slots == ["We send a lamp."]
    assert sentence == "We send a lamp."
    assert all(len(asked.outputs[0].token_ids) < 30 for _, asked in prompts)  # what is cut is not even written


def test_the_model_would_go_on(running: Running) -> None:
    tokenizer = AutoTokenizer.from_pretrained(running.folder)
    model = AutoModelForCausalLM.from_pretrained(running.folder)
    ids = torch.tensor([tokenizer.encode(render_keywords(PROMPT, QUERY, WORDS, ordered=True))])
    written = tokenizer.decode(
        model.generate(ids, max_new_tokens=60, do_sample=False, pad_token_id=0)[0, ids.shape[1] :]
    )
    assert "\nWord suggestions:" in written
    assert "\nReply:" in written
