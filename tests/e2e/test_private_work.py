"""A replica of its own reads whole knowledge bases: here, on real Ray Serve, the ingress cannot read any.

The engine also prints its questions, as a developer might let it for debugging, and the search for canaries notices.
"""

import os
from collections.abc import Iterator

import pytest
import yaml

from service.cli.serve import DEFAULT_CONFIG
from tests.e2e.test_redaction import Service, ask_well, leaks, planted, shown

pytestmark = [pytest.mark.lengthy, pytest.mark.service]

ALTERED = """
from exemplar_store import ExemplarStore
from service.serving import application

def refuse(*_args, **_options):
    raise AssertionError("the ingress reads a whole knowledge base")

class Blind(application.Ingress.func_or_class):
    async def __init__(self, *args, **options):
        ExemplarStore.every_unit = ExemplarStore.topics_of = refuse
        await super().__init__(*args, **options)

class Talkative(application.EmbedderDeployment.func_or_class):
    async def ask(self, *call):
        print("asked", call, flush=True)
        return await super().ask(*call)

application.Ingress = application.deployment(Blind).options(name="Ingress")
application.EmbedderDeployment = application.deployment(Talkative).options(name="EmbedderDeployment")
build = application.build
"""
PLAN = """
knowledge_base: toys
budget: {epsilon: 1, delta: 1.0e-5}
tasks:
  shade:
    kind: classify
    labels: [red, blue]
    label_field: colour
    prompt: {exemplar: "{text}: {colour}", query: "{text}:"}
"""
ONCE = f"{PLAN}    release: once\n    mechanism: {{type: prototypes}}\n"
ASKED = f"{PLAN}    shots: 2\n    ensemble: 5\n    answers: 5\n    mechanism: {{type: rnm_gaussian}}\n"
TOPICS = f"{PLAN}    shots: 1\n    ensemble: 2\n    answers: 2\n    mechanism: {{type: rnm_gaussian}}\n"
TOPICS += "    topics: {by: similarity, names: {warm: a warm shade, cold: a cold shade}, sizes: {warm: 9, cold: 9}}\n"


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    folder = tmp_path_factory.mktemp("altered")
    (folder / "altered.py").write_text(ALTERED)
    config = yaml.safe_load(DEFAULT_CONFIG.read_text())
    config["applications"][0] |= {"import_path": "altered:build", "logging_config": {"enable_access_log": True}}
    (folder / "serve.yaml").write_text(yaml.safe_dump(config))
    path = f"{folder}{os.pathsep}{os.environ.get('PYTHONPATH', '')}"
    options = ("--config", str(folder / "serve.yaml"))
    with planted(folder, *options, PYTHONPATH=path, DPICL_LATENCY_UNPADDED="true") as service:
        yield service


def test_signing_makes_a_release_elsewhere(service: Service) -> None:
    plans, headers = "/v1/knowledge-bases/toys/plans?confirm=worse_than_free", {"Content-Type": "application/yaml"}
    signed = service.send("POST", plans, 201, key=service.admin, content=ONCE, headers=headers)
    assert signed.json()["signed"]["tasks"] == ["toys.shade@2"]


def test_signing_finds_the_topic_of_every_unit_elsewhere(service: Service) -> None:
    plans, headers = "/v1/knowledge-bases/toys/plans?confirm=worse_than_free", {"Content-Type": "application/yaml"}
    signed = service.send("POST", plans, 201, key=service.admin, content=TOPICS, headers=headers).json()["signed"]
    answer = service.send("POST", f"/v1/tasks/{signed['tasks'][0]}/answers", 200, json={"query": "a warm toy"}).json()
    assert answer["topic"] in ("warm", "cold")


def test_printed_questions_and_times_are_caught(service: Service) -> None:
    ask_well(service)
    found = leaks(service, service.session(), shown(service))
    assert {"askclassify", "askfields", "askchat", "story"} <= {where for where, place in found if "worker" in place}
    assert "times of calls" in {where for where, _ in found}
