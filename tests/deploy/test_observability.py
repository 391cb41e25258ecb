"""Rules, dashboards and runbooks are complete, and agree with each other.

tests/service/serving/test_metrics.py scrapes the service, and checks that it has the metrics that they name.
"""

import json
import re
import shlex
import shutil
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml

from service.cli import app
from tests.deploy.overlays import with_components
from tests.deploy.promql import ALERTS, DASHBOARDS, FOLDER, RULES, promtool, queries

ROOT = Path(__file__).parents[2]
RULE_TESTS = Path(__file__).with_name("test_observability_rules.yaml")
RUNBOOKS = ROOT / "docs" / "runbooks.md"

each_dashboard = pytest.mark.parametrize("file", DASHBOARDS, ids=lambda file: file.stem)


def test_the_rules_are_prometheus_rules():
    assert "rules found" in promtool("check", "rules", "--lint-fatal", RULES)


def described(alert: str) -> list[tuple[str, str]]:
    """The annotations of an alert that hold its runbook, and its place."""
    return [(name, ALERTS[alert]["annotations"][name]) for name in ("description", "runbook")]


def test_each_alert_fires_when_it_should_and_only_then(tmp_path: Path):
    # An alert's description is its runbook, which another test compares: here it is what the rules have.
    text = RULE_TESTS.read_text().replace("../../deploy/observability/rules.yaml", str(RULES))
    text, times = re.subn(
        r"alertname: (\w+)\n(?:(?! +- alertname).*\n)+? +exp_annotations:\n( +)summary: .*\n",
        lambda case: case[0] + "".join(f"{case[2]}{name}: {json.dumps(said)}\n" for name, said in described(case[1])),
        text,
    )
    assert times == text.count("exp_annotations:") > 1
    (tmp_path / "tests.yaml").write_text(text)
    promtool("test", "rules", tmp_path / "tests.yaml")
    tested = {one["name"]: one for one in yaml.safe_load(RULE_TESTS.read_text())["tests"]}
    assert tested.keys() == ALERTS.keys()
    for alert, test in tested.items():
        expected = [one for case in test["promql_expr_test"] for one in case["exp_samples"]]
        assert any(alert in one["labels"] for one in expected)
        series = [one["series"] for one in test["input_series"]]
        if alert != "DpiclNotScraped":  # it has no good job, but must be silent before it fires
            # The good job has all metrics of the bad one, and keeps the alert silent.
            good, bad = ({name.split("{")[0] for name in series if f'="{which}"' in name} for which in ("good", "bad"))
            assert bad <= good
            assert not any('="good"' in one["labels"] for one in expected if "alertname" in one["labels"])


def runbooks() -> dict[str, str]:
    """The sections of the page, by alert."""
    return dict(re.findall(r"^### (\w+)\n(.*?)(?=^##|\Z)", RUNBOOKS.read_text(), flags=re.M | re.S))


def test_each_alert_has_a_severity_and_carries_its_runbook():
    """As shipped, none has a link that leads nowhere: the runbook itself is in the alert, and its place beside it."""
    sections = runbooks()
    for name, alert in ALERTS.items():
        assert alert["labels"]["severity"] in ("critical", "warning", "info")
        annotations = alert["annotations"]
        assert annotations.keys() == {"summary", "description", "runbook"}
        file, _, anchor = annotations["runbook"].partition("#")
        assert (ROOT / file, anchor) == (RUNBOOKS, name.lower())
        description = annotations["description"]
        assert not set(description) & set("[]*{}"), "Alertmanager shows it as it is"
        words = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", sections[name]).replace("*", "").split()
        assert re.sub(r" \(Dpicl\w+\)", "", description).split() == words
        for other in re.findall(r"\(#(\w+)\)", sections[name]):
            assert f"({next(one for one in sections if one.lower() == other)})" in description


def test_each_alert_has_its_runbook_and_each_runbook_its_alert():
    sections = runbooks()
    assert list(sections) == list(ALERTS), "in the order of the rules"
    for name, section in sections.items():
        parts = re.findall(r"^\*\*(Means|Look|Do|Do not)\*\* ", section, flags=re.M)
        assert parts == ["Means", "Look", "Do", "Do not"], name


def parse(words: list[str]) -> None:
    """Parse a command line as the command would, without running it; a command's bare name needs no arguments."""
    command = typer.main.get_command(app)
    while hasattr(command, "commands"):
        name = words.pop(0)
        command = command.get_command(typer.Context(command), name)
        assert command is not None, name
    if words:
        command.make_context("dpicl", words)


def test_commands_in_runbooks_are_commands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "next.yaml").touch()
    commands = re.findall(r"(?:^\$ |`)dpicl ([^`\n]+)", RUNBOOKS.read_text(), flags=re.M)
    assert len(commands) > 20
    for command in commands:
        parse(shlex.split(command))
    for wrong in ("keys mend", "keys limit --no-such-option", "keys limit --quota many 0199"):
        with pytest.raises(Exception, match=r"mend|No such option|whole number"):
            parse(shlex.split(wrong))


@cache
def dashboard(file: Path) -> dict[str, Any]:
    return json.loads(file.read_text())


@each_dashboard
def test_dashboards_are_what_grafana_imports(file: Path):
    board = dashboard(file)
    assert {"title", "uid", "schemaVersion", "templating", "time"} <= board.keys()
    assert "id" not in board  # Grafana assigns one
    panels = board["panels"]
    assert len({panel["id"] for panel in panels}) == len(panels)
    taken = set()
    for panel in panels:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {(place["x"] + x, place["y"] + y) for x in range(place["w"]) for y in range(place["h"])}
        assert not cells & taken, f"{panel['title']} lies on another panel"
        taken |= cells
        references = [target["refId"] for target in panel.get("targets", [])]
        assert len(set(references)) == len(references)
        assert panel["type"] == "text" or references
        assert {json.dumps(one.get("datasource")) for one in panel.get("targets", [])} <= {
            '{"type": "prometheus", "uid": "${datasource}"}'
        }


def test_dashboards_have_names_of_their_own():
    assert len({dashboard(file)["uid"] for file in DASHBOARDS}) == len(DASHBOARDS) == 3


@each_dashboard
def test_what_dashboards_ask_is_promql(file: Path, tmp_path: Path):
    rules = [{"record": f"panel{i}", "expr": query} for i, query in enumerate(queries(file))]
    assert len(rules) > 6
    (tmp_path / "rules.yaml").write_text(yaml.safe_dump({"groups": [{"name": file.stem, "rules": rules}]}))
    promtool("check", "rules", tmp_path / "rules.yaml")


@pytest.mark.parametrize("overlay", ["local", "gpu"])  # production includes it
def test_the_component_brings_all_of_it(tmp_path: Path, overlay: str):
    objects = with_components(tmp_path, overlay, "observability")
    assert objects["PrometheusRule", "dp-icl"]["spec"] == yaml.safe_load(RULES.read_text())
    boards = objects["ConfigMap", "dp-icl-dashboards"]
    assert boards["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert {name: json.loads(text) for name, text in boards["data"].items()} == {
        file.name: dashboard(file) for file in DASHBOARDS
    }
    monitor, service = objects["ServiceMonitor", "dp-icl"], objects["Service", "dp-icl"]
    assert monitor["spec"]["selector"]["matchLabels"] == service["metadata"]["labels"]
    (endpoint,) = monitor["spec"]["endpoints"]
    assert endpoint["port"] in {port["name"] for port in service["spec"]["ports"]}
    # Its name is the job that the rules query; the secret is the one that the docs create.
    assert service["metadata"]["name"] == "dp-icl"
    secret = endpoint["authorization"]["credentials"]
    page = (ROOT / "docs" / "kubernetes.md").read_text()
    assert f"create secret generic {secret['name']} --from-literal={secret['key']}=" in page
    for one in (monitor, boards, objects["PrometheusRule", "dp-icl"]):
        assert one["metadata"]["namespace"] == service["metadata"]["namespace"] == "dp-icl"


def made(folder: Path, *options: str, copied_from: Path = FOLDER) -> dict[str, str]:
    """The files that `make alerts` writes from a copy of the rules."""
    folder.mkdir(exist_ok=True)
    for name in ("rules.yaml", "prometheus-rule.yaml"):
        shutil.copy(copied_from / name, folder)
    subprocess.run(["make", "alerts", f"RULES={folder}", *options], cwd=ROOT, check=True, capture_output=True)
    return {file.name: file.read_text() for file in folder.glob("*.yaml")}


def test_the_rules_are_up_to_date(tmp_path: Path):
    for name, text in made(tmp_path).items():
        assert text == (FOLDER / name).read_text(), "run `make alerts`"


def test_alerts_link_to_runbooks_that_an_operator_publishes(tmp_path: Path):
    page = "https://docs.example.org/runbooks.html"
    files = made(tmp_path, f"RUNBOOKS={page}")
    rule, rules = (yaml.safe_load(files[name]) for name in ("prometheus-rule.yaml", "rules.yaml"))
    assert rule["spec"] == rules
    again = made(tmp_path / "again", copied_from=tmp_path)  # the link stays
    assert again == files
    links = [one["annotations"]["runbook_url"] for group in rules["groups"] for one in group["rules"] if "alert" in one]
    assert links == [f"{page}#{name.lower()}" for name in ALERTS]
