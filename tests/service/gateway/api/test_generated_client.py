"""The OpenAPI document: as a validator reads it, and as a public generator makes a client of it.

The client is made as its users make it, with the generator's defaults, and calls the running service.
"""

import importlib
import io
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from jsonschema import Draft202012Validator
from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType
from openapi_spec_validator import OpenAPIV31SpecValidator

from service.operations.keys import NewKey
from service.operations.services import Services
from service.operations.written_plans import CLASSIFY
from service.serving.web import create_app
from tests.processes import listening
from tests.service.conftest import serving
from tests.service.gateway.api.test_api import Api

pytestmark = pytest.mark.slow

NAME = "dpicl_client"
ROWS = [{"unit_id": f"u{i}", "text": f"ticket {i}", "label": ("Billing", "Technical")[i % 2]} for i in range(40)]
JSON_LINES = "".join(json.dumps(row) + "\n" for row in ROWS).encode()
CSV = ("unit_id,text,label\n" + "".join(",".join(row.values()) + "\n" for row in ROWS)).encode()


@pytest.fixture(scope="module")
def document(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    return create_app(serving(tmp_path_factory.mktemp("document"))).openapi()


def operations(document: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Operations of a document, by method and path."""
    return {f"{verb} {path}": one for path, verbs in document["paths"].items() for verb, one in verbs.items()}


def schemas_in(part: Any) -> Iterator[dict[str, Any]]:
    """All objects in a part of the document, schemas among them."""
    if isinstance(part, dict):
        yield part
    for inner in part.values() if isinstance(part, dict) else part if isinstance(part, list) else ():
        yield from schemas_in(inner)


def test_the_document_is_valid(document: dict[str, Any]) -> None:
    assert document["openapi"].startswith("3.1.")
    assert [str(error) for error in OpenAPIV31SpecValidator(document).iter_errors()] == []


def test_operations_have_names_to_read_and_rely_on(document: dict[str, Any]) -> None:
    names = {place: operation["operationId"] for place, operation in operations(document).items()}
    assert len(set(names.values())) == len(names)
    for place, name in names.items():
        assert re.fullmatch("[a-z]+(_[a-z]+)+", name), f"{place}: {name} is not a verb and its object"
    assert names["post /v1/knowledge-bases"] == "create_knowledge_base"
    assert names["post /v1/chat/completions"] == "create_chat_completion"


def test_patterns_mean_the_same_in_every_dialect(document: dict[str, Any]) -> None:
    """Python, ECMAScript with and without ``u``, and RE2 read them alike: without named classes and lookaround."""
    patterns = {found["pattern"] for found in schemas_in(document) if isinstance(found.get("pattern"), str)}
    assert len(patterns) > 5
    for pattern in patterns:
        assert pattern[0] + pattern[-1] == "^$", pattern
        assert set(re.findall(r"\\(x[0-9a-f]{2}|.)", pattern)) <= {"x00", "x1f", "x20", "x7f", "."}, pattern
        assert "(?" not in pattern, pattern
        re.compile(pattern)


def test_a_published_pattern_lets_through_what_the_service_takes(document: dict[str, Any]) -> None:
    published = document["components"]["schemas"]["NewKey"]["properties"]["name"]["pattern"]
    for name in ("ana", "Ana Müller-Ø", "票 1", "ana\u00a0b", "🦊", "x" * 100):
        assert NewKey(name=name, role="analyst").name == name
        assert re.search(published, name)


def test_every_operation_names_its_refusals_and_its_key(document: dict[str, Any]) -> None:
    (scheme,) = document["components"]["securitySchemes"].items()
    assert (scheme[0], scheme[1]["type"], scheme[1]["scheme"]) == ("HTTPBearer", "http", "bearer")
    for place, operation in operations(document).items():
        open_to_all = re.search("/healthz|/readyz|/version|/problems/", place) is not None
        assert operation.get("security", []) == [] if open_to_all else [{"HTTPBearer": []}], place
        needed = {"400", "429", "431", "500", "503"} | (set() if open_to_all else {"401", "403"})
        needed |= {"408", "413", "422"} if "requestBody" in operation else set()
        assert needed <= operation["responses"].keys(), place
        for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
            assert body.get("schema"), (place, media_type)
        for status, response in operation["responses"].items():
            for media_type, body in response.get("content", {}).items():
                assert body.get("schema"), (place, status, media_type)


def test_events_of_a_stream_conform_to_the_document(document: dict[str, Any], api: Api) -> None:
    body = {"model": "toys.colour", "messages": [{"role": "user", "content": "a toy"}], "stream": True}
    asked = body | {"stream_options": {"include_usage": True}}
    told = api("analyst", "POST", "/v1/chat/completions", json=asked)
    *events, end = re.findall(r"data: (.*)\n\n", told.text)
    assert (len(events), end) == (3, "[DONE]")
    chunk = {"$ref": "#/components/schemas/ChatCompletionChunk", "components": document["components"]}
    members = set(document["components"]["schemas"]["ChatCompletionChunk"]["properties"])
    for event in map(json.loads, events):
        Draft202012Validator(chunk).validate(event)
        assert event.keys() <= members


@pytest.fixture(scope="module")
def client(document: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """The package that the generator makes."""
    folder = tmp_path_factory.mktemp("generated")
    written = folder / "openapi.json"
    written.write_text(json.dumps(document))
    config = Config.from_sources(
        ConfigFile(post_hooks=[]),  # they tidy the code's layout
        MetaType.NONE,
        document_source=written,
        file_encoding="utf-8",
        overwrite=True,
        output_path=folder / NAME,
    )
    complaints = [f"{error.header} {error.detail}" for error in generate(config=config)]
    lost = [said for said in complaints if re.search("will not be generated|Unable to process schema", said)]
    assert lost == []
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield importlib.import_module(NAME)
    for name in [name for name in sys.modules if name.partition(".")[0] == NAME]:
        del sys.modules[name]


def test_no_operation_is_lost(document: dict[str, Any], client: ModuleType) -> None:
    made = {path.stem for path in (Path(client.__file__).parent / "api").glob("*/*.py")} - {"__init__"}
    assert made == {operation["operationId"] for operation in operations(document).values()}


@pytest.mark.slow
def test_it_takes_a_knowledge_base_from_nothing_to_an_answer(client: ModuleType, services: Services) -> None:
    models, types = importlib.import_module(f"{NAME}.models"), importlib.import_module(f"{NAME}.types")
    tokens = {role: services.records.keys.create(role, role)[1] for role in ("admin", "analyst")}

    with listening(create_app(services)) as url:
        callers = {
            role: client.AuthenticatedClient(base_url=url, token=token, raise_on_unexpected_status=True, timeout=60.0)
            for role, token in tokens.items()
        }

        def call(name: str, *path: str, by: str = "admin", **given: Any) -> Any:
            tag = given.pop("tag")
            return importlib.import_module(f"{NAME}.api.{tag}.{name}").sync(*path, client=callers[by], **given)

        nobody = client.Client(base_url=url)
        assert importlib.import_module(f"{NAME}.api.health.check_health").sync(client=nobody).status == "ok"

        wanted = models.NewKnowledgeBase(
            name="support", epsilon=8.0, delta=1e-4, public_size=600, fields=["text", "label"]
        )
        made = call("create_knowledge_base", tag="knowledge_bases", body=wanted)
        assert (made.name, made.embedded_field) == ("support", "text")
        again = call("create_knowledge_base", tag="knowledge_bases", body=wanted)
        assert isinstance(again, models.ProblemDocument)
        assert again.type_.endswith("knowledge-base-exists")

        for rows in (JSON_LINES, b"\xef\xbb\xbf" + JSON_LINES, CSV):  # the second and the third are the first again
            file = types.File(payload=io.BytesIO(rows))
            stored = call("upload_exemplars", "support", tag="knowledge_bases", body=file)
            assert isinstance(stored, models.Ingested), stored
        assert services.records.store.forget("support", "u7") == 1

        plan = models.Plan.from_dict(CLASSIFY)
        result = call("sign_plan", "support", tag="plans", body=plan, dry_run=True)
        assert isinstance(result, models.PlanResult), result
        assert services.records.ledger.budgets.plans("support") == []
        doubted = call("sign_plan", "support", tag="plans", body=plan)
        assert doubted["confirm"] == "worse_than_free"  # a further member of the problem
        confirmed = [models.Confirmation(doubted["confirm"])]
        result = call("sign_plan", "support", tag="plans", body=plan, confirm=confirmed)
        assert isinstance(result, models.PlanResult), result
        (signed,) = call("list_plans", "support", tag="plans", by="analyst").data
        assert signed.version == 1

        question = models.Question(query="I was charged twice.")
        answer = call("ask_task", "support.queue", tag="answers", by="analyst", body=question)
        assert (answer.task, answer.cost.charged) == ("support.queue@1", 1)
        said = models.Message(role=models.MessageRole.USER, content="I was charged twice.")
        chat = models.ChatRequest(model="support.queue", messages=[said])
        completion = call("create_chat_completion", tag="openai", by="analyst", body=chat)
        assert completion.choices[0].message.content == answer.label
        assert completion.dp_icl.cost.charged == 0, "the same question is a repeat"

        (budget,) = [
            one
            for one in call("get_budgets", tag="budgets", by="analyst").knowledge_bases
            if one.knowledge_base == "support"
        ]
        assert budget.plans[0].tasks[0].spent == 1
