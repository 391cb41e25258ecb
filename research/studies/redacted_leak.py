"""The leakage of redacted texts about the answer by themselves, before any profile is sent.

For data as the authors of PrivacyRestore publish it: JSON Lines with ``question_masked``, ``options`` and ``answer``.
An attacker learns from one file and guesses the answers of another, with and without the redacted text, and with and
without the options that a question names.

    python -m research.studies.redacted_leak DATA/pri_ddxplus/dev.jsonl DATA/pri_ddxplus/test.jsonl
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from research.restore.evaluation import prior


@dataclass(frozen=True)
class RedactedQuestion:
    """A question: its text without spans, the options that it names, and the right one."""

    redacted: str
    options: tuple[str, ...]
    answer: str


@dataclass(frozen=True)
class Leak:
    """Shares of answers that are guessed right."""

    commonest: float
    """Always the commonest answer."""
    commonest_option: float
    """The option that is most often an answer, of those that the question names."""
    text: float
    """The likeliest of all answers, given the redacted text."""
    text_and_options: float
    """The likeliest of the question's options, given the redacted text."""


def measure(known: Sequence[RedactedQuestion], asked: Sequence[RedactedQuestion]) -> Leak:
    """Guess the answers of some questions, knowing others'; ties go to what comes first."""
    counts = Counter(one.answer for one in known)
    answers = [answer for answer, _ in counts.most_common()]
    place = {answer: at for at, answer in enumerate(answers)}
    learnt = np.array([place[one.answer] for one in known])
    found = prior([one.redacted for one in known], learnt, [one.redacted for one in asked], len(answers))

    def right(guesses: Sequence[str]) -> float:
        return float(np.mean([guess == one.answer for guess, one in zip(guesses, asked, strict=True)]))

    return Leak(
        commonest=right([answers[0]] * len(asked)),
        commonest_option=right([max(one.options, key=lambda option: counts[option]) for one in asked]),
        text=right([answers[row.argmax()] for row in found]),
        text_and_options=right(
            [
                max(one.options, key=lambda option: row[place[option]] if option in place else -np.inf)
                for one, row in zip(asked, found, strict=True)
            ]
        ),
    )


def read(file: Path) -> list[RedactedQuestion]:
    """The questions of a file."""
    rows = [json.loads(line) for line in file.read_text(encoding="utf-8").splitlines()]
    return [RedactedQuestion(row["question_masked"], tuple(row["options"]), row["answer"]) for row in rows]


if __name__ == "__main__":
    told = measure(*(read(Path(name)) for name in sys.argv[1:3]))
    print("what an attacker knows                    answers guessed right")
    print(f"nothing                                   {told.commonest:.1%}")
    print(f"the options                               {told.commonest_option:.1%}")
    print(f"the redacted text                         {told.text:.1%}")
    print(f"the redacted text and the options         {told.text_and_options:.1%}")
