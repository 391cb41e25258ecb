"""Make Brookfern's 9,000 support tickets, always the same: ``python -m examples.brookfern.make_tickets``.

The firm, its customers and all of its tickets are made up. What people write, and what the staff reply, is put together
of sentences from :mod:`examples.brookfern.texts`. A customer has one product, and one to nine tickets.
"""

import json
import lzma
from collections.abc import Iterator
from pathlib import Path
from random import Random

from examples.brookfern.texts import CLOSERS, EXTRAS, FILLERS, GREETINGS, MATTERS, OPENERS, RULES, SIGNATURES

TICKETS = 9000
FILE = Path(__file__).with_name("tickets.jsonl.xz")
_SEED = 20261127
_TICKETS_OF_A_CUSTOMER = (1, 1, 2, 2, 3, 3, 4, 5, 9)


def tickets() -> list[dict[str, str]]:
    """All tickets: ``unit_id``, ``text``, ``team``, ``product`` and ``reply``; no customer has the same text twice."""
    random = Random(_SEED)
    made: list[dict[str, str]] = []
    for number in random.sample(range(10_000, 100_000), TICKETS):
        product = random.choice(FILLERS["product"])
        for ticket in _of_a_customer(random, product, random.choice(_TICKETS_OF_A_CUSTOMER)):
            made.append({"unit_id": f"customer-{number}", **ticket})
        if len(made) >= TICKETS:
            break
    made = made[:TICKETS]
    random.shuffle(made)
    return made


def _of_a_customer(random: Random, product: str, number: int) -> Iterator[dict[str, str]]:
    for team, problems, answers in random.sample(MATTERS, number):
        values = {name: random.choice(words) for name, words in FILLERS.items()} | {"product": product}
        said = [random.choice(problems)]
        if random.random() < 0.35:
            said.append(random.choice(EXTRAS[team]))
        text = [one.format_map(values) for one in said]
        text = [*_perhaps(random, 0.5, OPENERS), *text, *_perhaps(random, 0.4, CLOSERS)]
        reply = [random.choice(answers).format_map(values), random.choice(RULES[team])]
        reply = [*_perhaps(random, 0.3, GREETINGS), *reply, *_perhaps(random, 0.3, SIGNATURES)]
        yield {"text": _typed(random, " ".join(text)), "team": team, "product": product, "reply": " ".join(reply)}


def _perhaps(random: Random, probability: float, texts: tuple[str, ...]) -> list[str]:
    return [random.choice(texts)] if random.random() < probability else []


def _typed(random: Random, text: str) -> str:
    """A text as people type it: some without capitals, some with two letters exchanged."""
    kind = random.random()
    if kind < 0.15:
        return text.lower()
    if kind < 0.3:
        at = random.randrange(1, len(text) - 2)
        if text[at : at + 2].isalpha():
            return text[:at] + text[at + 1] + text[at] + text[at + 2 :]
    return text


def compressed() -> bytes:
    """The tickets as JSON Lines, compressed by xz."""
    lines = "".join(json.dumps(ticket, ensure_ascii=False) + "\n" for ticket in tickets())
    return lzma.compress(lines.encode(), preset=9 | lzma.PRESET_EXTREME)


if __name__ == "__main__":
    FILE.write_bytes(compressed())
