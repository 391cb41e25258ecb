"""The text ledger: a text is drawn once for its owner, its cost is counted once, and a cap holds."""

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from unittest.mock import Mock

import pytest
import sqlalchemy as sa

from sanitization.text import TextSanitizer, open_sanitizer
from service.records import text_ledger
from service.records.database import open_database
from service.records.schema import migrate
from service.records.text_ledger import TextBudgetExhaustedError, TextCost, TextLedger
from tests.sanitization.made_up import letter_words

SECRET = bytes(range(32))
TEXT = "bdf, bdg and bdh saw 12 of them"  # three words


@pytest.fixture(scope="module")
def sanitizer(tmp_path_factory: pytest.TempPathFactory) -> TextSanitizer:
    return opened(tmp_path_factory.mktemp("tables"), 1.0)


def opened(folder: Path, epsilon: float) -> TextSanitizer:
    words = letter_words(200)
    return open_sanitizer("nearest_rr", words, epsilon, folder, keep=["stopwords", "punctuation"])


@pytest.fixture
def database(engine: sa.Engine) -> sa.Engine:
    migrate(engine)
    return engine


def test_a_text_is_drawn_once_and_costs_once(database: sa.Engine, sanitizer: TextSanitizer) -> None:
    ledger = TextLedger(database, SECRET)
    (first,), cost = ledger.sanitize(sanitizer, [TEXT], owner="ann", conversation="today")
    assert cost == TextCost(1, 4, first.epsilon_text)
    assert first.epsilon_text == 4 * sanitizer.epsilon  # "saw" is a word, too
    database.dispose()
    for conversation in ("today", "tomorrow", ""):
        assert TextLedger(database, SECRET).sanitize(
            sanitizer, [TEXT, TEXT], owner="ann", conversation=conversation
        ) == ([first, first], TextCost(0, 0, 0.0))
    assert ledger.cost("ann") == ledger.cost("ann", "today") == cost
    assert ledger.cost("ann", "tomorrow") == TextCost(0, 0, 0.0)


def test_whose_text_and_how_it_is_sanitised_matter(database: sa.Engine, sanitizer: TextSanitizer, tmp_path) -> None:
    """With 200 words at ε = 1 two draws of 40 words are equal once in 10⁵⁰."""
    ledger, text = TextLedger(database, SECRET), "bdf " * 40
    asked = [
        ("ann", sanitizer, text),
        ("bob", sanitizer, text),
        ("ann", opened(tmp_path, 1.5), text),
        ("ann", sanitizer, text[:-1]),
    ]
    drawn = {ledger.sanitize(how, [what], owner=who)[0][0].text.strip() for who, how, what in asked}
    assert len(drawn) == len(asked)
    assert ledger.cost("bob") == TextCost(1, 40, 40 * sanitizer.epsilon)
    assert ledger.cost("ann").texts == 3


def test_the_cap_holds_for_all_conversations_together(database: sa.Engine, sanitizer: TextSanitizer) -> None:
    """It refuses a batch as a whole, but nothing that is free."""
    ledger = TextLedger(database, SECRET, cap=9 * sanitizer.epsilon)
    (first,), _ = ledger.sanitize(sanitizer, [TEXT], owner="ann", conversation="today")
    ledger.sanitize(sanitizer, ["bdf bdg bdh"], owner="ann", conversation="tomorrow")
    for texts in (["bdj bdk bdl"], ["bdm", "bdf bdj", "bdm"]):
        with pytest.raises(TextBudgetExhaustedError, match=r"ε = 3, .* 9"):
            ledger.sanitize(sanitizer, texts, owner="ann")
    assert ledger.cost("ann").words == 7
    assert ledger.sanitize(sanitizer, [TEXT, "19 of them"], owner="ann")[0][0] == first
    assert ledger.sanitize(sanitizer, ["bdm", "bdn"], owner="ann")[1].words == 2
    assert ledger.cost("ann").words == 9
    ledger.sanitize(sanitizer, ["bdj bdk bdl"], owner="bob")


def test_a_text_without_an_owner_does_not_escape_the_cap(database: sa.Engine, sanitizer: TextSanitizer) -> None:
    with pytest.raises(ValueError, match="name"):
        TextLedger(database, SECRET, cap=1).sanitize(sanitizer, [TEXT], owner="")


def test_threads_get_one_text_and_one_charge(database: sa.Engine, sanitizer: TextSanitizer) -> None:
    ledger = TextLedger(database, SECRET)
    batches = [[f"bdf bd{c}" for c in order] for order in ("bcdfghjk", "kjhgfdcb")] * 8
    with ThreadPoolExecutor(8) as pool:
        done = list(pool.map(lambda texts: ledger.sanitize(sanitizer, texts, owner="ann")[0], batches))
    found = {}
    for texts, given in zip(batches, done, strict=True):
        for text, one in zip(texts, given, strict=True):
            assert found.setdefault(text, one.text) == one.text
    assert ledger.cost("ann") == TextCost(8, 16, pytest.approx(16 * sanitizer.epsilon))


def test_what_is_not_stored_is_not_given(database: sa.Engine, sanitizer: TextSanitizer, monkeypatch) -> None:
    """A fault after the draw: neither a text nor a charge."""

    with monkeypatch.context() as patched:
        patched.setattr(text_ledger, "_add", Mock(side_effect=OSError("no space left")))
        with pytest.raises(OSError, match="no space left"):
            TextLedger(database, SECRET).sanitize(sanitizer, [TEXT], owner="ann")
    assert TextLedger(database, SECRET).cost("ann") == TextCost(0, 0, 0.0)
    assert TextLedger(database, SECRET).sanitize(sanitizer, [TEXT], owner="ann")[1].words == 4


def test_the_database_holds_no_raw_text(tmp_path: Path, sanitizer: TextSanitizer) -> None:
    database = open_database(f"sqlite:///{tmp_path / 'texts.sqlite'}")
    migrate(database)
    secrets = [f"diagnosis{letter}" for letter in "abcdefgh"]
    TextLedger(database, SECRET).sanitize(sanitizer, [" ".join(secrets)], owner="ann")
    database.dispose()
    content = b"".join(file.read_bytes() for file in tmp_path.iterdir())
    assert b"ann" in content
    assert b"diagnosis" not in content
