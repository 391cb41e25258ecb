"""What is wrong with a plan, each problem at its key and its line."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

import yaml

_KEY = re.compile(r"([A-Za-z0-9_.-]+): (.+)", re.DOTALL)
_LINE = re.compile(r"line (\d+)")


@dataclass(frozen=True)
class PlanProblem:
    """One problem.

    Attributes:
        key: the dotted key it is about; empty for the plan as a whole.
        message: what is wrong.
        line: where, counted from 1; of the nearest key that is there. None where it cannot be told.
    """

    key: str
    message: str
    line: int | None


def located(problems: Sequence[str], text: str) -> list[PlanProblem]:
    """Problems as :class:`accounting.plan.PlanError` has them, each at its place.

    Args:
        problems: each begins with a dotted key, or is about the YAML itself.
        text: the plan as written.
    """
    root = _composed(text)
    return [_locate(problem, root) for problem in problems]


def places(text: str) -> dict[str, int]:
    """The lines, counted from 1, of a plan's budget and of each of its tasks, by key: ``budget``, ``tasks.NAME``."""
    root = _composed(text)
    tasks = next((value for key, value in _pairs(root) if key.value == "tasks"), None)
    keys = [["budget"], *(["tasks", key.value] for key, _ in _pairs(tasks) if isinstance(key.value, str))]
    return {".".join(key): line for key in keys if (line := _line(key, root)) is not None}


def _composed(text: str) -> yaml.Node | None:
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader)
    except (yaml.YAMLError, ValueError, RecursionError):
        return None


def _pairs(node: yaml.Node | None) -> list[tuple[yaml.Node, yaml.Node]]:
    return node.value if isinstance(node, yaml.MappingNode) else []


def _locate(problem: str, root: yaml.Node | None) -> PlanProblem:
    if problem.startswith("not valid YAML"):
        places = _LINE.findall(problem)
        return PlanProblem("", problem, int(places[-1]) if places else None)
    if (match := _KEY.fullmatch(problem)) is None:
        return PlanProblem("", problem, None)
    key, message = match.groups()
    return PlanProblem(key, message, _line(key.split("."), root))


def _line(path: Sequence[str], node: yaml.Node | None) -> int | None:
    """The line of a key, or of the nearest one above it."""
    line = None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            found = next(((key, value) for key, value in node.value if key.value == part), None)
            if found is None:
                break
            line, node = found[0].start_mark.line + 1, found[1]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
        else:
            break
    return line
