"""Support tickets of Brookfern, a company that exists only here: the example's private side, and the synthetic mode's.

Brookfern sells self-watering plant pots with an app, and sends seed boxes by subscription. Its queues bear the
nicknames of its teams, which tell only half of what they do, and every team has a house rule that its replies state:
that is what exemplars know and zero-shot answers do not. The same tickets every time.
"""

from __future__ import annotations

import random

from service.synthetic.replies import CORE_MATTERS, GREETINGS, MATTERS, RULES, SIGN_OFFS
from service.synthetic.wording import CLOSERS, CONTEXTS, CORES, DETAILS, OPENERS, VALUES

FIELDS = ("text", "queue", "desk", "reply")
SEED = 20_000_507
CUSTOMERS = 250
TICKETS = 900
MOST_PER_CUSTOMER = 9
# Whether a ticket is answered at a desk or needs somebody with the goods in hand.
DESK = {"Ledger": "Office", "Wheels": "Workshop", "Keys": "Office", "Greenhouse": "Workshop", "Farewell": "Office"}


def customers(rng: random.Random) -> list[str]:
    """One customer per ticket, in order: everyone writes once, some write often."""
    names = [f"customer-{number:04d}" for number in sorted(rng.sample(range(1000, 9999), CUSTOMERS))]
    appetite = {name: rng.paretovariate(1.3) for name in names}
    written = dict.fromkeys(names, 1)
    while sum(written.values()) < TICKETS:
        name = rng.choices(names, [appetite[n] for n in names])[0]
        if written[name] < MOST_PER_CUSTOMER:
            written[name] += 1
    tickets = [name for name in names for _ in range(written[name])]
    rng.shuffle(tickets)
    return tickets


def draw_values(rng: random.Random) -> dict[str, str]:
    """A value for each ``{placeholder}``."""
    return {name: rng.choice(values) for name, values in VALUES.items()}


def fill(template: str, rng: random.Random) -> str:
    """Replace each ``{placeholder}`` by one of its values."""
    return template.format_map(draw_values(rng))


def misspell(text: str, rng: random.Random) -> str:
    """What hurried thumbs do to one or two words: swap, drop or double a letter."""
    words = text.split(" ")
    for place in rng.sample(range(len(words)), k=min(len(words), rng.choice([1, 1, 2]))):
        word = words[place]
        if len(word) < 5 or not word.isalpha():
            continue
        i = rng.randrange(1, len(word) - 2)
        words[place] = rng.choice(
            [word[:i] + word[i + 1] + word[i] + word[i + 2 :], word[:i] + word[i + 1 :], word[:i] + word[i] + word[i:]]
        )
    return " ".join(words)


def tone(text: str, rng: random.Random) -> str:
    """Some people write without capitals, some shout the end, most do neither."""
    match rng.random():
        case r if r < 0.15:
            return text.lower()
        case r if r < 0.20:
            return text.rstrip(".?!") + "!!"
        case r if r < 0.24:
            return text.upper()
    return text


def reply(queue: str, matter: str, values: dict[str, str], rng: random.Random) -> str:
    """What the staff answer: the matter and the team's house rule, in either order, perhaps a greeting and a name."""
    parts = [rng.choice(MATTERS[matter].wordings).format_map(values), rng.choice(RULES[queue].wordings)]
    if rng.random() < 0.3:
        parts.reverse()
    if rng.random() < 0.4:
        parts.insert(0, rng.choice(GREETINGS))
    if rng.random() < 0.4:
        parts.append(rng.choice(SIGN_OFFS))
    return " ".join(parts)


def ticket(customer: str, queue: str, rng: random.Random, staff: random.Random) -> dict[str, str]:
    """One ticket: the matter, perhaps with a detail, a greeting, some context and a closing; and its reply."""
    core = rng.choice(CORES[queue])
    values = draw_values(rng)
    parts = [core.format_map(values)]
    if rng.random() < 0.8:
        parts.append(fill(rng.choice(DETAILS[queue]), rng))
    if rng.random() < 0.35:
        parts.insert(0, fill(rng.choice(CONTEXTS), rng))
    if rng.random() < 0.5:
        parts.insert(0, fill(rng.choice(OPENERS), rng))
    if rng.random() < 0.5:
        parts.append(fill(rng.choice(CLOSERS), rng))
    text = " ".join(parts)
    if rng.random() < 0.3:
        text = misspell(text, rng)
    matter = dict(zip(CORES[queue], CORE_MATTERS[queue].split(), strict=True))[core]
    answered = reply(queue, matter, values, staff)
    return {"unit_id": customer, "text": tone(text, rng), "queue": queue, "desk": DESK[queue], "reply": answered}


def tickets() -> list[dict[str, str]]:
    """All tickets, each with its ``unit_id`` and the fields; no two share their text."""
    rng, staff = random.Random(SEED), random.Random(SEED + 1)  # (made-up data)  # nosec B311
    queues = list(CORES)
    seen: set[str] = set()
    rows = []
    for customer in customers(rng):
        queue = rng.choice(queues)
        row = ticket(customer, queue, rng, staff)
        while row["text"] in seen:
            row = ticket(customer, queue, rng, staff)
        seen.add(row["text"])
        rows.append(row)
    return rows
