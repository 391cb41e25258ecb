"""Whole texts: what is public stays as it is, every word is drawn from the audited channel, whatever comes in."""

import io
import json
import re
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from sanitization.mechanisms import CORRECTED, RESPONSES
from sanitization.stopwords import STOPWORDS
from sanitization.text import LARGEST_NUMBER, LONGEST_TEXT, TextError, open_sanitizer
from sanitization.tokens import KEEPABLE, Partition, cased_like
from sanitization.vocabulary import Vocabulary, VocabularyError
from tests.laws import ALPHA, p_value
from tests.sanitization.made_up import letter_words


def words(count: int) -> Vocabulary:
    """Made-up words of letters, and some entries that are not words of a text."""
    made = letter_words(count)
    return Vocabulary(["the", ",", "e-mail", "b2b", "1984", *made.words[5:]], made.vectors)


WORDS = words(80)
EVERYTHING = list(KEEPABLE)
SAMPLE = "My son, Tim, has HIV: call <NAME_1> at 555-0199 (before 9)!"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("tables")


def opened(
    folder: Path, *, name: str = "medoid_rr", epsilon: float = 4.0, keep: list[str] = EVERYTHING, **more: object
):
    return open_sanitizer(name, WORDS, epsilon, folder, keep=keep, **more)


def test_classes_and_what_is_kept(folder: Path) -> None:
    tokens, end = Partition(EVERYTHING).tokens(SAMPLE + " \n")
    assert "".join(token.before + token.text for token in tokens) + end == SAMPLE + " \n"
    by = {kind: [token.text for token in tokens if token.kind == kind] for kind in {token.kind for token in tokens}}
    assert by == {
        "word": ["son", "Tim", "HIV", "call"],
        "stopword": ["My", "has", "at", "before"],
        "punctuation": [",", ",", ":", "(", ")", "!"],
        "placeholder": ["<NAME_1>"],
        "number": ["555-0199", "9"],
    }
    done = opened(folder).sanitize(SAMPLE)
    assert done.text.startswith("My ")
    assert " <NAME_1> " in done.text
    assert (done.tokens, done.charged) == (len(tokens), 4)
    assert done.epsilon_text == 4 * done.epsilon_token
    assert done.classes == tuple(token.kind for token in tokens)


def test_what_is_not_kept_is_drawn(folder: Path) -> None:
    """A placeholder is then two marks and a name."""
    done = opened(folder, keep=[]).sanitize(SAMPLE)
    assert set(done.classes) == {"word", "number"}
    assert done.charged == done.tokens - 3
    outputs = set(opened(folder, keep=[]).served.channel.outputs)
    assert set(re.findall(r"[^\d\s]+", done.text)) <= outputs
    with pytest.raises(ValueError, match="'names'"):
        opened(folder, keep=["names"])


def test_a_number_reveals_nothing(folder: Path) -> None:
    """Neither its size nor the number of its digits, dots or dashes shows."""
    sanitizer = opened(folder)
    for number in ("7", "12/05/1980", "3.141592653589793", "٣٤"):
        done = [sanitizer.sanitize(number) for _ in range(300)]
        assert {one.charged for one in done} == {0}
        assert {one.classes for one in done} == {("number",)}
        drawn = [int(one.text) for one in done]
        assert min(drawn) >= 1
        assert max(drawn) <= LARGEST_NUMBER
        assert len(set(drawn)) > 200  # 260 expected
    for number in ("7", "12/05/1980"):  # CUSTEXT adds 0 to 999 to a number
        drawn = [int(one.text) for one in sanitizer.sanitize_all([number] * 20_000)]
        tenths = np.bincount((np.array(drawn) - 1) * 10 // LARGEST_NUMBER, minlength=10)
        assert p_value(tenths, 20_000, 0.1) > ALPHA


def test_only_words_of_texts_come_out(folder: Path) -> None:
    assert not {"the", ",", "e-mail", "b2b", "1984"} & set(opened(folder).served.vocabulary.words)
    assert "the" in opened(folder, keep=["punctuation"]).served.vocabulary.words
    with pytest.raises(VocabularyError, match="two words"):
        open_sanitizer("medoid_rr", Vocabulary(["the", "a"], np.eye(2)), 4, folder, keep=["stopwords"])


def test_stopwords_are_tokens() -> None:
    tokens = {text: Partition(["stopwords"]).tokens(text)[0] for text in STOPWORDS}
    assert {text for text, (token, *others) in tokens.items() if others or token.kind != "stopword"} == set()
    assert [token.kind for token in Partition(["stopwords"]).tokens("THE Don't")[0]] == [
        "stopword",
        "stopword",
        "word",
        "stopword",
    ]


@pytest.mark.parametrize(
    ("word", "like", "made"),
    [("bcd", "abc", "bcd"), ("bcd", "Abc", "Bcd"), ("bcd", "ABC", "BCD"), ("bcd", "A", "Bcd"), ("bcd", "😀", "bcd")],
)
def test_case(word: str, like: str, made: str) -> None:
    assert cased_like(word, like) == made


texts = st.text(st.one_of(st.characters(), st.sampled_from("aB the,.<>_-1½ \n’é😀‍\u200b\x00")), max_size=80)


@pytest.mark.parametrize("keep", [[], ["punctuation"], ["stopwords", "punctuation"], ["punctuation", "case"]])
@given(text=texts)
@example(text="\ud800\x00 ﷽ e\u0301 日本語 1,2,3- <A> <HIV> snake_case \r\n\x1c")
def test_the_classes_of_any_text_stay(keep: list[str], folder: Path, text: str) -> None:
    """Cut again, the output has the same tokens by class, the same white space, and words of the channel alone."""
    sanitizer = opened(folder, keep=keep)
    done = sanitizer.sanitize(text)
    before, end = sanitizer.partition.tokens(text)
    after, end_after = sanitizer.partition.tokens(done.text)
    assert tuple(token.kind for token in after) == done.classes
    assert end_after == end
    spaced = [b.before or " " * (a.kind == b.kind == "word") for a, b in pairwise(before)]
    assert [token.before for token in after] == [token.before for token in before[:1]] + spaced
    outputs = {word.casefold() for word in sanitizer.served.channel.outputs}
    for old, new in zip(before, after, strict=True):
        match old.kind:
            case "word":
                assert new.text.casefold() in outputs
            case "number":
                assert 1 <= int(new.text) <= LARGEST_NUMBER
            case _:
                assert new.text == old.text


@given(st.lists(texts, max_size=5))
@example(batch=["a", "", "bfg e\u0301\nB 1.2\r\n<A>"])
def test_a_batch_is_its_texts_and_a_text_its_lines(folder: Path, batch: list[str]) -> None:
    """At ε = 25 a word changes once in 10⁹ draws."""
    sanitizer = opened(folder, epsilon=25.0, embed=lambda some: WORDS.vectors[[len(word) for word in some]])

    def fixed(text: str) -> list[str]:
        return [token.text for token in sanitizer.partition.tokens(text)[0] if token.kind != "number"]

    done = sanitizer.sanitize_all(batch)
    assert [one.classes for one in done] == [sanitizer.sanitize(text).classes for text in batch]
    assert [fixed(one.text) for one in done] == [fixed(sanitizer.sanitize(text).text) for text in batch]
    for text, whole in zip(batch, done, strict=True):
        lines = sanitizer.sanitize_all(io.StringIO(text, newline="\n").readlines())
        assert fixed("".join(line.text for line in lines)) == fixed(whole.text)
        assert sum((line.classes for line in lines), ()) == whole.classes
        assert sum(line.charged for line in lines) == whole.charged


@pytest.mark.slow
@pytest.mark.parametrize("name", ["medoid_rr", "custext"])
def test_a_word_has_its_row_wherever_it_stands(name: str, folder: Path) -> None:
    """Neighbours and case do not matter; an unknown word has the mean row, or that of the nearest word."""
    known = opened(folder, name=name).served.vocabulary
    law = opened(folder, name=name).served.channel.rows(np.arange(len(known)))
    word, count = known.words[7], 15_000

    def drawn(text: str, at: int, **more: object) -> np.ndarray:
        sanitizer = opened(folder, name=name, keep=["punctuation"], **more) if more else opened(folder, name=name)
        found = [one.text.split()[at].lower() for one in sanitizer.sanitize_all([text] * count)]
        return np.array([found.count(output) for output in sanitizer.served.channel.outputs])

    for text, at in ((word, 0), (f"the {word} bfg 12", 1), (f"{word} {word}", 1), (word.upper(), 0)):
        assert p_value(drawn(text, at), count, law[7]) > ALPHA
    assert p_value(drawn(word, 0), count, law[8]) < ALPHA
    assert p_value(drawn("unheard 😀", 1), count, law.mean(axis=0)) > ALPHA


@pytest.mark.slow
def test_posterior_odds_of_a_word_move_by_no_more_than_epsilon(folder: Path) -> None:
    """Black box: texts that differ in one word, unknown words among them; every output's odds, within their errors."""
    sanitizer, count = opened(folder, epsilon=1.0), 20_000
    known = sanitizer.served.vocabulary.words
    outcomes = [f"the {output}, then" for output in sanitizer.served.channel.outputs]
    drawn = [
        [one.text for one in sanitizer.sanitize_all([f"the {word}, then"] * count)]
        for word in (known[3], known[60], "unheard")
    ]
    counts = np.array([[found.count(text) for text in outcomes] for found in drawn])
    assert counts.sum() == 3 * count
    worst = np.log(counts.max(axis=0) / counts.min(axis=0))
    error = 6 * np.sqrt(1 / counts.max(axis=0) + 1 / counts.min(axis=0))
    assert (worst - error <= sanitizer.epsilon).all()
    assert worst.max() > 0.9 * sanitizer.epsilon - error.max()


def test_threads_share_it(folder: Path) -> None:
    sanitizer = opened(folder, epsilon=25.0)
    text = " ".join(sanitizer.served.channel.outputs)
    with ThreadPoolExecutor(8) as pool:
        assert set(pool.map(lambda _: sanitizer.sanitize(text).text, range(320))) == {text}


@pytest.mark.parametrize("name", [*CORRECTED, *RESPONSES])
def test_what_is_announced_is_the_audited_epsilon(name: str, folder: Path) -> None:
    sanitizer = opened(folder, name=name, epsilon=3.0)
    artifact = sanitizer.artifact
    assert sanitizer.sanitize("bfg").epsilon_token == artifact.audit.epsilon <= 3
    assert artifact.audit.complete
    assert json.loads(json.dumps(artifact.document()))["mechanism"] == name


def test_the_artifact_distinguishes_sanitisers(folder: Path) -> None:
    """It depends on everything that the law depends on."""
    moved = Vocabulary(WORDS.words, WORDS.vectors[::-1], WORDS.shares)
    others = [
        opened(folder),
        opened(folder, epsilon=4.5),
        opened(folder, name="nearest_rr"),
        opened(folder, keep=["punctuation", "stopwords"]),
        opened(folder, embed=lambda some: WORDS.vectors[: len(some)]),
        *(open_sanitizer("medoid_rr", known, 4, folder, keep=EVERYTHING) for known in (words(81), moved)),
    ]
    assert len({one.artifact.digest for one in others}) == len(others)
    assert opened(folder).artifact.digest == opened(folder).artifact.digest


@pytest.mark.slow
def test_a_megabyte(folder: Path) -> None:
    sanitizer = opened(folder)
    text = ("bfg the, 12 " * (LONGEST_TEXT // 12 + 1))[:LONGEST_TEXT]
    done = sanitizer.sanitize(text)
    assert done.tokens > 300_000
    with pytest.raises(TextError, match="1,048,576"):
        sanitizer.sanitize(text + "a")
