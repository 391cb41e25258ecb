"""Spans are places: each occurrence once, at word boundaries where there are any, and nothing of them is left."""

import json
import unicodedata
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanitization.restore.spans import (
    PLACEHOLDER,
    SpanLeftInTextError,
    SpanNotFoundError,
    find,
    normal_form,
    put_back,
    redact,
)

TICKETS = Path(__file__).parents[3] / "examples" / "support" / "tickets.jsonl"


def test_pain_in_jaw_pain() -> None:
    """The paper's code takes the first substring, which is inside another span or another word."""
    text = "Painless until May; then jaw pain, and pain at night."
    assert [text[a:b] for a, b in find(text, ["pain", "jaw pain"])] == ["jaw pain", "pain"]
    assert redact(text, ["pain", "jaw pain"]).text == "Painless until May; then ___, and ___ at night."
    assert text.lower().find("pain") == 0  # the first substring is not a span


def test_every_span_of_many_texts_is_found_where_it_is() -> None:
    """Words of the example's tickets are compared with those found by splitting the texts instead of searching them."""
    for line in TICKETS.read_text().splitlines()[:60]:
        text = json.loads(line)["text"]
        words = [word.strip(".,;:!?'\"()-") for word in text.split()]
        for word in {one for one in words if one.isalpha()}:
            redacted = redact(text, [word])
            assert {span.casefold() for span in redacted.spans} == {word.casefold()}
            assert len(redacted.spans) >= sum(one.casefold() == word.casefold() for one in words)


def test_all_occurrences_in_any_case() -> None:
    text = "Fever. No FEVER today, feverish yesterday."
    assert redact(text, ["fever"]).text == "___. No ___ today, feverish yesterday."


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("Er wohnt in der Hauptstraße seit Mai", "HAUPTSTRASSE"),
        ("le café fermé", unicodedata.normalize("NFD", "café")),
        (unicodedata.normalize("NFD", "le café fermé"), "café"),
        ("患者は 発熱 がある", "発熱"),
        ("two\n words here", "two words"),
        ("M\u00fc\u00adller here", "m\u00fcller"),
        ("O'Brien's file", "O'Brien"),
    ],
)
def test_unicode(text: str, span: str) -> None:
    redacted = redact(text, [span])
    assert redacted.text.count(PLACEHOLDER) == 1
    assert [normal_form(found) for found in redacted.spans] == [normal_form(span)]


@pytest.mark.parametrize(
    ("written", "others"),
    [
        ("O'Brien", ["O’Brien", "OʼBrien", "o`brien", "O‘BRIEN", "O´Brien", "OBrien", "O Brien"]),
        ("Anne-Marie", ["Anne\u2011Marie", "Anne‐Marie", "Anne–Marie", "Anne Marie", "Anne\xadMarie", "ANNE - MARIE"]),
        (
            "Anna Klein",
            ["Anna\xa0Klein", "Anna\u202fKlein", "Anna\nKlein", "Anna-Klein", "Anna \u200eKlein", "Anna  Кlein"],
        ),
        ("fever", ["ｆｅｖｅｒ", "fe-\nver", "fe\u200bver", "𝐟𝐞𝐯𝐞𝐫", "FÉVER"]),
        ("Griffith", ["Gri\ufb03th"]),
        ("Zoë", ["Zoe", "Zoe\u0308", "ZOE"]),
        ("Müller", ["Mueller", "Muller", "MUELLER", "Mu\u0308ller"]),
        ("Mueller", ["Müller"]),
        ("Søren Łuk", ["Soren Luk", "Soeren Luk"]),
        ("Нина", ["НИНА", "Hина"]),
        ("Ilgin", ["İlgin", "ılgın"]),
        ("長野", ["⻑野"]),
        ("0170 1234567", ["0170-123 45 67", "0170) 1234567", "0170/1234567", "01701234567", "٠١٧٠ ١٢٣٤٥٦٧"]),
        ("01.02.1990", ["01/02/1990", "01-02-1990"]),
    ],
)
def test_a_span_however_it_is_written(written: str, others: list[str]) -> None:
    for other in others:
        text = unicodedata.normalize("NFC", f"It was {written}; then {other}, later.")
        assert redact(text, [written]).text == "It was ___; then ___, later.", other
        with pytest.raises(SpanLeftInTextError):
            redact(text, [(7, 7 + len(written))])


@pytest.mark.parametrize(
    ("text", "name", "redacted"),
    [
        ("佐藤さんは発熱。佐藤さんは男性。", "佐藤さん", "___は発熱。___は男性。"),
        ("佐藤花子は女性。佐藤　花子は四十歳。", "佐藤花子", "___は女性。___は四十歳。"),
        ("患者李小龙发烧，李小\n龙住在上海。", "李小龙", "患者___发烧，___住在上海。"),
        ("มานีมีไข้และมานีไอ", "มานี", "___มีไข้และ___ไอ"),
        ("이영희는 열이 있다. 이영희가 기침한다.", "이영희", "___는 열이 있다. ___가 기침한다."),
        ("محمد مريض. رأيت ومحمد", "محمد", "___ مريض. رأيت و___"),
        ("Nowak is ill: nowak@example.org, scan7nowak.png", "Nowak", "___ is ill: ___@example.org, scan7___.png"),
        ("Nowak is ill, drNowak.txt", "Nowak", "___ is ill, dr___.txt"),
        ("takes 40 mg, then 40mg", "40", "takes ___ mg, then ___mg"),
        ("Nowak is ill. No\u00adwak, N\u200bowa\ufe0fk", "Nowak", "___ is ill. ___"),
        ("Nowak is ill", "No\u200dwak", "___ is ill"),
    ],
)
def test_every_occurrence_where_no_boundary_can_be_seen(text: str, name: str, redacted: str) -> None:
    """Marked as a string, all occurrences are taken out. If one place is marked, the text is refused for the others."""
    assert redact(text, [name]).text == redacted
    first, *others = find(text, [name])
    if others:
        with pytest.raises(SpanLeftInTextError):
            redact(text, [first])


@pytest.mark.parametrize(
    "text",
    [
        "Nowak is ill. We told Nowakowi.",
        "NOWAK is ill. We told NOWAKOWI.",
        "O'Neil is ill. We met the O’Neils.",
    ],
)
def test_an_inflected_or_disguised_name_is_left_and_noticed(text: str) -> None:
    with pytest.raises(SpanLeftInTextError):
        redact(text, [text.partition(" ")[0]])


@pytest.mark.parametrize(
    ("text", "span"),
    [
        ("rash, after a crash", "rash"),
        ("fever; feverish before", "fever"),
        ("The rash. There is more", "The"),
        ("40 mg of 400 or 140", "40"),
        ("Doe. I do.", "Doe"),
        ("5 mg, not 5 µg", "5 mg"),
        ("room 12, or 1 2", "12"),
    ],
)
def test_other_words_and_numbers_stay(text: str, span: str) -> None:
    assert redact(text, [span]).text == text.replace(span, PLACEHOLDER, 1)


def test_a_placeholder_is_not_part_of_the_text() -> None:
    assert redact("His name is Ann", ["name"], "[name]").text == "His [name] is Ann"


def test_runs_share_a_placeholder() -> None:
    """Otherwise the redacted text would show how many spans stand together."""
    one = redact("He has fever, rash and pain.", ["fever, rash"]).text
    assert one == redact("He has fever, rash and pain.", ["fever", "rash"]).text == "He has ___ and pain."
    assert redact("fever / rash", ["fever", "rash"]).text == "___"


def test_offsets_and_detectors() -> None:
    text = "Ann from Bath has a rash"
    assert redact(text, [(0, 3), (9, 13)]).text == "___ from ___ has a rash"
    assert redact(text, lambda given: [(given.index("Bath"), given.index("Bath") + 4)]).spans == ("Bath",)
    assert redact(text, []).text == text


@pytest.mark.parametrize("offsets", [[(0, 99)], [(-1, 3)], [(3, 3)], [(5, 2)]])
def test_offsets_outside(offsets: list[tuple[int, int]]) -> None:
    with pytest.raises(SpanNotFoundError):
        redact("fever", offsets)


def test_what_cannot_be_marked() -> None:
    with pytest.raises(SpanNotFoundError, match="'fever'"):
        redact("feverish", ["fever"])
    with pytest.raises(SpanNotFoundError):
        redact("fever", [" "])
    with pytest.raises(ValueError, match="overlaps"):
        redact("jaw pain", [(0, 8), (4, 8)])
    with pytest.raises(SpanLeftInTextError, match="'pain'"):
        redact("pain, later jaw pain", [(0, 4)])
    with pytest.raises(ValueError, match="NFC"):
        redact(unicodedata.normalize("NFD", "café"), [(0, 2)])


@given(st.lists(st.sampled_from(["ab", "a", "b c", "c", "-", ",", "Ä", "ß", "SS", "x"]), max_size=12), st.data())
def test_nothing_marked_is_left(words: list[str], data: st.DataObject) -> None:
    text = unicodedata.normalize("NFC", " ".join(words))
    known = [word for word in words if word.strip("-,")]
    chosen = data.draw(st.lists(st.sampled_from(known), max_size=3)) if known else []
    redacted = redact(text, chosen)
    left = redacted.text.replace(PLACEHOLDER, " ")
    for span in chosen:
        with pytest.raises(SpanNotFoundError):
            find(left, [span])


def test_put_back() -> None:
    assert put_back("has ___ and ___.", ["a", "b", "c"]) == "has a and b, c."
    assert put_back("has ___ and ___.", ["a"]) == "has ___ and a."
    assert put_back("has ___.", []) == "has ___."
    assert put_back("has nothing.", ["a"]) == "has nothing."
    assert put_back(redact("fever, rash", ["fever", "rash"]).text, ["x", "y"]) == "x, y"
