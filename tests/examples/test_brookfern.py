"""The demo's tickets, questions and plan: reproducible, held out, within ε = 3, and worth their budget."""

import json
import lzma
import math
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from accounting.plans.plan import calibrate_plan, load_plan
from aggregation.keywords import keywords
from examples.brookfern import make_tickets
from examples.brookfern.texts import HOUSE_RULES
from exemplar_store.nearness import cosines, rounded
from service.engines.embedding.embedder import Embedder

FOLDER = Path(make_tickets.__file__).parent
TEAMS = tuple(HOUSE_RULES)


@pytest.fixture(scope="module")
def tickets() -> list[dict[str, str]]:
    with lzma.open(make_tickets.FILE, "rt", encoding="utf-8") as file:
        return [json.loads(line) for line in file]


@pytest.fixture(scope="module")
def questions() -> list[dict[str, str]]:
    return [json.loads(line) for line in (FOLDER / "questions.jsonl").read_text(encoding="utf-8").splitlines()]


@pytest.fixture(scope="module")
def plan():
    return load_plan((FOLDER / "plan.yaml").read_text(encoding="utf-8"))


def test_the_file_is_what_the_generator_makes(tickets) -> None:
    assert make_tickets.tickets() == tickets
    assert len(tickets) == 9000
    assert len({ticket["unit_id"] for ticket in tickets}) >= 2500
    assert set(Counter(ticket["team"] for ticket in tickets)) == set(TEAMS)


def test_a_customer_has_one_product_and_repeats_no_ticket(tickets) -> None:
    products: dict[str, set[str]] = {}
    for ticket in tickets:
        products.setdefault(ticket["unit_id"], set()).add(ticket["product"])
    assert all(len(of_one) == 1 for of_one in products.values())
    assert len({(ticket["unit_id"], ticket["text"]) for ticket in tickets}) == len(tickets)


def test_questions_are_held_out(tickets, questions, plan) -> None:
    assert Counter(question["use"] for question in questions) == {"shown": 24, "check": 60}
    assert Counter(question["team"] for question in questions if question["use"] == "check") == dict.fromkeys(TEAMS, 12)
    asked = {question["text"].lower().rstrip(".?!") for question in questions}
    assert len(asked) == len(questions)
    texts = [ticket["text"].lower() for ticket in tickets] + [text.lower() for text in plan.tasks["team"].public_texts]
    assert not any(question in text for question in asked for text in texts)


def test_only_tickets_know_the_house_rules(tickets, questions, plan) -> None:
    """Their words are in most of the team's replies, in nothing public, and in nothing that customers write."""
    reply, team = plan.tasks["reply"], plan.tasks["team"]
    public = [*reply.public_answers, *team.public_texts, *(question["text"] for question in questions)]
    public += [task.prompt.instruction for task in (reply, team)]
    known = frozenset[str]().union(*map(keywords, public))
    for name, rule in HOUSE_RULES.items():
        assert not known & set(rule)
        replies = [keywords(ticket["reply"]) for ticket in tickets if ticket["team"] == name]
        assert np.mean([set(rule) <= words for words in replies]) > 0.8


def test_the_plan_costs_at_most_3(plan) -> None:
    calibrated = calibrate_plan(plan, public_size=9000)
    assert plan.budget.epsilon <= 3
    assert plan.budget.delta <= 1e-5
    assert calibrated.epsilon["pld"].upper <= plan.budget.epsilon
    assert set(calibrated.noise) == set(plan.tasks)
    assert all(noise.sampling_probability < 0.3 for name, noise in calibrated.noise.items() if name != "classifier")
    assert all(task.candidates == 1 for task in plan.tasks.values() if task.kind == "generate")  # one prompt, not 20
    assert math.isfinite(calibrated.epsilon["pld"].lower)


@pytest.mark.slow
def test_nearest_tickets_reveal_the_team(tickets, questions) -> None:
    """The most common team among the 15 nearest of 300 tickets, without noise."""
    some = tickets[:300]
    embedder = Embedder()
    vectors = rounded(np.asarray(embedder.embed_many([ticket["text"] for ticket in some])))
    asked = rounded(np.asarray(embedder.embed([question["text"] for question in questions])))
    right = 0
    for question, vector in zip(questions, asked, strict=True):
        nearest = np.argsort(-cosines(vectors, vector), kind="stable")[:15]
        right += Counter(some[at]["team"] for at in nearest.tolist()).most_common(1)[0][0] == question["team"]
    assert right / len(questions) > 0.75
