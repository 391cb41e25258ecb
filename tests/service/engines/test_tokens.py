from __future__ import annotations

from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, trainers
from transformers import AutoTokenizer, PreTrainedTokenizerFast

from examples.tiny_model import make_tiny_model
from service.engines.prompts import around_answer
from service.engines.protocol import Prompt, TaskSpec
from service.engines.vllm.tokens import Tokenization

PROMPT = Prompt("Which?", "Ticket: {text}\nTeam: {team}", "Ticket: {text}\nTeam:")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_tiny_model(tmp_path_factory.mktemp("model"), chat=True)


@pytest.mark.parametrize(
    ("exemplar", "query", "expected"),
    [
        ("Q: {text}\nA: {label}", "Q: {text}\nA:", ("\nA:", " ", "")),
        ("Q: {text}\nA: {label}", "Q: {text}\nA: ", ("\nA:", " ", "")),
        ("Q: {text}\nA: {label}.\n---", "Q: {text}\nA:", ("\nA:", " ", ".\n---")),
        ("Q: {text}\nA:\n{label}", "Q: {text}\nA:", ("\nA:", "\n", "")),
        ("Q: {text}\n<answer>{label}</answer>", "Q: {text}\n<answer>", ("\n<answer>", "", "</answer>")),
        ("{label} <- {text}", "{text}", ("", "", " <- ")),
        ("{text} => {label}", "Text: {text}. Label:", (". Label:", " ", "")),
        ("Say {{x}}: {text} is {label}", "Say {{x}}: {text} is", (" is", " ", "")),
    ],
)
def test_an_answer_follows_the_query_as_it_does_in_exemplars(exemplar, query, expected):
    assert around_answer(Prompt("", exemplar, query), "label") == expected


def test_a_chat_template_is_applied_once(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = Tokenization(tokenizer, None, {})
    assert tokens.chat
    messages = [{"role": "user", "content": "One two"}]
    (prompt,) = tokens.prompts(["One two"])
    assert prompt == tokenizer.apply_chat_template(messages, add_generation_prompt=True, return_dict=False)
    assert tokenizer.decode(prompt) == "<|user|>\nOne two<|end|>\n<|assistant|>\n"
    assert tokens.labels(["Keys"], PROMPT, "team") == [tokenizer.encode("Keys", add_special_tokens=False)]
    assert tokens.stops(TaskSpec("a.b", (), PROMPT, "team")) == []
    assert tokens.prompts([]) == []


def test_a_chat_template_gets_its_arguments(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokenizer.chat_template = "{{ messages[0].content }}{% if thinking %} hm{% endif %}"
    assert tokenizer.decode(Tokenization(tokenizer, True, {"thinking": True}).prompts(["One"])[0]) == "One hm"


def test_a_model_without_a_template_continues_the_text(folder):
    tokenizer = AutoTokenizer.from_pretrained(folder)
    tokens = Tokenization(tokenizer, False, {})
    (prompt,) = tokens.prompts(["Ticket: lamp\nTeam: "])
    assert prompt == tokenizer.encode("Ticket: lamp\nTeam:")
    whole = tokenizer.encode("Ticket: lamp\nTeam: Greenhouse")
    assert [*prompt, *tokens.labels(["Greenhouse"], PROMPT, "team")[0]] == whole
    assert tokens.stops(TaskSpec("a.b", (), PROMPT, "team")) == ["\n\n"]
    assert tokens.stops(TaskSpec("a.b", (), Prompt("", "{team}\n--", "{text}"), "team")) == ["\n\n", "\n--"]
    tokenizer.chat_template = None
    assert not Tokenization(tokenizer, None, {}).chat
    with pytest.raises(ValueError, match="no chat template"):
        Tokenization(tokenizer, True, {})


def test_a_tokenizer_that_marks_the_beginning_of_a_text():
    """As SentencePiece's do: a label's tokens are not those of the label as a text of its own."""
    tokenizer = Tokenizer(models.BPE(unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first")
    texts = ["Ticket: lamp Team: Keys", "Keys", "Team: Keys"] * 9
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=200, special_tokens=["<unk>"]))
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, unk_token="<unk>", eos_token="<unk>")
    prompt = Prompt("", "Ticket: {text} Team: <{team}>", "Ticket: {text} Team: <")
    tokens = Tokenization(fast, False, {})
    (label,) = tokens.labels(["Keys"], prompt, "team")
    assert label != fast.encode("Keys")
    assert fast.encode("Ticket: lamp Team: <Keys") == [*tokens.prompts(["Ticket: lamp Team: <"])[0], *label]
