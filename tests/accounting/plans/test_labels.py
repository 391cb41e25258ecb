"""Labels are compared by what people read."""

import unicodedata

import pytest

from accounting.plans.labels import check_distinct, codes, spellings

LABELS = ("Réclamation", "Livraison express", "配送")
SPELLINGS = {
    "as written": "Réclamation",
    "typed on a Mac": unicodedata.normalize("NFD", "Réclamation"),
    "a space behind": "Réclamation ",
    "a no-break space behind": "Réclamation\xa0",
    "a byte order mark in front": "\ufeffRéclamation",
    "a soft hyphen": "Récla\xadmation",
    "small": "réclamation",
    "capitals": "RÉCLAMATION",
    "full width": "Ｒéclamation",
    "a Cyrillic letter": "Réсlamation",
}


@pytest.mark.parametrize("text", SPELLINGS.values(), ids=SPELLINGS)
def test_a_label_is_found_however_it_is_spelt(text: str) -> None:
    known = spellings(LABELS)
    assert known.number(text) == 0
    assert known.spelt(text) == "Réclamation"


def test_white_space_within_a_label_is_one_space() -> None:
    assert spellings(LABELS).number("livraison\n  EXPRESS") == 1


@pytest.mark.parametrize("text", ["Can’t log in", "can`t log in", "CAN´T LOG IN", "Canʼt\u202flog in"])
def test_punctuation_that_looks_alike_is_one(text: str) -> None:
    known = spellings(("Follow-up", "Can't log in"))
    assert known.number(text) == 1
    assert known.number("follow\u2011up") == known.number("Follow–Up") == 0


@pytest.mark.parametrize("text", ["Reclamation", "Réclamations", "Livraisonexpress", "", " ", "配 送"])
def test_other_texts_are_not_labels(text: str) -> None:
    assert spellings(LABELS).number(text) is None
    assert spellings(LABELS).spelt(text) == text
    assert spellings(LABELS).number(None) is None


def test_texts_that_are_far_too_long_are_not_read() -> None:
    """Otherwise comparing would take longer for one exemplar than for another."""
    known = spellings(LABELS)
    assert known.number("配送" + " " * (known.longest - 2)) == 2
    assert known.number("配送" + " " * (known.longest - 1)) is None


def test_ligatures_that_are_far_too_long_are_not_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    """The slowest character stands for 18 letters: a text of it took two thousand times as long as a label."""
    known, compared = spellings(LABELS), []
    monkeypatch.setattr("accounting.plans.labels.plain", lambda text: compared.append(text) or "")
    for text in ("\ufdfa" * known.longest, "\ufdfa" * 5):
        assert known.number(text) is None
    assert compared == []
    assert known.number("\ufdfa") is None
    assert compared == ["\ufdfa"]


@pytest.mark.parametrize("label", ["ﷺ", "x" * 200, "ﬃ" * 60, "각" * 100])
def test_every_spelling_of_a_long_label_is_found(label: str) -> None:
    known = spellings((label, "other"))
    for text in (label, unicodedata.normalize("NFKD", label), f"{' ' * 9}{label.upper()}{' ' * 9}"):
        assert known.number(text) == 0


@pytest.mark.parametrize(
    ("labels", "named"),
    [
        (["Billing", "Billing "], "are one"),
        (["Billing", "billing"], "are one"),
        ([LABELS[0], unicodedata.normalize("NFD", LABELS[0])], "are one"),
        (["straße", "STRASSE"], "are one"),
        ([" ", "A"], "is empty"),
        (["\u200b", "A"], "is empty"),
        (["Can't log in", "Can’t log in"], "are one"),
        (["A-B", "A–B"], "are one"),
        (["A", "А"], "are one"),
        ([" A", "B"], "NFC"),
    ],
)
def test_indistinguishable_labels_are_refused(labels: list[str], named: str) -> None:
    with pytest.raises(ValueError, match=f"labels: .*{named}"):
        check_distinct("labels", labels)


def test_distinguishable_labels_are_accepted() -> None:
    check_distinct("labels", ["C", "C++", "C#", "1", "11", "❤️", "💔", "5 µg", "5 mg", "A*", "A", *LABELS])


@pytest.mark.parametrize(
    ("labels", "found"),
    [
        (["A12", "B07.1"], ["A12", "B07.1"]),
        (["T1", "T2", "other"], ["T1", "T2"]),
        (["1", "2", "3"], ["1", "2", "3"]),
        (["COVID-19", "influenza", "measles"], []),
        (["team 1", "team 2"], []),
        (["GERD", "PSVT"], []),
        (["да 1", "нет 2"], []),
        (["第1", "第2"], []),
        (["yes", "no"], []),
    ],
)
def test_labels_that_read_as_codes_are_found(labels: list[str], found: list[str]) -> None:
    assert codes(labels) == found
