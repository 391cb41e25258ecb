"""Vocabularies, and the files they come from."""

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import save_file
from tokenizers import Tokenizer
from tokenizers.models import BPE, WordPiece

from sanitization import vocabulary
from sanitization.embeddings import load
from sanitization.vocabulary import Vocabulary, VocabularyError, blocks, nearest, zipf
from tests.sanitization.made_up import vocabulary as made_up

VECTORS = np.array([[0.0, 0.0], [3.0, 4.0], [0.0, 1.0]])


def test_distances_and_neighbours() -> None:
    words = Vocabulary(["a", "b", "c"], VECTORS)
    np.testing.assert_allclose(words.distances(np.array([0, 2])), [[0, 5, 1], [1, 18**0.5, 0]], rtol=1e-6)
    np.testing.assert_array_equal(words.nearest(np.arange(3), 2), [[0, 2], [1, 2], [2, 0]])
    np.testing.assert_array_equal(words.nearest(np.array([1]), 9), [[1, 2, 0]])
    assert words.diameter == pytest.approx(5)
    assert words.index["c"] == 2


def test_distances_of_a_vocabulary_too_large_to_keep_them(monkeypatch: pytest.MonkeyPatch) -> None:
    kept, large = made_up(600), made_up(600)
    monkeypatch.setattr(vocabulary, "LARGEST_BYTES", 4 * 600**2 - 1)
    x = np.array([599, 0, 17])
    found = large.distances(x)
    monkeypatch.undo()
    np.testing.assert_allclose(found, kept.distances(x), atol=1e-6)
    assert (found[np.arange(3), x] == 0).all()
    assert "_distances" not in vars(large)


def test_equal_distances_take_the_first() -> None:
    np.testing.assert_array_equal(nearest(np.array([[1.0, 0.0, 1.0, 1.0]]), 2), [[1, 0]])


def test_shares() -> None:
    assert zipf(1000).sum() == pytest.approx(1)
    assert zipf(1000)[0] / zipf(1000)[99] == pytest.approx(102.7 / 3.7)
    np.testing.assert_allclose(Vocabulary(["a", "b", "c"], VECTORS, [2, 1, 1]).shares, [0.5, 0.25, 0.25])


def test_the_digest_covers_everything() -> None:
    one = Vocabulary(["a", "b", "c"], VECTORS)
    assert one.digest == Vocabulary(["a", "b", "c"], VECTORS.copy()).digest
    others = [
        Vocabulary(["a", "b", "d"], VECTORS),
        Vocabulary(["a", "c", "b"], VECTORS),
        Vocabulary(["a", "b", "c"], VECTORS + np.eye(3, 2) * 1e-12),
        Vocabulary(["a", "b", "c"], VECTORS, [1, 1, 1]),
    ]
    assert len({one.digest, *(other.digest for other in others)}) == 5


@pytest.mark.parametrize(
    ("words", "vectors", "shares"),
    [
        (["a"], [[1.0]], None),
        (["a", "a"], [[1.0], [2.0]], None),
        (["a", "b"], [[1.0]], None),
        (["a", "b"], [1.0, 2.0], None),
        (["a", "b"], [[1.0], [np.nan]], None),
        (["a", "b"], [[1.0], [2.0]], [1, -1]),
        (["a", "b"], [[1.0], [2.0]], [0, 0]),
        (["a", "b"], [[1.0], [2.0]], [1]),
    ],
)
def test_an_invalid_vocabulary_is_refused(words: list[str], vectors: list, shares: list | None) -> None:
    with pytest.raises(VocabularyError):
        Vocabulary(words, vectors, shares)


def test_blocks_cover_all() -> None:
    np.testing.assert_array_equal(np.concatenate(blocks(1300)), np.arange(1300))


def test_glove_and_word2vec(tmp_path: Path) -> None:
    lines = "the 0.5 1\nNew York 2 -3e-1\nthe 9 9\nñandú 4 5 \n"
    glove, word2vec = tmp_path / "glove.txt", tmp_path / "word2vec.vec"
    glove.write_text(lines)
    word2vec.write_text("4 2\n" + lines)
    for file in (glove, word2vec):
        # The first line shows how many numbers a word has, so words may contain spaces.
        found = load(file)
        assert found.words == ("the", "New York", "ñandú")
        np.testing.assert_array_equal(found.vectors, [[0.5, 1], [2, -0.3], [4, 5]])
    assert load(glove, most=2).words == ("the", "New York")


@pytest.mark.parametrize("line", ["word 1", "word 1 x", "word"])
def test_an_invalid_line_is_refused(line: str, tmp_path: Path) -> None:
    file = tmp_path / "glove.txt"
    file.write_text(f"the 1 2\nof 3 4\n{line}\n")
    with pytest.raises(VocabularyError, match="line 3"):
        load(file)


def test_an_array_and_a_list(tmp_path: Path) -> None:
    array, names = tmp_path / "words.npy", tmp_path / "words.txt"
    np.save(array, VECTORS)
    names.write_text("a\nb\nc\n")
    assert load(array, words=names).words == ("a", "b", "c")
    assert load(array, words=names, most=2).words == ("a", "b")
    names.write_text("a\nb\n")
    with pytest.raises(VocabularyError, match=r"2 words, .* 3 vectors"):
        load(array, words=names)
    with pytest.raises(VocabularyError, match="needs a list"):
        load(array)


@pytest.mark.parametrize(
    ("model", "tensor"),
    [
        (WordPiece({"[UNK]": 0, "cat": 1, "##s": 2, "dog": 3, "a": 4, "1st": 5}, unk_token="[UNK]"),
         "bert.embeddings.word_embeddings.weight"),
        (BPE({"s": 0, "Ġcat": 1, "cat": 2, "Ġdog": 3, "Ġa": 4, "Ġ1": 5}, []), "transformer.wte.weight"),
    ],
)  # fmt: skip
def test_a_model_folder(model: WordPiece | BPE, tensor: str, tmp_path: Path) -> None:
    Tokenizer(model).save(str(tmp_path / "tokenizer.json"))
    weights = np.arange(12, dtype=np.float32).reshape(6, 2)
    save_file({"other": weights, tensor: weights}, tmp_path / "model.safetensors")
    found = load(tmp_path)
    assert found.words == ("cat", "dog")
    np.testing.assert_array_equal(found.vectors, weights[[1, 3]])
    save_file({"other": weights}, tmp_path / "model.safetensors")
    with pytest.raises(VocabularyError, match="no tensor"):
        load(tmp_path)


def test_a_tokenizer_with_more_than_the_model(tmp_path: Path) -> None:
    Tokenizer(WordPiece({"[UNK]": 0, "cat": 1, "dog": 2}, unk_token="[UNK]")).save(str(tmp_path / "tokenizer.json"))
    save_file({"wte.weight": np.zeros((2, 2), np.float32)}, tmp_path / "model.safetensors")
    with pytest.raises(VocabularyError, match="more pieces"):
        load(tmp_path)
