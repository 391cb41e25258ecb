"""Plans to start from, as YAML: made for a knowledge base from its public description, or signed before."""

from collections.abc import Mapping
from decimal import ROUND_DOWN, Context, Decimal
from typing import Any

import yaml

from accounting.ledger.cohorts import CohortStatus
from accounting.tasks import unwritten
from exemplar_store import KnowledgeBase
from service.dashboard.templating import render_text
from service.pipeline.mechanisms.adapter import ADAPTERS, Adapter, AnswerAdapter
from service.pipeline.mechanisms.keyword_ptr import KeywordPtrAdapter
from service.pipeline.mechanisms.rnm_gaussian import RnmGaussianAdapter
from service.plans.signing import PLACEHOLDERS
from service.records.signed import read_signed

KINDS = {"labels": "one of some labels", "text": "a text"}
_CHOICES = ("kind", "task", "answer_field", "labels", "instruction", "epsilon", "answers")
_SHOTS, _ENSEMBLE = 4, 100
_USUAL: dict[str, type[Adapter[Any, Any]]] = {"labels": RnmGaussianAdapter, "text": KeywordPtrAdapter}


def chosen(query: Mapping[str, str]) -> dict[str, str]:
    """The common case, as a form asks for it, in an address; whatever is empty gets a sensible value."""
    choices = {name: query.get(name, "").strip() for name in _CHOICES}
    return choices if choices["kind"] in KINDS else choices | {"kind": "labels"}


def starting_text(described: KnowledgeBase, status: CohortStatus, choices: Mapping[str, str]) -> str:
    """A plan in YAML that can be signed as it is, but for the labels, which nobody may read from the exemplars.

    Half of what is free of the budget, so that a later plan has some; sets so small that a unit seldom takes part.

    Args:
        described: for its fields and its public size.
        status: for what is free.
        choices: what the admin wants, from :func:`chosen`.
    """
    embedded, usual = described.embedded_field, _USUAL[choices["kind"]]
    others = [field for field in reversed(described.fields) if field != embedded]
    answer = choices["answer_field"] or (others[0] if others else "label")
    ensemble = min(_ENSEMBLE, max(10, described.public_size // (10 * _SHOTS)), described.public_size)
    labels = [label.strip() for label in choices["labels"].replace("\n", ",").split(",") if label.strip()]
    return render_text(
        "starting_plan.yaml",
        kb=described,
        choices=choices,
        epsilon=choices["epsilon"] or _half(status.free_epsilon),
        delta=_half(status.free_delta),
        answer=answer,
        asked=[field for field in described.fields if field != answer],
        labels=labels or PLACEHOLDERS,
        shots=max(1, min(_SHOTS, described.public_size // ensemble)),
        ensemble=ensemble,
        usual=usual,
        others=[
            adapter
            for adapter in ADAPTERS.values()
            if adapter.schema.kind == usual.schema.kind and issubclass(adapter, AnswerAdapter) and adapter is not usual
        ],
        mechanism=_mechanism,
    )


def _mechanism(adapter: type[Adapter[Any, Any]]) -> str:
    written = adapter.example.model_dump(mode="json", exclude_defaults=True)
    return yaml.safe_dump({"mechanism": written}, default_flow_style=None, sort_keys=False, width=200).rstrip()


def signed_text(document: str) -> str:
    """A signed plan as YAML, to be changed.

    Args:
        document: of :class:`accounting.ledger.budgets.SignedPlan`.
    """
    plan = read_signed(document).plan
    left_out: Any = {"tasks": {name: unwritten(task) for name, task in plan.tasks.items()}}
    written = plan.model_dump(mode="json", exclude_defaults=True, exclude=left_out)
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
