"""The sets of :mod:`research.studies.token_ensemble`, and the plans by which they are asked."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any

import yaml

from accounting.plans.plan import Plan, TaskNoise, parse_plan
from accounting.plans.tasks import GenerateTask
from accounting.privacy.accountants import get_accountant
from accounting.privacy.calibration import Grant
from accounting.privacy.events import Sampling
from research.evaluation.evaluator import noise_of
from service.answering.mechanisms.adapter import answer_adapter_of

TASK, TOKENS = "answer", 32
MECHANISMS = {"token_ensemble": {"tokens": TOKENS}, "keyword_ptr": {"k_min": 1, "k_max": 8}}
BASE = "token_ensemble:8"


@dataclass(frozen=True)
class TextSet:
    """A set: a folder with ``train.jsonl`` and ``test.jsonl``, or one of such folders, each a knowledge base.

    Attributes:
        instruction: instruction of the prompt.
        query: query of the prompt; an exemplar is the same and its answer.
        answer: field of exemplars that holds the answer.
        sizes: sizes of the task.
        facts: field of test rows with words that only exemplars know, if there is one.
        right: field of test rows with the right answer, if there is one.
        unit_id: column that names the privacy unit.
        delta: δ of the plan.
    """

    instruction: str
    query: str
    answer: str
    sizes: Mapping[str, int]
    facts: str = ""
    right: str = ""
    unit_id: str = "id"
    delta: float = 1e-4


_LARGE = {"ensemble": 40, "answers": 100, "candidates": 1}
_TICKETS = "Answer the ticket as Brookfern's support does, in two sentences.", "Ticket: {text}\nReply:", "reply"
_CHATS = "Summarize each dialogue in one or two short sentences.", "Dialogue:\n{dialogue}\nSummary:", "summary"
_REVIEWS = "Answer the question about the product.", "Question: {question}\nAnswer:", "answer"
DATA = {
    "support": TextSet(*_TICKETS, {**_LARGE, "shots": 4, "slot_tokens": 400}, facts="house_rule", unit_id="unit_id"),
    "samsum": TextSet(*_CHATS, {**_LARGE, "shots": 2, "slot_tokens": 500}, right="summary", delta=5e-5),
    "products": TextSet(*_REVIEWS, {**_LARGE, "shots": 4, "slot_tokens": 240}, facts="answer"),
    "topics": TextSet(
        *_REVIEWS, {**_LARGE, "ensemble": 30, "answers": 1, "shots": 2, "slot_tokens": 240}, facts="answer"
    ),
}


def planned(name: str, condition: str) -> Plan:
    """A condition's plan. A condition without a mechanism has the plan of :data:`BASE`."""
    data = DATA[name]
    mechanism, _, rest = (condition if ":" in condition else BASE).partition(":")
    epsilon, *changes = rest.split(",")
    prompt = {"instruction": data.instruction, "exemplar": f"{data.query} {{{data.answer}}}", "query": data.query}
    task: dict[str, Any] = {"kind": "generate", "prompt": prompt, "response_field": data.answer, **data.sizes}
    task["mechanism"] = {"type": mechanism, **MECHANISMS[mechanism]}
    for key, _, value in (change.partition("=") for change in changes):
        (task if key in task else task["mechanism"])[key] = yaml.safe_load(value)
    budget = {"epsilon": float(epsilon), "delta": data.delta}
    return parse_plan({"knowledge_base": name, "budget": budget, "tasks": {TASK: task}})


@cache
def signed(name: str, condition: str, size: int) -> tuple[GenerateTask, TaskNoise, float]:
    """A task, its noise, and the ε that its answers cost: no more than they can, whatever they are granted."""
    plan = planned(name, condition)
    task, epsilon, delta = plan.tasks[TASK], plan.budget.epsilon, plan.budget.delta
    assert isinstance(task, GenerateTask)
    sampling = Sampling(task.sampling, task.sampling_probability(size))
    family = task.mechanism.family(delta, task.answers, sampling.probability, task.ensemble)
    if math.isfinite(family.most):
        most = Grant(family, sampling, task.answers).event(1e6)
        epsilon = min(epsilon, get_accountant(plan.accountant).bounds([most], delta).upper)
    return task, noise_of(plan, TASK, task, size, epsilon), epsilon


def cost(name: str, condition: str, size: int) -> str:
    """Cost of a condition's answers, and the clip and weight that it allows slots."""
    task, noise, epsilon = signed(name, condition, size)
    told = answer_adapter_of(task, noise).outlook().noise
    return ", ".join(f"{value:.2f}" for value in (epsilon, *(told[key] for key in ("clip", "weight") if key in told)))
