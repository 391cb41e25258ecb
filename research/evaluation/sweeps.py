"""Sweeps: the same measurement with other numbers of slots, exemplars and candidates, as in the figures of DP-ICL.

What its ablations vary (arXiv 2305.01639, figures 5 to 14): the ensemble (5a, 12), the number of answers (5b, 6, 10,
13), the shots (7), the candidates (11), and the cost in prompts (8, 9, 14).
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from accounting.plans.plan import Plan, parse_plan

SWEPT = ("ensemble", "shots", "drawn", "candidates")
"""Keys of a task that are swept, which rows of a table have as fields."""
Against = Literal["ensemble", "shots", "drawn", "candidates", "answers", "prompts"]
"""What a figure's horizontal axis has; ``prompts``: those with exemplars that an answer asks, one for each slot."""

_AXES = {
    "ensemble": "slots (ensemble)",
    "shots": "exemplars that a slot shows (shots)",
    "drawn": "exemplars that a slot draws (drawn)",
    "candidates": "public candidates",
    "answers": "answers of the plan",
    "prompts": "prompts with exemplars for each answer",
}


@dataclass(frozen=True)
class Curves:
    """What a figure shows of a table's rows.

    Attributes:
        measure: field on the vertical axis.
        error: field of its standard error.
        axis: text beside the vertical axis.
        name: the name of a row's line, before ε and the like; empty: the row is left out.
        free: whether a row sees no private exemplar, so that it is a horizontal line.
    """

    measure: str
    error: str
    axis: str
    name: Callable[[Any], str]
    free: Callable[[Any], bool]


def combinations(values: Mapping[str, Sequence[int]]) -> list[dict[str, int]]:
    """Every combination of the values of keys; one that changes nothing if no key has values."""
    swept = {key: list(dict.fromkeys(values[key])) for key in SWEPT if values.get(key)}
    return [dict(zip(swept, chosen, strict=True)) for chosen in itertools.product(*swept.values())]


def varied(plan: Plan, task: str, combination: Mapping[str, int]) -> Plan:
    """A plan whose task has other values of some keys.

    Raises:
        ValueError: the task is released once, or has no such key.
        accounting.plans.plan.PlanError: the values do not fit the task.
    """
    if not combination:
        return plan
    if plan.tasks[task].once:
        raise ValueError(f"{task} is released once and draws no slots: leave {_options(combination)} out")
    if unknown := [key for key in combination if not hasattr(plan.tasks[task], key)]:
        raise ValueError(f"{task} answers with a label, and has no {unknown[0]}: leave {_options(unknown)} out")
    document = plan.model_dump(mode="json", exclude_unset=True)
    document["tasks"][task] |= dict(combination)
    return parse_plan(document)


def words(combination: Mapping[str, int]) -> str:
    """A combination, for people."""
    return ", ".join(f"{key} {value:,}" for key, value in combination.items())


def plot(rows: Sequence[Any], title: str, against: Against, curves: Curves) -> Any:
    """A figure of matplotlib with a line for each method, ε and combination of what else varies.

    Args:
        rows: rows of all combinations; dataclasses with the fields of :data:`SWEPT`, ``epsilon`` and ``answers``.
        title: title of the figure.
        against: quantity on the horizontal axis.
        curves: choice of the rows that become lines.

    Raises:
        ValueError: nothing varies along this axis.
    """
    from matplotlib.figure import Figure

    key = "ensemble" if against == "prompts" else against
    if len(values := sorted({at for row in rows if (at := getattr(row, key)) is not None})) < 2:
        raise ValueError(f"--against {against}: nothing varies; repeat --{key} with other values")
    figure = Figure(figsize=(7.2, 4.8), layout="constrained")
    axes = figure.subplots()
    apart = {other: len({getattr(row, other) for row in rows} - {None}) > 1 for other in (*SWEPT, "answers")}
    lines: dict[str, list[Any]] = {}
    flat: dict[str, Any] = {}
    for row in rows:
        if not (name := curves.name(row)):
            continue
        others = [f"{other} {getattr(row, other)}" for other in apart if apart[other] and other != key]
        others = [] if curves.free(row) else [part for part in others if not part.endswith("None")]
        label = ", ".join([name, *([f"ε = {row.epsilon:g}"] if row.epsilon is not None else []), *others])
        if curves.free(row) or getattr(row, key) is None:
            flat.setdefault(label, row)
        else:
            lines.setdefault(label, []).append(row)
    for style, (label, row) in zip(itertools.cycle((":", (0, (1, 5)), "-.")), flat.items(), strict=False):
        axes.axhline(getattr(row, curves.measure), color="grey", linestyle=style, linewidth=1, label=label)
    for number, (label, line) in enumerate(lines.items()):
        line = sorted(line, key=lambda row: getattr(row, key))
        shown, errors = ([getattr(row, field) for row in line] for field in (curves.measure, curves.error))
        style = "--" if line[0].epsilon is None else "-"
        at = [getattr(row, key) for row in line]
        axes.errorbar(at, shown, yerr=errors, capsize=2, marker=".", linestyle=style, color=f"C{number}", label=label)
    axes.set(xscale="log", xlabel=_AXES[against], ylabel=curves.axis, title=title)
    axes.set_xticks(values, [f"{value:,}" for value in values], minor=False)
    axes.minorticks_off()
    axes.legend(fontsize="x-small")
    return figure


def _options(keys: Any) -> str:
    return " and ".join(f"--{key}" for key in keys)
