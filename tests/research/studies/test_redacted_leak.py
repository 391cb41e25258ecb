"""Figures of guesses whose rights and wrongs are counted by hand."""

import json
from pathlib import Path

import pytest

from research.studies.redacted_leak import Leak, RedactedQuestion, measure, read

pytestmark = pytest.mark.model

# Answers by how common they are. "Scurvy" is never one.
KNOWN = [
    *[RedactedQuestion("keeps apple", ("ague", "gout"), "ague")] * 12,
    *[RedactedQuestion("keeps berry", ("gout", "palsy"), "gout")] * 6,
    *[RedactedQuestion("keeps cherry", ("palsy", "ague"), "palsy")] * 3,
]
# Rows of five kinds. Comments name the guesses that are right; the guesses are the commonest answer, the commonest
# option, the answer by the text, and the answer by the text and the options.
ASKED = [
    *[RedactedQuestion("keeps apple", ("palsy", "ague"), "ague")] * 8,  # all four
    *[RedactedQuestion("keeps berry", ("palsy", "gout"), "gout")] * 4,  # the last three
    *[RedactedQuestion("keeps berry", ("scurvy", "palsy"), "palsy")] * 3,  # wherever options are known
    *[RedactedQuestion("keeps cherry", ("gout", "palsy"), "palsy")] * 5,  # wherever the text is known
    *[RedactedQuestion("keeps apple and others", ("ague", "palsy"), "palsy")] * 2,  # none
]


def test_each_guess_uses_what_it_knows() -> None:
    assert measure(KNOWN, ASKED) == Leak(
        commonest=8 / 22, commonest_option=15 / 22, text=17 / 22, text_and_options=20 / 22
    )


def test_options_alone_answer_where_the_others_are_rare() -> None:
    """As on Pri-DDXPlus, 93.2 % are right without a look at any text, though the commonest answer is right in few."""
    common = ["ague", "gout", "palsy"] * 310 + ["ague"] * 2
    rare = [RedactedQuestion("", ("ague", "scurvy"), "scurvy")] * 68
    asked = [RedactedQuestion("", (answer, "scurvy"), answer) for answer in common] + rare
    leak = measure(asked, asked)
    assert (leak.commonest, leak.commonest_option) == (0.312, 0.932)
    assert leak.text == leak.commonest


def test_files_are_read_as_published(tmp_path: Path) -> None:
    row = {"question": "all", "question_masked": "some", "options": ["ague", "gout"], "answer": "gout", "id": "1"}
    file = tmp_path / "dev.jsonl"
    file.write_text(json.dumps(row) + "\n")
    assert read(file) == [RedactedQuestion("some", ("ague", "gout"), "gout")]
