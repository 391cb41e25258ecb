import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregation.keywords import LONGEST_WORD, STOP_WORDS, count_words, keywords
from spelling.lookalikes import KEYWORD

# Characters on which the rules meet: apostrophes, separators, marks, invisible ones, a lone surrogate, other scripts.
difficult = st.text(alphabet="a's’.1/-,:_ \n\u0300\u00ad\u200d\ufe0f\u20e3İßǅﬁΣς5x日の한\u0345ά\ud800ʼn🙂")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", set()),
        ("  \n\t ", set()),
        ("... !? -- ()", set()),
        ("It is what it is, and that's that.", set()),
        ("Larry called BETTY; betty called larry!", {"larry", "betty", "called"}),
        ("Straße, STRASSE", {"strasse"}),
        ("CAFÉ cafe\u0301 café", {"café"}),
        ("ﬁne ＦＩＮＥ fi\u00adne f\u200dine", {"fine"}),
        ("Ada's father’s car", {"ada", "father", "car"}),
        ("He's late and she'll wait", {"late", "wait"}),
        ("the students' and 'quoted' O’Neil", {"students", "quoted", "o'neil"}),
        ("No, I don't. Not yes.", {"no", "don't", "not", "yes"}),
        ("state-of-the-art e-mail", {"state", "art", "e", "mail"}),
        ("and/or (either) [both]", set()),
        ("file_name __init__ _", {"file_name", "init"}),
        ("The U.S. and the U.S.A.", {"u.s", "u.s.a"}),
        ("due 25/12/2018, 25-12-2018 or 2018-12-25", {"due", "25/12/2018", "25-12-2018", "2018-12-25"}),
        ("at 10:30 or 10:30am", {"10:30"}),
        ("May 5th 2018", {"may", "5th", "2018"}),
        ("$3.50, €1,299.00, RM 9.00, RM9.00, 50%", {"3.50", "1,299.00", "rm", "9.00", "rm9.00", "50"}),
        ("call +60-3-1234 5678.", {"call", "60-3-1234", "5678"}),
        ("3kg of 4x4s at 3.5kg", {"3kg", "4x4s", "3.5", "kg"}),
        ("x² H₂O ½", {"x2", "h2o", "1/2"}),
        ("10–20 °C, 10−20, O‘Neil, o`neil, don´t", {"10-20", "c", "o'neil", "don't"}),
        ("Great 🙂👍🏽!", {"great"}),
        ("日本語のテキスト", {"日", "本", "語", "の", "テキスト"}),
        ("привет, Мир", {"привет", "мир"}),
        ("a\ud800b", {"b"}),
    ],
)
def test_the_rules(text: str, words: set[str]) -> None:
    assert keywords(text) == words


def test_words_beyond_the_longest_are_dropped() -> None:
    longest = "x" * LONGEST_WORD
    assert keywords(f"{longest} and {longest}y") == {longest}
    assert keywords("1" * (LONGEST_WORD + 1)) == set()


@pytest.mark.parametrize("text", ["a\u0300" * 50_000, "1/" * 50_000, "a'" * 50_000, "'s" * 50_000, "_" * 50_000])
def test_long_texts_take_no_longer_than_they_are(text: str) -> None:
    """A segmentation that looks back from every character would take hours here."""
    assert len(keywords(text)) <= 2


def test_stop_words_are_stored_as_texts_bring_them() -> None:
    assert all(KEYWORD.fold(word) == word for word in STOP_WORDS)
    assert not keywords(" ".join(STOP_WORDS))
    assert not STOP_WORDS & {"no", "not", "yes", "never", "may"}


@settings(max_examples=500)
@given(st.one_of(st.text(), difficult, st.binary().map(lambda b: b.decode("utf-8", "surrogateescape"))))
def test_any_text_gives_words_that_stay_what_they_are(text: str) -> None:
    """No text is an error, and a released word, read again, is the same keyword, so domains and outputs match."""
    words = keywords(text)
    for word in words:
        assert keywords(word) == {word}
        assert 0 < len(word) <= LONGEST_WORD
        word.encode()  # no lone surrogates
    assert keywords(KEYWORD.fold(text)) == words


@given(st.one_of(st.text(), difficult))
def test_case_makes_no_difference(text: str) -> None:
    """This holds for normalised texts: in others, folding may turn a misplaced iota below into a letter too early."""
    normal = unicodedata.normalize("NFKC", text)
    assert keywords(normal.casefold()) == keywords(normal)


def test_a_slot_counts_once_for_each_of_its_words() -> None:
    assert count_words([{"a", "b"}, {"b"}, frozenset({"b"}), set()]) == {"a": 1, "b": 3}


NO_SETS = [None, set(), ["a"], "a", {"a": 1}, {"a", 1}, {b"a"}, 7]


@pytest.mark.parametrize("contribution", NO_SETS)
def test_a_contribution_that_is_not_a_set_of_words_abstains(contribution: object) -> None:
    assert count_words([contribution, {"a"}]) == {"a": 1}  # type: ignore[list-item]
