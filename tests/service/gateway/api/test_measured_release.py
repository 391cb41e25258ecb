"""How often a one-time release is right, by its own count, through every door."""

from pathlib import Path

import pytest

from service.cli import ask as ask_command
from service.operations.services import Services, open_services
from service.operations.wording import right_in
from tests.service.answering.test_measured_once import MEASURED, TASK, opened
from tests.service.answering.test_once import Reader, alone, embed
from tests.service.conftest import Embedding, client_of
from tests.service.gateway.dashboard.dashboard_browser import signed_in
from tests.service.gateway.dashboard.test_dashboard_plans import part
from tests.service.shell import Shell

PLAN = alone(MEASURED).replace("epsilon: 90", "epsilon: 3")


@pytest.fixture
def services(tmp_path: Path) -> Services:
    return open_services(opened(tmp_path), Reader(), Embedding(embed))


def signed(services: Services) -> dict[str, float]:
    """What signing over HTTP states of the release."""
    admin = client_of(services, "admin", "ada")
    dry = admin.post("/v1/knowledge-bases/toys/plans", params={"dry_run": True}, content=PLAN).json()
    shown = dry["preview"]["tasks"]["for-ever"]["measured"]
    assert shown["units"] == 24
    assert "measured" not in dry
    given = admin.post("/v1/knowledge-bases/toys/plans", params={"confirm": "worse_than_free"}, content=PLAN)
    assert given.status_code == 201, given.text
    return given.json()["measured"][f"{TASK}@1"]


def test_every_door_states_it(services: Services) -> None:
    stated, ann = signed(services), client_of(services)
    assert set(stated) == {"accuracy", "standard_error", "units"}
    assert ann.post(f"/v1/tasks/{TASK}/answers", json={"query": "a red thing"}).json()["measured"] == stated
    assert ann.get(f"/v1/tasks/{TASK}").json()["measured"] == stated
    asked = {"model": TASK, "messages": [{"role": "user", "content": "a blue thing"}]}
    assert ann.post("/v1/chat/completions", json=asked).json()["dp_icl"]["measured"] == stated
    assert ann.post("/v1/responses", json={"model": TASK, "input": "a toy"}).json()["dp_icl"]["measured"] == stated
    (model,) = ann.get("/v1/models").json()["data"]
    assert model["dp_icl"]["measured"] == stated


def test_pages_and_commands_state_it(services: Services, dpicl: Shell, monkeypatch: pytest.MonkeyPatch) -> None:
    words = right_in(**signed(services))
    root = signed_in(services)
    assert words in root.get("/").text
    assert words in root.get("/knowledge-bases/toys/plans/1").text
    monkeypatch.setattr(ask_command, "connect", lambda _service: client_of(services))
    assert words in dpicl.ok("ask", TASK, "a red thing")


def test_the_studio_states_the_error_bar_before_signing(services: Services) -> None:
    page = part(signed_in(services), text=PLAN)
    assert "About 24 people, if each has one exemplar, are left out of it" in page
