"""Whether two who act are one, as far as the trail can tell."""

import pytest

from accounting.ledger.events import KeyCreated, KeyRotated, PersonSignedIn
from accounting.ledger.two_persons import Hands

JANE = "7 at https://a.example"


@pytest.fixture
def known() -> Hands:
    """Two first keys of the command line, their keys' keys, and a person's."""
    hands = Hands()
    for key, by in (("ana", "root"), ("bo", "root"), ("ana's", "ana"), ("ana's own", "ana's"), ("bo's", "bo")):
        hands.note(KeyCreated(key=key, name=key, role="admin", quota=None, by=by))
    hands.note(PersonSignedIn(by=JANE, issuer="https://a.example", subject="7", role="admin"))
    hands.note(KeyCreated(key="jane's", name="jane", role="admin", quota=None, by=JANE))
    hands.note(KeyCreated(key="old", name="of before keys had makers", role="admin", quota=None))
    return hands


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("ana", "ana", True),
        ("ana", "bo", False),  # though the command line made both
        ("ana", "ana's", True),
        ("ana's own", "ana", True),
        ("ana's", "bo's", False),
        (JANE, "jane's", True),
        (JANE, "ana", False),
        (JANE, "8 at https://a.example", False),
        ("root", "root", True),
        ("root", "ana", False),
        ("old", "ana", False),
    ],
)
def test_whoever_made_a_key_is_one_with_it(known: Hands, one: str, other: str, same: bool) -> None:
    assert known.are_one(one, other) is known.are_one(other, one) is same


def test_whoever_made_or_rotated_both_may_be_behind_both(known: Hands) -> None:
    known.note(KeyCreated(key="second", name="second", role="admin", quota=None, by="ana"))
    assert known.are_one("second", "ana's")
    assert not known.are_one("second", "bo's")
    known.note(KeyRotated(key="bo's", token_sha256="0" * 64, until=None, by="ana's"))
    assert known.are_one("second", "bo's")
    assert known.are_one("ana", "bo's")
    assert not known.are_one("ana", "bo")
