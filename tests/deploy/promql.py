"""Rules and dashboards, and the metrics and labels in their PromQL."""

import json
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "observability"
RULES = FOLDER / "rules.yaml"
DASHBOARDS = sorted((FOLDER / "dashboards").glob("*.json"))
_RULES: list[dict[str, Any]] = [
    rule for group in yaml.safe_load(RULES.read_text())["groups"] for rule in group["rules"]
]
ALERTS = {rule["alert"]: rule for rule in _RULES if "alert" in rule}
RECORDS = {rule["record"]: rule["expr"] for rule in _RULES if "record" in rule}

_PROMTOOL = ROOT / ".venv" / "bin" / "promtool"


def promtool(*arguments: str | Path) -> str:
    """The output of promtool, which must find no fault."""
    if not _PROMTOOL.is_file():
        pytest.fail(f"there is no promtool: run `make {_PROMTOOL.relative_to(ROOT)}`")
    done = subprocess.run([_PROMTOOL, *arguments], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


def queries(dashboard: Path) -> list[str]:
    """A dashboard's PromQL, with Grafana's variables replaced by values."""
    board = json.loads(dashboard.read_text())
    found = [target["expr"] for panel in board["panels"] for target in panel.get("targets", [])]
    for variable in board["templating"]["list"]:
        if variable["type"] == "query":
            (metric,) = re.fullmatch(r"label_values\((.*), \w+\)", variable["query"]["query"]).groups()
            found.append(metric)
    values = {"$__rate_interval": "5m", "$job": "dp-icl", "$knowledge_base": "toys"}
    for name, value in values.items():
        found = [query.replace(name, value) for query in found]
    assert not any("$" in query for query in found)
    return found


@dataclass(frozen=True)
class Selected:
    """A metric in a query, with the labels it selects by, each with its operator and value."""

    metric: str
    matchers: tuple[tuple[str, str, str], ...]


_SELECTOR = re.compile(r"\b((?:dpicl[_:][\w:]+)|up|ALERTS)\b(?!\s*\()(?:\{([^}]*)\})?")


def selected(query: str) -> Iterator[Selected]:
    """Every metric that a query names."""
    for metric, matchers in _SELECTOR.findall(query):
        yield Selected(metric, tuple(re.findall(r'(\w+)(=~|!~|!=|=)"([^"]*)"', matchers)))


def grouped(query: str) -> set[str]:
    """Every label that a query groups by, or ignores."""
    lists = re.findall(r"\b(?:by|without|on|ignoring)\s*\(([^)]*)\)", query)
    return {label.strip() for labels in lists for label in labels.split(",")}


def all_queries() -> list[str]:
    """The queries of all rules and dashboards."""
    return [rule["expr"] for rule in _RULES] + [query for file in DASHBOARDS for query in queries(file)]


def legends() -> Iterator[tuple[str, set[str]]]:
    """The queries of alerts and panels, each with the labels that its texts show."""
    for rule in ALERTS.values():
        texts = " ".join(rule["annotations"].values())
        yield rule["expr"], set(re.findall(r"\$labels\.(\w+)", texts))
    for file in DASHBOARDS:
        for panel in json.loads(file.read_text())["panels"]:
            for target in panel.get("targets", []):
                yield target["expr"], set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
