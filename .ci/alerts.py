"""Write what to do into each alert of Prometheus' rules, from the runbooks, and the rules for Prometheus' operator.

    python .ci/alerts.py FOLDER [RUNBOOKS]

An alert carries its runbook, since the operator who is woken by it may have no documentation at hand, and no service
that could show it. FOLDER has ``rules.yaml`` and ``prometheus-rule.yaml``. With RUNBOOKS, the address of a page that an
operator has published, each alert has a link to its section, too; as shipped it has none, since none is published.
"""

import json
import re
import sys
from collections.abc import Collection, Mapping
from pathlib import Path

PAGE = "docs/runbooks.md"
_SECTION = re.compile(r"^### (\w+)\n(.*?)(?=^##|\Z)", re.MULTILINE | re.DOTALL)
_ALERT = re.compile(
    r"(?P<before>- alert: (?P<name>\w+)\n.*?\n(?P<indent> +)summary: [^\n]*\n)"
    r"(?P=indent)\w+: [^\n]*(\n(?P=indent)\w+: [^\n]*)*",
    re.DOTALL,
)
_LINK = re.compile(r"^ +runbook_url: (.*)#", re.MULTILINE)


def main(folder: Path, published: str = "") -> None:
    """Write both files anew."""
    sections = dict(_SECTION.findall((Path(__file__).parents[1] / PAGE).read_text(encoding="utf-8")))
    rules = folder / "rules.yaml"
    text = rules.read_text(encoding="utf-8").rstrip("\n")
    kept = _LINK.search(text)
    link = published or (kept[1] if kept else "")
    written = _ALERT.sub(lambda alert: _annotated(alert, sections, link), text) + "\n"
    rules.write_text(written, encoding="utf-8")
    operators = folder / "prometheus-rule.yaml"
    head, spec, _ = operators.read_text(encoding="utf-8").partition("\nspec:\n")
    body = [f"  {line}".rstrip() for line in written.splitlines() if not line.startswith("#")]
    operators.write_text(head + spec + "\n".join(body) + "\n", encoding="utf-8")


def _annotated(alert: re.Match[str], sections: Mapping[str, str], link: str) -> str:
    name = alert["name"]
    what_to_do = json.dumps(plain(sections[name], sections), ensure_ascii=False)
    lines = {"description": what_to_do, "runbook": f"{PAGE}#{name.lower()}"}
    if link:
        lines["runbook_url"] = f"{link}#{name.lower()}"
    return alert["before"] + "\n".join(f"{alert['indent']}{key}: {value}" for key, value in lines.items())


def plain(section: str, names: Collection[str]) -> str:
    """A section of the runbooks as one paragraph without Markdown; a link to another runbook names its alert."""
    alerts = {name.lower(): name for name in names}
    text = re.sub(r"\[([^]]*)\]\(#(\w+)\)", lambda to: f"{to[1]} ({alerts[to[2]]})", section)
    text = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", text)
    return " ".join(text.replace("*", "").split())


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
