"""Made-up facts: 100 invented products, 60 reviews of each, and a question that only its reviews answer.

    python research/studies/products.py DATA

Writes ``DATA/products``, one knowledge base of all reviews, and ``DATA/topics/NAME``, one for each product. A review
states each of its product's three facts rightly with a chance of 70 % and wrongly with 10 %. Each person writes once.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

PRODUCTS, REVIEWS, RIGHT, WRONG = 100, 60, 0.7, 0.1
STARTS = ("Vel", "Tor", "Qui", "Mar", "Zan", "Pel", "Bri", "Dov", "Lum", "Kes")
ENDS = ("mo", "nik", "ra", "sta", "vex", "lo", "dar", "bel", "tiq", "wen")
THINGS = ("lamp", "kettle", "chair", "backpack", "radio", "blender", "clock", "scooter", "umbrella", "bench")
KINDS: Mapping[str, tuple[str, Sequence[str], Sequence[str]]] = {
    "colour": (
        "What colour is the {product}?",
        ("teal", "amber", "crimson", "violet", "ivory", "olive", "turquoise", "maroon"),
        ("It is {fact}.", "The colour is {fact}.", "Mine is {fact}, as ordered.", "The {fact} colour suits our home."),
    ),
    "material": (
        "What is the {product} made of?",
        ("bamboo", "brass", "walnut", "copper", "cork", "steel", "marble", "wool"),
        ("It is made of {fact}.", "They made it of {fact}.", "All of it is {fact}.", "The {fact} feels solid."),
    ),
    "origin": (
        "Where is the {product} made?",
        ("Portugal", "Norway", "Vietnam", "Chile", "Latvia", "Morocco", "Ireland", "Peru"),
        ("It is made in {fact}.", "The label says made in {fact}.", "Made in {fact}.", "It comes from {fact}."),
    ),
}
OPINIONS = (
    "I like it.",
    "It arrived quickly.",
    "Good for the price.",
    "My sister wants one too.",
    "A bit heavy.",
    "I use it every day.",
    "The box was damaged.",
    "Better than my old one.",
)


def review(facts: Mapping[str, str], rng: random.Random) -> str:
    """One person's review of a product, facts in any order."""
    said = [rng.choice(OPINIONS)]
    for kind, (_, values, sentences) in KINDS.items():
        luck = rng.random()
        others = [value for value in values if value != facts[kind]]
        if luck < RIGHT + WRONG:
            said.append(rng.choice(sentences).format(fact=facts[kind] if luck < RIGHT else rng.choice(others)))
    rng.shuffle(said)
    return " ".join(said)


def write(folder: Path, seed: int = 7) -> None:
    """Both sets; the same ones for the same seed."""
    rng = random.Random(seed)
    names = rng.sample([start + end for start in STARTS for end in ENDS], PRODUCTS)
    train, test = [], []
    for number, name in enumerate(names):
        product = f"{name} {THINGS[number % len(THINGS)]}"
        facts = {kind: rng.choice(values) for kind, (_, values, _) in KINDS.items()}
        asked = rng.choice(list(KINDS))
        about = {"product": product, "question": f"What is the {product} like?"}
        reviews = [{"id": f"{name}-{i}", **about, "answer": review(facts, rng)} for i in range(REVIEWS)]
        question = {**about, "question": KINDS[asked][0].format(product=product), "answer": facts[asked]}
        train += reviews
        test.append(question)
        write_rows(folder / "topics" / name, reviews, [question])
    rng.shuffle(train)
    write_rows(folder / "products", train, test)


def write_rows(folder: Path, train: Sequence[Mapping[str, str]], test: Sequence[Mapping[str, str]]) -> None:
    """A folder as ``dpicl eval`` reads it."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, rows in (("train", train), ("test", test)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
