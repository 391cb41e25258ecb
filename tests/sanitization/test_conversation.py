"""Personal data in a conversation, then the draws, then the answer."""

import json
import re
import sys
import threading
from collections.abc import Iterable
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from sanitization.conversation import Conversation, Find, StreamRestorer
from sanitization.text import TextSanitizer, open_sanitizer
from tests.sanitization.made_up import Entity, keeping_placeholders, letter_words

NAMES = re.compile("Ann Lee|Lee|Bo")


def names(text: str) -> Iterable[Entity]:
    return [Entity("PERSON", *match.span()) for match in NAMES.finditer(text)]


@pytest.fixture(scope="module")
def sanitizer(tmp_path_factory: pytest.TempPathFactory) -> TextSanitizer:
    return keeping_placeholders(tmp_path_factory.mktemp("cache"))


def test_placeholders_are_stable_and_only_words_are_drawn(sanitizer: TextSanitizer) -> None:
    talk = Conversation(sanitizer, names)
    first = talk.sanitize("Bo owes Ann Lee bcd, not Bo's bcf.")
    drawn = r"[a-z]{3}"
    assert re.fullmatch(rf"<PERSON_1> {drawn} <PERSON_2> {drawn}, not <PERSON_1>'s {drawn}\.", first.text)
    assert first.charged == 3
    second = talk.sanitize("Lee and Ann Lee")
    assert second.text == "<PERSON_3> and <PERSON_2>"
    assert talk.epsilon == pytest.approx(3 * sanitizer.epsilon)
    assert talk.restore("<PERSON_2> pays <PERSON_3>, <PERSON_4>, <BR>") == "Ann Lee pays Lee, <PERSON_4>, <BR>"
    assert Conversation(sanitizer, names).sanitize("Lee").text == "<PERSON_1>", "another conversation knows nothing"


REWRITTEN = (
    "<PERSON_1>",
    "<person_1>",
    "<Person 1>",
    "< PERSON_1 >",
    "[PERSON_1]",
    "[Person-1]",
    "{PERSON_1}",
    "＜PERSON_1＞",
    r"\<PERSON\_1\>",
    r"\[PERSON_1\]",
    "&lt;PERSON_1&gt;",
    r"\u003cPERSON_1\u003e",
    "**<PERSON_1>**",
)


@pytest.mark.parametrize("written", REWRITTEN)
def test_a_placeholder_that_a_model_wrote_in_another_way_is_restored(sanitizer: TextSanitizer, written: str) -> None:
    talk = Conversation(sanitizer, names)
    talk.sanitize("Lee and Bo")
    answer = f"a {written}, {written}'s b"
    expected = "a **Lee**, **Lee**'s b" if "*" in written else "a Lee, Lee's b"
    assert talk.restore(answer) == expected
    restoring = StreamRestorer(talk)
    assert "".join([*map(restoring.add, answer), restoring.end()]) == expected


def test_what_only_resembles_a_placeholder_stays(sanitizer: TextSanitizer) -> None:
    talk = Conversation(sanitizer, names)
    talk.sanitize("Lee and Bo")
    for text in (
        "PERSON_1",
        "person 1",
        "<PERSON_3>",
        "<PERSON_01>",
        "[1]",
        "<PERSON>",
        "<PERSON_1",
        "<PERSON_1]",
        "[b 1]",
    ):
        assert talk.restore(f"a {text} b") == f"a {text} b"


def test_an_equal_question_is_not_drawn_again(sanitizer: TextSanitizer) -> None:
    talk = Conversation(sanitizer)
    question = " ".join(["bcd"] * 50)
    assert talk.sanitize(question) is talk.sanitize(question)
    assert talk.epsilon == pytest.approx(50 * sanitizer.epsilon)
    assert Conversation(sanitizer).sanitize(question).text != talk.sanitize(question).text, (
        "chance of equality below 1e-20"
    )


def test_what_looks_like_a_placeholder_does_not_leave(sanitizer: TextSanitizer) -> None:
    talk = Conversation(sanitizer, names)
    sent = talk.sanitize("<SECRET_NAME> and <PERSON_1> and Bo").text
    assert sent == "<QUOTED_1> and <QUOTED_2> and <PERSON_1>"
    assert talk.restore(sent) == "<SECRET_NAME> and <PERSON_1> and Bo"


def test_overlapping_finds_become_one(sanitizer: TextSanitizer) -> None:
    spans = [Entity("PERSON", 4, 11), Entity("CITY", 8, 15), Entity("URL", 5, 6), Entity("URL", 3, 3)]
    talk = Conversation(sanitizer, lambda _: spans)
    assert talk.sanitize("and Ann Lee Bcd and").text == "and <PERSON_1> and"
    assert talk.restore("<PERSON_1>") == "Ann Lee Bcd"


@given(st.lists(st.integers(0, 40), max_size=6))
def test_answers_in_parts_are_restored_as_whole_ones(sanitizer: TextSanitizer, cuts: list[int]) -> None:
    talk = Conversation(sanitizer, names)
    talk.sanitize("Bo")
    answer = "<PERSON_1>: 1<2 <<PERSON_1> <B> <PERSON_1"
    edges = [0, *sorted(min(cut, len(answer)) for cut in cuts), len(answer)]
    parts = [answer[a:b] for a, b in pairwise(edges)]
    restoring = StreamRestorer(talk)
    assert "".join([*map(restoring.add, parts), restoring.end()]) == "Bo: 1<2 <Bo <B> <PERSON_1"


def broken(_: str) -> list[Entity]:
    raise RuntimeError("no model")


@pytest.mark.parametrize(
    ("find", "error"),
    [(broken, "no model"), (lambda _: [Entity("person", 0, 2)], "<person_1>")],
)
def test_without_a_detection_nothing_is_drawn(find: Find, error: str, sanitizer: TextSanitizer) -> None:
    talk = Conversation(sanitizer, find)
    with pytest.raises((RuntimeError, ValueError), match=error):
        talk.sanitize("Bo")
    assert talk.epsilon == 0


def test_a_sanitiser_must_keep_placeholders(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="placeholders"):
        Conversation(open_sanitizer("medoid_rr", letter_words(60), 2, tmp_path))


VALUES = ['Bo "Bob" Lee', "12 Elm St\nBath", "back\\slash", "Zoë"]
ANSWERS = [
    '{"name": "<PERSON_1>", "at": ["<PERSON_2>", "<PERSON_3>"], "n": {"<PERSON_4>": [1]}}',
    'Here it is:\n```json\n[{"a": "<PERSON_1>"}]\n```\nand "<PERSON_1>" again.',
    'First {"a": "<PERSON_3>"}, then ["<PERSON_2>"].',
]
PROSE = [
    "<PERSON_1> and [<PERSON_2>] {<PERSON_3>}",
    'a list ["<PERSON_1>, and no end',
    "[[[[" * 2000 + "<PERSON_1>",
    "{",
    "<PER",
]


def talked(tmp_path: Path) -> Conversation:
    talk = Conversation(
        keeping_placeholders(tmp_path),
        lambda text: [
            Entity("PERSON", text.index(value), text.index(value) + len(value)) for value in VALUES if value in text
        ],
    )
    for value in VALUES:
        talk.sanitize(f"{value} pays")
    return talk


def test_values_in_json_are_written_as_json_writes_them(tmp_path: Path) -> None:
    talk = talked(tmp_path)
    assert json.loads(talk.restore(ANSWERS[0])) == {"name": VALUES[0], "at": VALUES[1:3], "n": {VALUES[3]: [1]}}
    fenced = talk.restore(ANSWERS[1])
    assert json.loads(fenced.split("```")[1].removeprefix("json")) == [{"a": VALUES[0]}]
    assert fenced.endswith(f'and "{VALUES[0]}" again.')
    for text in PROSE:
        expected = text
        for number, value in enumerate(VALUES, 1):
            expected = expected.replace(f"<PERSON_{number}>", value)
        assert talk.restore(text) == expected


@pytest.mark.parametrize("size", [1, 3, 50])
def test_an_answer_in_parts_is_restored_as_a_whole_is(tmp_path: Path, size: int) -> None:
    talk = talked(tmp_path)
    for text in [*ANSWERS, *PROSE[:2], "a [b] {c} <PERSON_1>, d"]:
        stream = StreamRestorer(talk)
        parts = [stream.add(text[at : at + size]) for at in range(0, len(text), size)]
        assert "".join([*parts, stream.end()]) == talk.restore(text)


def test_epsilon_is_read_while_others_ask(tmp_path: Path) -> None:
    talk = Conversation(keeping_placeholders(tmp_path))
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        asking = threading.Thread(target=lambda: [talk.sanitize(f"bcd {number}") for number in range(1500)])
        asking.start()
        while asking.is_alive():
            assert talk.epsilon >= 0
        asking.join()
    finally:
        sys.setswitchinterval(before)
