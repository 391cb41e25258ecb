"""Work on exemplars has threads of its own: requests, which use the default ones, never wait for it."""

import asyncio
import json
import threading
from collections.abc import Callable, Iterator

import pytest

from exemplar_store import ExemplarStore
from service.engines.embedded import nearest_exemplar
from service.engines.task import Prompt, TaskSpec, ZeroShot
from service.operations.services import Services
from tests.service.conftest import EMBEDDER
from tests.service.gateway.api.test_api import Api
from tests.service.gateway.dashboard.dashboard_browser import Browser

ROW = json.dumps({"unit_id": "new", "text": "a new toy", "label": "red"})


@pytest.fixture
def noted(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[object, str], None]]:
    """Note the threads that call a function; at the end, each must have been called, by private threads alone."""
    threads: dict[str, set[str]] = {}

    def note(owner: object, name: str) -> None:
        original = getattr(owner, name)

        def called(*args, **options):
            threads[name].add(threading.current_thread().name.partition("_")[0])
            return original(*args, **options)

        threads[name] = set()
        monkeypatch.setattr(owner, name, called)

    yield note
    assert threads == {name: {"private"} for name in threads}


def test_slots_are_compared_there(noted: Callable[[object, str], None]) -> None:
    noted(nearest_exemplar, "_answer_or_abstain")
    task = TaskSpec("toys.colour", ("red", "blue"), Prompt("", "{text}: {label}", "{text}:"))
    engine = nearest_exemplar.NearestExemplarEngine(EMBEDDER)
    assert asyncio.run(engine.contributions(task, {"text": "a toy"}, [()], ZeroShot())) == [None]


def test_the_api_stores_and_forgets_there(services: Services, noted: Callable[[object, str], None]) -> None:
    noted(ExemplarStore, "ingest")
    noted(ExemplarStore, "forget")
    api, toys = Api(services), "/v1/knowledge-bases/toys"
    headers = {"Content-Type": "application/x-ndjson"}
    assert api("admin", "POST", f"{toys}/exemplars", content=ROW, headers=headers).status_code == 200
    assert api("admin", "DELETE", f"{toys}/units/new").status_code == 200


def test_the_dashboard_stores_and_forgets_there(services: Services, noted: Callable[[object, str], None]) -> None:
    noted(ExemplarStore, "ingest")
    noted(ExemplarStore, "forget")
    browser, toys = Browser(services), "/knowledge-bases/toys"
    assert browser.sign_in().status_code == 303
    files = {"file": ("new.jsonl", ROW.encode())}
    assert browser.post(f"{toys}/exemplars", {"unit_id": "unit_id"}, files=files).status_code == 303
    assert browser.post(f"{toys}/forget", {"unit": "new", "sure": "yes"}).status_code == 303
