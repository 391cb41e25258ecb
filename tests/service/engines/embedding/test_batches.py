"""Embeddings of uploads: the same bits wherever a text stands in a batch, and whatever stands beside it."""

import json
import logging
import random
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

import numpy as np
import pytest
import torch
from torch.nn.functional import normalize

from service.engines.embedding import batches
from service.engines.embedding.batches import ROWS, SHAPES, FixedBatches, PaddedModel, embeds_alike
from service.engines.embedding.embedder import Embedder
from tests.service.engines.embedding.test_embedding import TEXTS, TICKETS, operations, tiny_model

pytestmark = [pytest.mark.model, pytest.mark.lengthy]

WORDS = ["the", "engine", "is", "loud", "all", "night", "and", "my", "letter", "late", "again", "please", "send", "two"]
"""Words of one piece each."""
ENDS = 2  # pieces that begin and end every text


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module")
def embedder() -> Embedder:
    return Embedder()


def of_pieces(pieces: int, shuffled: random.Random) -> str:
    """A text with the given number of pieces, its ends included."""
    return " ".join(shuffled.choices(WORDS, k=pieces - ENDS))


def differing_places(embed: Callable[[Sequence[str]], np.ndarray], pieces: int, seed: int) -> set[int]:
    """The places of a batch at which a text has other bits than it had beside padding rows only.

    Texts of the least and the greatest length, and one between, go to every place. Their companions are each other,
    texts of any length, and padding rows.
    """
    shuffled = random.Random(seed)
    shortest = max([ENDS, *(shape for shape in SHAPES if shape < pieces)])
    lengths = (shortest, shuffled.randint(shortest, pieces - 1), pieces - 1)
    texts = [of_pieces(length, shuffled) for length in lengths]
    expected = [embed([text])[0].tobytes() for text in texts]
    different = set[int]()
    for turn in range(4):
        beside = ["" if one < ENDS else of_pieces(one, shuffled) for one in shuffled.choices(range(pieces), k=ROWS)]
        stands = {row: (row + turn) % 4 for row in range(ROWS) if (row + turn) % 4 < 3}
        vectors = embed([texts[stands[row]] if row in stands else beside[row] for row in range(ROWS)])
        different |= {row for row, text in stands.items() if vectors[row].tobytes() != expected[text]}
    return different


@pytest.mark.parametrize(
    ("pieces", "threads"), [*((shape, 1) for shape in SHAPES), *((shape, 2) for shape in SHAPES[:5])]
)
def test_every_place_gives_the_same_bits(embedder, pieces, threads):
    """Each thread embeds the texts beside other companions."""
    model = PaddedModel(embedder._whole, pieces)
    with ThreadPoolExecutor(threads, initializer=torch.set_num_threads, initargs=(1,)) as pool:
        found = pool.map(lambda seed: differing_places(model.embed, pieces, seed), range(threads))
        assert list(found) == [set()] * threads


def unpadded(model: PaddedModel) -> Callable[[Sequence[str]], np.ndarray]:
    """Batches of any size, padded to their longest text."""
    within = model._model

    def embed(texts: Sequence[str]) -> np.ndarray:
        with torch.inference_mode():
            vectors = within(within.preprocess(list(texts)))["sentence_embedding"]
            return normalize(vectors, p=2, dim=1).numpy()

    return embed


def test_batches_of_varying_shape_are_caught(embedder):
    """The property above catches them, and so does the trial that every process makes: at which lengths, varies."""
    models = [PaddedModel(embedder._whole, pieces) for pieces in (48, 96, 128)]
    assert any(differing_places(unpadded(model), model.pieces, seed) for model in models for seed in range(8))
    for model in models:
        model.embed = unpadded(model)
    assert not all(map(embeds_alike, models))


def test_every_batch_takes_the_same_operations(embedder):
    """The shapes are equal, too. One more piece pads every row, since attention takes another path without padding."""
    model, shuffled = PaddedModel(embedder._whole, 32), random.Random(1)
    full = [of_pieces(31, shuffled) for _ in range(ROWS)]
    expected = operations(model.embed, [""])
    assert sum(name == "aten.linear.default" for name, _ in expected) >= 36
    for texts in (full, full[:15], ["a"] * ROWS, ["word " * 99]):
        assert operations(model.embed, texts) == expected
    assert operations(model.rows, full[:15]) != expected
    cut = {"text": {"padding": "max_length", "max_length": 32}}
    exactly = partial(model._model.encode, batch_size=ROWS, processing_kwargs=cut, show_progress_bar=False)
    longest = [of_pieces(32, shuffled) for _ in range(ROWS)]
    assert operations(exactly, longest) != operations(exactly, full)


@pytest.mark.parametrize("place", range(1, ROWS))
def test_the_trial_sees_that_rows_differ_from_some_place_on(embedder, place):
    model = PaddedModel(embedder._whole, 8)
    embed = model.embed

    def other_from_there(texts: Sequence[str]) -> np.ndarray:
        vectors = embed(texts).copy()
        vectors[place:] = np.nextafter(vectors[place:], 2)
        return vectors

    assert embeds_alike(model)
    model.embed = other_from_there
    assert not embeds_alike(model)


def test_a_text_goes_by_its_own_length(embedder, monkeypatch):
    """Its neighbours do not matter, at each boundary and where it is too long."""
    monkeypatch.setattr(batches, "embeds_alike", lambda _model: True)
    shuffled = random.Random(2)
    lengths = sorted({length for shape in SHAPES for length in (shape - 1, shape)} | {ENDS, 300})
    texts = [of_pieces(length, shuffled) for length in lengths]
    divide = FixedBatches(embedder._whole).divide
    divided, alone = divide(texts)
    assert {lengths[number]: pieces for pieces, numbers in divided for number in numbers} == {
        length: min(shape for shape in SHAPES if shape > length) for length in lengths if length < 128
    }
    assert [lengths[number] for number in alone] == [128, 300]
    assert divide([]) == ([], [])
    # A batch is full before another is begun.
    assert [len(numbers) for _, numbers in divide(["the"] * 35)[0]] == [ROWS, ROWS, 3]


def test_an_upload_gives_each_text_its_own_vector(embedder):
    """The vector is the same alone in an upload, in the middle of others, and in any order."""
    tickets = [json.loads(line)["text"] for line in TICKETS.read_text().splitlines()[:40]]
    texts, other, shuffled = [*TEXTS, *tickets], Embedder(threads=2), random.Random(4)
    alone = {text: embedder.embed_many([text])[0].tobytes() for text in TEXTS}
    for count in (17, len(texts)):
        some = shuffled.sample(texts, count)
        for text, vector in zip(some, other.embed_many(some), strict=True):
            assert vector.tobytes() == alone.get(text, vector.tobytes())
    assert other.embed_many([]).shape == (0, 384)


def test_vectors_are_those_of_questions_but_for_the_last_bits(embedder):
    tickets = [json.loads(line)["text"] for line in TICKETS.read_text().splitlines()[:40]]
    questions, uploaded = embedder.embed([*TEXTS, *tickets]), embedder.embed_many([*TEXTS, *tickets])
    assert uploaded.dtype == np.float32
    np.testing.assert_allclose(uploaded, questions, rtol=0, atol=1e-6)


def test_where_a_processor_fails_texts_are_embedded_alone(embedder, monkeypatch, caplog):
    monkeypatch.setattr(batches, "embeds_alike", lambda model: model.pieces != 48)
    short, long = "The pump hums.", of_pieces(45, random.Random(3))
    other = Embedder(threads=2)
    with caplog.at_level(logging.WARNING):
        vectors = other.embed_many([short, long, long + " again"])
        other.embed_many([long])
    assert [vector.tobytes() for vector in vectors[1:]] == [
        vector.tobytes() for vector in embedder.embed([long, long + " again"])
    ]
    assert vectors[0].tobytes() == embedder.embed_many([short])[0].tobytes()
    assert sum("48 pieces" in record.message for record in caplog.records) == 1


def test_a_model_of_short_rows_embeds_longer_texts_alone(tmp_path):
    model = tiny_model(tmp_path, 1)
    small = Embedder(model=model)
    text = "abcd " * 30
    assert small.embed_many([text])[0].tobytes() == small.embed([text])[0].tobytes()
    np.testing.assert_allclose(small.embed_many(TEXTS), small.embed(TEXTS), atol=1e-6)
