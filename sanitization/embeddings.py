"""Words with vectors from files: GloVe and word2vec text, ``.npy`` with a list of words, a Hugging Face folder."""

from pathlib import Path

import numpy as np

from sanitization.vocabulary import Vocabulary, VocabularyError

_TENSORS = ("embeddings.word_embeddings.weight", "wte.weight", "embed_tokens.weight")
_STARTS = ("Ġ", "▁")
"""Sign that begins a whole word, in vocabularies that have one; in WordPiece's, "##" begins the others."""


def load(path: Path, *, words: Path | None = None, most: int | None = None) -> Vocabulary:
    """Read a vocabulary; files list the most frequent word first.

    Args:
        path: text (``word number number ...`` a line, word2vec's first line is skipped), ``.npy``, or a folder with
            ``model.safetensors`` and ``tokenizer.json``.
        words: file with one word a line, for ``.npy``.
        most: number of words to read, from the first; None: all.

    Raises:
        VocabularyError: the file is not in such a format.
        OSError: it cannot be read.
    """
    if path.is_dir():
        return from_hugging_face(path, most)
    if path.suffix == ".npy":
        if words is None:
            raise VocabularyError(f"{path} needs a list of its words")
        names = words.read_text("utf-8").split("\n")
        names = names[:-1] if names[-1] == "" else names
        vectors = np.load(path, allow_pickle=False)
        if len(names) != len(vectors):
            raise VocabularyError(f"{words} has {len(names)} words, {path} has {len(vectors)} vectors")
        return Vocabulary(names[:most], vectors[:most])
    return from_text(path, most)


def from_text(path: Path, most: int | None = None) -> Vocabulary:
    """GloVe's and word2vec's text format. A word may contain spaces; of a word that occurs twice the first counts."""
    vectors: dict[str, np.ndarray] = {}
    width = 0
    with path.open(encoding="utf-8", errors="strict") as lines:
        for number, line in enumerate(lines, 1):
            cells = line.rstrip("\n").rstrip(" ").split(" ")
            if number == 1 and len(cells) == 2:
                continue  # word2vec: how many words, how many dimensions
            width = width or len(cells) - 1
            try:
                vector = np.array(cells[-width:], dtype=np.float64)
            except ValueError as error:
                raise VocabularyError(f"{path}, line {number}: {error}") from error
            if width < 1 or len(cells) <= width:
                raise VocabularyError(f"{path}, line {number}: a word and {width} numbers expected")
            vectors.setdefault(" ".join(cells[:-width]), vector)
            if most is not None and len(vectors) >= most:
                break
    return Vocabulary(list(vectors), list(vectors.values()))


def from_hugging_face(folder: Path, most: int | None = None) -> Vocabulary:
    """The input embeddings of a model's whole alphabetic words."""
    from safetensors import safe_open
    from tokenizers import Tokenizer

    with safe_open(folder / "model.safetensors", framework="np") as tensors:
        name = next((key for key in tensors.keys() if key.endswith(_TENSORS)), None)  # noqa: SIM118 (no mapping)
        if name is None:
            raise VocabularyError(f"{folder} has no tensor that ends with {' or '.join(_TENSORS)}")
        vectors = tensors.get_tensor(name)
    pieces = whole_words(Tokenizer.from_file(str(folder / "tokenizer.json")).get_vocab())
    chosen = dict(list(pieces.items())[:most])
    if max(chosen.values(), default=-1) >= len(vectors):
        raise VocabularyError(f"{folder}: the tokenizer knows more pieces than the model")
    return Vocabulary(list(chosen), vectors[list(chosen.values())])


def whole_words(pieces: dict[str, int]) -> dict[str, int]:
    """The pieces that are alphabetic words of two letters or more, in their order, which is that of frequency."""
    marked = any(piece.startswith(_STARTS) for piece in pieces)
    words: dict[str, int] = {}
    for piece, at in sorted(pieces.items(), key=lambda item: item[1]):
        word = piece[1:] if marked else piece
        if piece.startswith(_STARTS) == marked and word.isalpha() and len(word) > 1:
            words.setdefault(word, at)
    return words
