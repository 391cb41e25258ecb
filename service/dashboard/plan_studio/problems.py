"""What is wrong with a plan, each problem at its key and its line."""

from collections.abc import Sequence

import yaml

from accounting.plan import PlanProblem


def located(problems: Sequence[PlanProblem], text: str) -> list[PlanProblem]:
    """The problems of a plan as written, each with its line, or that of the nearest key that is there."""
    root = _composed(text)
    return [problem._replace(line=problem.line or _line(problem.key.split("."), root)) for problem in problems]


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


def _line(path: Sequence[str], node: yaml.Node | None) -> int | None:
    """The line of a key, or of the nearest one above it."""
    line = None
    for part in path:
        if isinstance(node, yaml.MappingNode):
            pair = next(((key, value) for key, value in node.value if key.value == part), None)
            if pair is None:
                break
            line, node = pair[0].start_mark.line + 1, pair[1]
        elif isinstance(node, yaml.SequenceNode) and part.isdigit() and int(part) < len(node.value):
            node = node.value[int(part)]
            line = node.start_mark.line + 1
        else:
            break
    return line
