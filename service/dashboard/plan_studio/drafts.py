"""Plans to start from, as YAML: made for a knowledge base from its public description, or signed before."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

import yaml

from accounting.ledger.cohorts import CohortStatus
from accounting.tasks import DRAWN
from exemplar_store import KnowledgeBase
from service.pipeline.mechanisms.adapter import ADAPTERS, Adapter
from service.pipeline.mechanisms.keyword_ptr import KeywordPtrAdapter
from service.pipeline.mechanisms.rnm_gaussian import RnmGaussianAdapter
from service.plans.signing import PLACEHOLDERS
from service.records.signed import read_signed

KINDS = {"labels": "one of some labels", "text": "a text"}
_SHOTS, _ENSEMBLE = 4, 100
_ANSWERS = {"labels": 500, "text": 100}
_USUAL: dict[str, type[Adapter[Any, Any]]] = {"labels": RnmGaussianAdapter, "text": KeywordPtrAdapter}


@dataclass(frozen=True)
class Choices:
    """The common case, as a form asks for it; whatever is empty gets a sensible value."""

    kind: str = "labels"
    task: str = ""
    answer_field: str = ""
    labels: str = ""
    instruction: str = ""
    epsilon: str = ""
    answers: str = ""


def chosen(query: Mapping[str, str]) -> Choices:
    """The choices in an address."""
    given = {name: query[name].strip() for name in Choices.__dataclass_fields__ if query.get(name)}
    choices = Choices(**given)
    return choices if choices.kind in KINDS else Choices(**(given | {"kind": "labels"}))


def starting_text(described: KnowledgeBase, status: CohortStatus, choices: Choices) -> str:
    """A plan in YAML that can be signed as it is, but for the labels, which nobody may read from the exemplars.

    Half of what is free of the budget, so that a later plan has some; sets so small that a unit seldom takes part.

    Args:
        described: for its fields and its public size.
        status: for what is free.
        choices: what the admin wants.
    """
    embedded = described.embedded_field
    answer = choices.answer_field or next((field for field in reversed(described.fields) if field != embedded), "label")
    asked = [field for field in described.fields if field != answer]
    shown = "\n".join(f"{_title(field)}: {{{field}}}" for field in asked)
    ensemble = min(_ENSEMBLE, max(10, described.public_size // (10 * _SHOTS)), described.public_size)
    shots = max(1, min(_SHOTS, described.public_size // ensemble))
    if choices.kind == "labels":
        labels = [label.strip() for label in choices.labels.replace("\n", ",").split(",") if label.strip()]
        what = [
            "kind: classify",
            "# All there are, as the exemplars have them.",
            f"labels: {_flow(labels or PLACEHOLDERS)}",
            f"label_field: {_text(answer)}",
        ]
        instruction = choices.instruction or "Answer with one of the labels."
    else:
        what = ["kind: generate", f"response_field: {_text(answer)}"]
        instruction = choices.instruction or "Answer briefly, in the way of the examples."
    task = [
        *what,
        "prompt:",
        f"  instruction: {_text(instruction)}",
        f"  exemplar: {_text(f'{shown}{chr(10)}{_title(answer)}: {{{answer}}}')}",
        f"  query: {_text(f'{shown}{chr(10)}{_title(answer)}:')}",
        "# Exemplars in a slot, on average.",
        f"shots: {shots}",
        "# Slots that an answer is drawn from.",
        f"ensemble: {ensemble}",
        "# How many, for the plan's whole life.",
        f"answers: {choices.answers or _ANSWERS[choices.kind]}",
        *_mechanisms(_USUAL[choices.kind]),
    ]
    return "\n".join(
        [
            f"knowledge_base: {described.name}",
            "# Taken from the lifetime budget, for ever.",
            f"budget: {{epsilon: {choices.epsilon or _half(status.free_epsilon)}, delta: {_half(status.free_delta)}}}",
            "tasks:",
            f"  {choices.task or ('label' if choices.kind == 'labels' else 'reply')}:",
            *(f"    {line}" for line in task),
            "",
        ]
    )


def _mechanisms(usual: type[Adapter[Any, Any]]) -> list[str]:
    """The usual mechanism, and as comments the others of its kind that release each answer by itself."""
    others = [
        adapter
        for adapter in ADAPTERS.values()
        if adapter.schema.kind == usual.schema.kind and not adapter.schema.once and adapter is not usual
    ]
    return [
        f"# {usual.about}",
        _mechanism(usual),
        *(f"# {line}" for other in others for line in (other.about, _mechanism(other))),
    ]


def _mechanism(adapter: type[Adapter[Any, Any]]) -> str:
    written = adapter.example.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump({"mechanism": written}, default_flow_style=None, sort_keys=False, width=200).rstrip()


def signed_text(document: str) -> str:
    """A signed plan as YAML, to be changed.

    Args:
        document: of :class:`accounting.ledger.budgets.SignedPlan`.
    """
    plan = read_signed(document).plan
    unwritten: Any = {"tasks": {name: DRAWN for name, task in plan.tasks.items() if task.once}}
    written = plan.model_dump(mode="json", exclude_defaults=True, exclude=unwritten)
    return yaml.dump(written, Dumper=_Readable, sort_keys=False, allow_unicode=True)


class _Readable(yaml.SafeDumper):
    """Writes texts of several lines as such."""


def _lines(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


_Readable.add_representer(str, _lines)


def _half(free: Decimal) -> str:
    """Half, rounded down to two digits."""
    half = Context(prec=2, rounding=ROUND_DOWN).create_decimal(max(free, Decimal(0)) / 2).normalize()
    return f"{half:f}" if half >= Decimal("0.001") else f"{half:e}"


def _title(field: str) -> str:
    return field.replace("_", " ").capitalize()


def _text(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)  # JSON's strings are YAML's, too


def _flow(values: Sequence[Any]) -> str:
    return f"[{', '.join(map(_text, values))}]"
