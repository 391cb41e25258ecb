"""Whole knowledge bases are read by a replica of their own: the ingress, on real Ray Serve, cannot read any here."""

import html
import os
import re
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from tests.e2e.serving import dpicl, own, prepared, started

BLIND = """
from exemplar_store import ExemplarStore
from service import application

def refuse(*_args, **_options):
    raise AssertionError("the ingress reads a whole knowledge base")

class Blind(application.Ingress.func_or_class):
    async def __init__(self, *args, **options):
        ExemplarStore.every_unit = refuse
        await super().__init__(*args, **options)

application.Ingress = application.deployment(Blind).options(name="Ingress")
build = application.build
"""
PLAN = """
knowledge_base: support
budget: {epsilon: 1, delta: 1.0e-5}
tasks:
  desk:
    kind: classify
    labels: [Office, Workshop]
    label_field: desk
    prompt: {exemplar: "{text}: {desk}", query: "{text}:"}
"""
ONCE = f"{PLAN}    release: once\n    mechanism: {{type: prototypes}}\n"
ASKED = f"{PLAN}    shots: 2\n    ensemble: 5\n    answers: 5\n    mechanism: {{type: rnm_gaussian}}\n"
STUDIO = "/admin/knowledge-bases/support/plan"


@dataclass(frozen=True)
class Service:
    url: str
    log: Path
    admin: str


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("blind")
    (folder / "blind.py").write_text(BLIND)
    config = Path("service/serve.yaml").read_text().replace("service.application:build", "blind:build")
    (folder / "serve.yaml").write_text(config)
    path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    with own(folder, PYTHONPATH=path) as environment:
        prepared(environment, "plan.yaml")
        admin = dpicl(environment, "keys", "create", "chief", "--role", "admin").strip()
        with started(folder, environment, "--config", str(folder / "serve.yaml")) as (url, log, _):
            yield Service(url, log, admin)


def test_signing_makes_a_release_elsewhere(service: Service) -> None:
    signed = httpx.post(
        f"{service.url}/v1/knowledge-bases/support/plans?confirm=worse_than_free",
        content=ONCE,
        headers={"Authorization": f"Bearer {service.admin}", "Content-Type": "application/yaml"},
        timeout=150,
    )
    assert signed.status_code == 201, signed.text
    assert signed.json()["signed"]["tasks"] == ["support.desk@2"]


def test_a_rehearsal_runs_elsewhere(service: Service) -> None:
    with httpx.Client(base_url=service.url, headers={"Origin": service.url}, timeout=150) as browser:
        browser.post("/admin/sign-in", data={"key": service.admin})
        csrf = hidden(browser.get("/admin/").text, "csrf")
        form = {"csrf": csrf, "text": ASKED, "task": "desk", "epsilon": "1"}
        while not (found := re.search(r'name="digest" value="([^"]*)"', page := rehearse(browser, "", form))):
            assert "Computing the noise" in page, page
            time.sleep(0.2)
        rehearse(browser, "/start", form | {"digest": found[1], "sure": "yes"})
        while "A rehearsal: between" not in (page := browser.get("/admin/knowledge-bases/support/plans").text):
            assert "rehearsal_failed" not in service.log.read_text()
            time.sleep(0.5)


def rehearse(browser: httpx.Client, step: str, form: dict[str, str]) -> str:
    return browser.post(f"{STUDIO}/rehearse{step}", data=form).text


def hidden(page: str, name: str) -> str:
    found = re.search(rf'name="{name}" value="([^"]*)"', page)
    assert found, page
    return html.unescape(found[1])
