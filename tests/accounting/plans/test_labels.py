"""Labels are compared by what people read."""

import unicodedata

import pytest

from accounting.plans.labels import LONGEST_SPELLING, check_distinct, spellings

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
    assert spellings(LABELS).number("配送" + " " * (LONGEST_SPELLING - 2)) == 2
    assert spellings(LABELS).number("配送" + " " * (LONGEST_SPELLING - 1)) is None


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
