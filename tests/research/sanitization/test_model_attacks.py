"""Attackers with a model: a tiny real BERT, and an endpoint over real HTTP."""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import BertConfig, BertForMaskedLM, PreTrainedTokenizerFast
from typer.testing import CliRunner

from research.sanitization.masked_attack import MaskedModel
from sanitization.tokens import Partition
from service.cli import app
from service.engines.remote.asking import NoReplyError
from tests.sanitization.made_up import letter_words
from tests.service.engines.chat_server import Asked, Behaviour, ChatServer, completion, response

pytestmark = pytest.mark.model

WORDS = letter_words(60)
COMMON = WORDS.words[7]
TEXTS = [f"The {COMMON} and {WORDS.words[at + 8]}, {COMMON} {WORDS.words[at + 28]} unheard 1." for at in range(20)]


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model with random weights, whose output depends on all of its input."""
    pieces = ["[PAD]", "[UNK]", "[MASK]", ",", ".", *WORDS.words]
    tokenizer = Tokenizer(models.WordLevel({piece: at for at, piece in enumerate(pieces)}, "[UNK]"))
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    special = {"pad_token": "[PAD]", "unk_token": "[UNK]", "mask_token": "[MASK]"}
    config = BertConfig(
        vocab_size=len(pieces),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=64,
        max_position_embeddings=200,
        initializer_range=1.0,
    )
    torch.manual_seed(0)
    folder = tmp_path_factory.mktemp("bert")
    BertForMaskedLM(config).save_pretrained(folder)
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **special).save_pretrained(folder)
    return folder


@pytest.fixture(scope="module")
def single_minded(bert: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that always guesses one word."""
    folder = tmp_path_factory.mktemp("single")
    model = BertForMaskedLM.from_pretrained(bert)
    model.cls.predictions.bias.data[5 + 7] = 1e6
    model.save_pretrained(folder)
    PreTrainedTokenizerFast.from_pretrained(bert).save_pretrained(folder)
    return folder


@pytest.fixture
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., dict[str, Any]]:
    folder = tmp_path_factory.mktemp("attacked")
    vectors, texts = folder / "glove.txt", folder / "texts.jsonl"
    rows = zip(WORDS.words, WORDS.vectors, strict=True)
    vectors.write_text("".join(f"{word} {' '.join(map(str, vector))}\n" for word, vector in rows))
    texts.write_text("".join(json.dumps({"text": text}) + "\n" for text in [*TEXTS, *TEXTS]))

    def attack(*options: object) -> dict[str, Any]:
        common = ["--texts", texts, "--vectors", vectors, "--cache", folder, "--mechanism", "medoid_rr", "--json"]
        done = CliRunner().invoke(app, ["sanitize", "attack", *map(str, [*common, *options])], catch_exceptions=False)
        assert done.exit_code == 0, done.output
        return json.loads(done.stdout)["attacks"][0]

    return attack


def test_a_guess_depends_on_all_but_the_word(bert: Path) -> None:
    model, partition = MaskedModel(bert), Partition(["punctuation", "stopwords"])
    texts = [partition.tokens(f"{WORDS.words[0]} and {word}, 7")[0] for word in WORDS.words]
    guesses = model(texts)
    assert [guess is None for guess in guesses[0]] == [False, True, False, True, True]
    assert len({first for first, *_ in guesses}) > 3, "of the first word, from the second"
    assert len({second for _, _, second, *_ in guesses}) == 1, "of the second, which was masked"


def test_long_texts(bert: Path) -> None:
    """Texts are longer than the model takes, and words of a text are in several batches."""
    tokens, _ = Partition().tokens(" ".join(WORDS.words * 5))
    (guesses,) = MaskedModel(bert)([tokens])
    assert None not in guesses
    assert len(set(guesses)) > 5
    (around,) = MaskedModel(bert)([tokens[130 - 64 : 130 + 65]])
    assert around[64] == guesses[130]


def test_a_masked_model_by_path(attacked: Callable[..., dict[str, Any]], single_minded: Path) -> None:
    found = attacked("--masked-model", single_minded, "--epsilon", 1)["models"]["masked model"]
    share = sum(text.split().count(COMMON) for text in TEXTS) / 80  # of four known words a text
    assert found["right"]["value"] == pytest.approx(share)
    assert found["answered"]["value"] == 1


def test_a_model_without_a_mask_is_refused(bert: Path, tmp_path: Path) -> None:
    PreTrainedTokenizerFast(tokenizer_file=str(bert / "tokenizer.json")).save_pretrained(tmp_path)
    with pytest.raises(ValueError, match="mask"):
        MaskedModel(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ValueError, match="empty"):
        MaskedModel(tmp_path / "empty")


def inputs(asked: Asked) -> list[str]:
    return json.loads(asked.prompt.rsplit("Items: ", 1)[1])


async def echoing(asked: Asked) -> bytes:
    """A reply as in the paper's example, comments included, which guesses that each word is the original."""
    lines = ",\n".join(f"[{json.dumps(word)}] # Corresponding to {json.dumps(word)}" for word in inputs(asked))
    return completion(f"Sure!\n```\n[{lines}]\n```")


async def short(asked: Asked) -> bytes:
    return completion(json.dumps([[word] for word in inputs(asked)[1:]]))


async def refusing(_: Asked) -> bytes:
    return response(401, "{}")


def serve(behaviour: Behaviour, attack: Callable[[str], dict[str, Any]]) -> tuple[dict[str, Any], list[Asked]]:
    async def run() -> tuple[dict[str, Any], list[Asked]]:
        async with ChatServer(behaviour) as server:
            return (await asyncio.to_thread(attack, server.url))["models"]["chat model"], server.asked

    return asyncio.run(run())


def test_a_chat_model_over_http(attacked: Callable[..., dict[str, Any]]) -> None:
    found, asked = serve(echoing, lambda url: attacked("--endpoint", url, "--model", "m", "--epsilon", 25))
    assert found["right"]["value"] == found["answered"]["value"] == 1
    assert {one.body["model"] for one in asked} == {"m"}
    found, asked = serve(echoing, lambda url: attacked("--endpoint", url, "--model", "m", "--epsilon", 0.001))
    assert len(asked) == len(TEXTS)
    # What is sent is sanitised: a word is kept with a chance of 1/2 at most, all 80 with one below 1e-20.
    assert found["right"]["value"] < 1
    sent = [inputs(one) for one in asked]
    assert all(len(words) == 10 for words in sent)
    assert "unheard" not in {word for words in sent for word in words}


def test_a_reply_of_another_length_is_not_a_guess(attacked: Callable[..., dict[str, Any]]) -> None:
    found, _ = serve(short, lambda url: attacked("--endpoint", url, "--model", "m"))
    assert found["right"]["value"] == found["answered"]["value"] == 0


def test_an_endpoint_that_fails_is_an_error(attacked: Callable[..., dict[str, Any]]) -> None:
    with pytest.raises(NoReplyError, match="401"):
        serve(refusing, lambda url: attacked("--endpoint", url, "--model", "m"))


def test_models_need_texts(bert: Path) -> None:
    done = CliRunner().invoke(app, ["sanitize", "attack", "--masked-model", str(bert)])
    assert done.exit_code == 2
    assert "need --texts" in done.output
