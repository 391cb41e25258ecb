"""Write the example's data files, the same bytes every time.

    python examples/support/generate.py [FOLDER]    # tickets.jsonl and questions.jsonl

tickets.jsonl is the private side (``unit_id`` is the customer), made by :mod:`service.synthetic.tickets`;
questions.jsonl is the public, held-out side, written by hand in ``questions.py`` without the tickets' templates.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from questions import QUESTION_MATTERS, QUESTIONS

from service.synthetic.replies import MATTERS, RULES
from service.synthetic.tickets import DESK, tickets


def questions() -> list[dict[str, str]]:
    """The held-out questions with the queue Brookfern's staff would choose and the key words of their reply."""
    return [
        {
            "text": text,
            "queue": queue,
            "desk": DESK[queue],
            "keywords": " ".join(MATTERS[matter].keywords),
            "house_rule": " ".join(RULES[queue].keywords),
        }
        for queue, texts in QUESTIONS.items()
        for text, matter in zip(texts, QUESTION_MATTERS[queue].split(), strict=True)
    ]


def write(folder: Path) -> None:
    """Write both files into a folder."""
    for name, rows in (("tickets.jsonl", tickets()), ("questions.jsonl", questions())):
        lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        (folder / name).write_text(lines, encoding="utf-8", newline="\n")


if __name__ == "__main__":
    write(Path(sys.argv[1]) if len(sys.argv) > 1 else Path(__file__).parent)
