import unicodedata

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregation.keywords import keywords
from aggregation.sentences import LONGEST, LONGEST_TEXT, MOST, fold, nearest, sentences


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Latin, with abbreviations, numbers and quotations
        (
            "Dr. Smith comes at 3.50 p.m. on Monday. Please bring the form, e.g. the blue one! Is that all right?",
            [
                "Dr. Smith comes at 3.50 p.m. on Monday.",
                "Please bring the form, e.g. the blue one!",
                "Is that all right?",
            ],
        ),
        ('She wrote "Go there now." last week. (It was late.) So be it...', None),
        # Scripts with marks of their own, with and without spaces
        ("请把表格带来。我们星期二记账！你同意这个吗？", ["请把表格带来。", "我们星期二记账！", "你同意这个吗？"]),
        ("明日それをお持ちください。「はい、わかりました。」と彼女が言った。", None),
        ("कृपया यह फ़ॉर्म लाएँ। हम मंगलवार को दर्ज करते हैं॥", None),
        ("أحضر النموذج معك غدا. هل توافق على ذلك؟", None),
        ("Բերեք ձևը վաղը։ Դա լավ է։", None),
        ("ቅጹን ነገ እባክዎ አምጡ። ይህ ጥሩ ነው።", None),
        ("ဖောင်ကို ယူလာပါ။ အင်္ဂါနေ့ စာရင်းသွင်းမည်။", None),
        ("โปรดนำแบบฟอร์มมาด้วย\nเราจองวันอังคารนี้", ["โปรดนำแบบฟอร์มมาด้วย", "เราจองวันอังคารนี้"]),
    ],
)
def test_texts_of_any_script_are_cut_into_sentences(text: str, expected: list[str] | None) -> None:
    found = sentences(text)
    if expected is None:
        assert len(found) >= 2
        assert "".join("".join(found).split()) == "".join(unicodedata.normalize("NFC", text).split())
    else:
        assert found == expected


def test_an_opening_quotation_mark_belongs_to_what_follows() -> None:
    assert sentences("明日お持ちください。「それで結構です。」") == ["明日お持ちください。", "「それで結構です。」"]


@pytest.mark.parametrize("end", ["\n", "\r\n", "\r", "\u2028", "\u2029", "\x85", "\n\n \n"])
def test_lines_are_sentences(end: str) -> None:
    assert sentences(f"one two three{end}four five six") == ["one two three", "four five six"]


def test_white_space_and_form_are_folded_and_nothing_else() -> None:
    assert sentences("The  cafe\u0301 \u00a0opens\tat noon.") == ["The café opens at noon."]
    assert sentences("the café opens at noon.") != sentences("The café opens at noon.")


@pytest.mark.parametrize(
    "text", ["Best wishes, Piet", "a 1 b", "don't do that", "谢谢您的来信", "A4 纸一二张", "ขอบคุณครับ"]
)
def test_three_words_count(text: str) -> None:
    """Two letters of a script that sets no spaces are a word."""
    assert sentences(text) == [text]


@pytest.mark.parametrize(
    "text",
    ["", " ", "Yes.", "Thank you!", "- * -", "... ... ...", "好的。", "谢谢您来信", "12 345", "\U0001f600 😀 😀"],
)
def test_fewer_words_do_not(text: str) -> None:
    assert sentences(text) == []


def test_what_is_too_long_or_not_text_does_not_count() -> None:
    words = "word " * (LONGEST // 5)
    assert sentences(words) == [words.strip()]
    assert sentences(words + "more") == []
    assert sentences("one two\x00 three") == sentences("one two \ud800 three") == []


def test_a_sentence_counts_once_and_only_the_first_ones_do() -> None:
    assert sentences("It is noon now. It  is noon now. Is it noon now?") == ["It is noon now.", "Is it noon now?"]
    many = [f"This is number {i}." for i in range(2 * MOST)]
    assert sentences(" ".join(many)) == many[:MOST]
    assert sentences("x " * (LONGEST_TEXT // 2 - 1) + "\none two three") == []
    assert sentences("No!\n" * (10 * MOST) + "one two three") == []


def test_sentences_are_compared_with_public_ones_without_case() -> None:
    assert fold("Kind  regards,\nNOOR") == fold("kind regards, Noor")


def test_those_that_resemble_the_question_are_chosen() -> None:
    said = [
        "We wish you well.",
        "The refund has been approved today.",
        "Your refund is booked on Tuesday.",
        "So long then!",
    ]
    question = keywords("When is my refund booked?")
    assert nearest(said, question, 2) == [said[2], said[1]]
    assert nearest(said, question, 5) == [said[2], said[1], said[0], said[3]]


def test_of_equals_the_longest_are_chosen_and_then_the_first() -> None:
    said = ["Best wishes, Ada", "It is open on Fridays.", "It is open on Mondays."]
    assert nearest(said, frozenset(), 2) == said[1:]


@settings(max_examples=300)
@given(st.one_of(st.text(), st.text(alphabet=' \n.。!"“)a’A1,\u0301Dr', max_size=200)))
def test_no_text_raises_and_each_sentence_stands_in_it(text: str) -> None:
    found = sentences(text)
    whole = "".join(unicodedata.normalize("NFC", text).split())
    assert len(found) == len(set(found)) <= MOST
    assert all("".join(sentence.split()) in whole and len(sentence) <= LONGEST for sentence in found)
