"""Logs: lines of JSON, every event documented, and no event with a message that could quote."""

import ast
import json
import logging
import re
import sys
from pathlib import Path

import pytest
import structlog

from service.records.telemetry.logs import configure_logs, relay, relay_logging

ROOT = Path(__file__).parents[4]
LEVELS = ("debug", "info", "warning", "error", "critical", "exception")


def calls() -> list[tuple[Path, ast.Call]]:
    """Every call of a logger in the product."""
    return [
        (path, node)
        for package in ("accounting", "aggregation", "exemplar_store", "sanitization", "service", "spelling")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call)
        and isinstance(node.func, ast.Attribute)
        and node.func.attr in LEVELS
        and isinstance(node.func.value, ast.Name)
        and node.func.value.id in ("log", "logger", "logging")
    ]


def test_every_event_is_documented_with_what_it_carries() -> None:
    told = {}
    for path, call in calls():
        events = [node.value for node in ast.walk(call.args[0]) if isinstance(node, ast.Constant)]
        assert events, f"{path}:{call.lineno}: an event is a fixed text"
        for event in events:
            told[event] = {keyword.arg for keyword in call.keywords}
    table = (ROOT / "docs" / "observability.md").read_text().partition("| event |")[2]
    rows = re.findall(r"^\| `(\w+)` \| ([`\w, ]+) \| ", table, flags=re.M)
    documented = {event: set(re.findall(r"\w+", names)) for event, names in rows}
    assert documented == told


def test_no_event_carries_an_exception() -> None:
    """Its message and its traceback may quote what it failed on."""
    for path, call in calls():
        assert call.func.attr != "exception", f"{path}:{call.lineno}"
        assert not {"exc_info", "stack_info"} & {keyword.arg for keyword in call.keywords}, f"{path}:{call.lineno}"


def test_a_line_is_json_with_the_request_it_belongs_to(capsys: pytest.CaptureFixture[str]) -> None:
    before = structlog.get_config()
    configure_logs()
    try:
        with structlog.contextvars.bound_contextvars(request="r1"):
            structlog.get_logger().warning("probe_failed", task="support.queue@1")
    finally:
        structlog.configure(**before)
    line = json.loads(capsys.readouterr().err)
    at = line.pop("timestamp")
    assert line == {"event": "probe_failed", "level": "warning", "request": "r1", "task": "support.queue@1"}
    assert at.endswith("Z")


def test_what_libraries_of_this_process_log_becomes_lines_of_json(capsys: pytest.CaptureFixture[str]) -> None:
    configure_logs()
    library, root = logging.getLogger("elsewhere"), logging.getLogger()
    library.propagate, handlers = False, list(root.handlers)
    library.addHandler(logging.StreamHandler(sys.stderr))
    relay_logging()
    try:
        library.warning("started\nand more")
    finally:
        root.handlers = handlers
        logging.captureWarnings(False)
    (line,) = capsys.readouterr().err.splitlines()
    assert {"event": "printed", "process": "elsewhere", "line": "started\nand more"}.items() <= json.loads(line).items()


@pytest.mark.parametrize(
    ("line", "written"),
    [
        ('{"event": "latency_measured", "grain_ms": 100}', {"event": "latency_measured", "grain_ms": 100}),
        ("INFO 1 -- ready", {"event": "printed", "process": "ServeReplica:x", "line": "INFO 1 -- ready"}),
        ("17", {"event": "printed", "process": "ServeReplica:x", "line": "17"}),
        ("  ", None),
    ],
)
def test_lines_of_other_processes_become_lines_of_json(capsys: pytest.CaptureFixture[str], line, written) -> None:
    configure_logs()
    relay("ServeReplica:x", line)
    lines = capsys.readouterr().err.splitlines()
    assert len(lines) == (written is not None)
    for said in lines:
        assert written.items() <= json.loads(said).items()
