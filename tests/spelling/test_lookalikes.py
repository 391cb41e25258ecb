"""What reads alike, over Unicode's own data: every character, and texts of those on which the rules meet."""

from __future__ import annotations

import unicodedata

import pytest
import regex
from hypothesis import given, settings
from hypothesis import strategies as st

from spelling.lookalikes import KEYWORD, LABEL, SPAN, UNIT_ID, Reading

READINGS = {"unit id": UNIT_ID, "label": LABEL, "keyword": KEYWORD, "span": SPAN}
every_reading = pytest.mark.parametrize("reading", READINGS.values(), ids=READINGS)
ALL = [chr(code) for code in range(0x110000)]
DIFFICULT = (
    "aA'’`´″\"-–‑−~〜/⁄·・…\u00ad\u200d\ufe0f\u2800\u3000 \n\u0300\u0301\u0345\u3099"
    "İıßǅﬁΣςμµНнІ٣３º½²șかガﾞ가\u1100\u1161⼭⻑\ud800🙂"
)
texts = st.one_of(st.text(), st.text(alphabet=DIFFICULT))

CLASSES = {
    "-": r"\p{Pd}--[〜〰]",
    " ": r"\p{Zs}",
    "": r"[\p{Default_Ignorable_Code_Point}\p{Cf}]",
}
"""Unicode's classes, and what each of their characters is folded to between two letters."""


@pytest.mark.parametrize(
    ("reading", "folded"),
    [(reading, folded) for reading in READINGS.values() for folded in CLASSES if folded != " " or reading.spaces],
)
def test_all_characters_of_a_class_are_one(reading: Reading, folded: str) -> None:
    found = regex.findall(f"[{CLASSES[folded]}]", "".join(ALL), regex.V1)
    assert len(found) > 10
    assert {reading.fold(f"x{one}y") for one in found} == {f"x{folded}y"}


@every_reading
@pytest.mark.parametrize(
    "same",
    [
        "'‘’‛`´ʼʹ′＇\u1ffd\u0374",
        ['"', *"“”„″«»〝＂״", "''", "’’"],
        "-‐‑‒–—―−﹣－⁃",
        "/⁄∕／",
        ["...", "…", "⋯", "․․․"],
        ["->", "→", "⟶"],
        "#♯",
        "°º˚",
        ["N°", "Nº", "№"],
        ["", "\u0640"],
        ["(1/2)", "(½)"],
        ["7 1/2", "7½"],
        ["10^2", "10²"],
        ["i", "i\u0307"],
        ["į", "į\u0307", "i\u0307\u0328"],
        ["fi", "ﬁ"],
        ["ffi", "ﬃ"],
        ["2", "²", "₂", "２", "𝟐"],
        ["山", "⼭"],
        ["長", "⻑"],
        ["é", "e\u0301"],
        ["ệ", "e\u0323\u0302", "e\u0302\u0323", "ẹ\u0302"],
        ["가", "\u1100\u1161", "\uffa1\uffc2"],
        ["ガ", "カ\u3099", "ｶﾞ"],
        ["ﻻ", "لا"],
        ["Å", "Å", "A\u030a"],
        ["❤", "❤\ufe0f"],
    ],
)
def test_what_every_use_takes_for_equal(reading: Reading, same: list[str]) -> None:
    assert len({reading.fold(f"x{one}y") for one in same}) == 1


DISTINCTIONS = {
    ("ann", "Ann"): {"label", "keyword"},
    ("a b", "a  b"): {"unit id", "label"},
    ("a b", "a\xa0b"): {"unit id", "label", "keyword", "span"},
    ("anna", "аnna"): {"unit id", "label", "span"},
    ("Нина", "Hина"): {"unit id", "span"},
    ("17", "١٧"): {"unit id", "label", "span"},
    ("café", "cafe"): {"span"},
    ("שָׁלוֹם", "שלום"): {"span"},
    ("istanbul", "İstanbul"): {"label", "keyword"},
    ("Timișoara", "Timişoara"): {"unit id", "label", "span"},
    ("Đỗ", "Ðỗ"): {"unit id", "span"},
    ("Ёлка", "Ëлка"): {"unit id", "label", "span"},
    ("Ирӕф", "Ирæф"): {"unit id", "label", "span"},
    ("علی", "علي"): {"unit id", "label", "span"},
    ("کریم", "كريم"): {"unit id", "label", "span"},
    ("അവൻ", "അവന്\u200d"): {"unit id", "label", "span"},
    ("แม่", "เเม่"): {"unit id", "label", "span"},
    ("へ", "ヘ"): {"unit id", "label", "span"},
    ("4×4", "4x4"): {"unit id", "label", "span"},
    ("か", "が"): set(),
    ("7½", "71/2"): set(),
    ("10²", "102"): set(),
    ("7", "007"): set(),
    ("l", "1"): set(),
    ("5 µg", "5 mg"): set(),
    ("ab", "a-b"): set(),
}
"""Two texts, and the uses that take them for equal."""


@pytest.mark.parametrize("pair", DISTINCTIONS)
def test_what_a_use_distinguishes(pair: tuple[str, str]) -> None:
    one, other = pair
    assert {name for name, reading in READINGS.items() if reading.fold(one) == reading.fold(other)} == DISTINCTIONS[
        pair
    ]


@every_reading
@settings(max_examples=300)
@given(texts)
def test_a_folded_text_stays_as_it_is(reading: Reading, text: str) -> None:
    folded = reading.fold(text)
    assert reading.fold(folded) == folded
    assert reading.fold(unicodedata.normalize("NFD", text)) == reading.fold(unicodedata.normalize("NFC", text))


@settings(max_examples=300)
@given(st.text(alphabet=st.characters(categories=["L", "M", "N", "P", "Z"])))
def test_case_makes_no_difference_to_labels(text: str) -> None:
    """For normalised texts: in others, folding may turn a misplaced iota below into a letter too early."""
    normal = unicodedata.normalize("NFKC", text)
    assert LABEL.fold(normal.casefold()) == LABEL.fold(normal)


@every_reading
@pytest.mark.lengthy
def test_every_character_is_folded_once(reading: Reading) -> None:
    assert [one for one in ALL if reading.fold(reading.fold(one)) != reading.fold(one)] == []


@given(texts)
def test_places_of_a_folded_text(text: str) -> None:
    normal = unicodedata.normalize("NFC", text)
    for folded, places in SPAN.alignments(normal):
        assert len(folded) == len(places)
        assert places == sorted(places)
        assert set(places) <= set(range(len(normal)))
    folded, places = SPAN.alignments(normal)[0]
    assert folded == "".join(SPAN.fold(character) for character in normal)
    assert [SPAN.fold(normal[place]).count(one) > 0 for place, one in zip(places, folded, strict=True)].count(
        False
    ) == 0
