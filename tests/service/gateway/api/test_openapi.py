"""The API against its own OpenAPI document: Schemathesis sends what the document allows, and what it forbids."""

from collections.abc import Iterator
from typing import Any

import pytest
import schemathesis
from schemathesis.config import (
    ChecksConfig,
    GenerationConfig,
    PositiveDataAcceptanceConfig,
    ProjectConfig,
    ProjectsConfig,
    SchemathesisConfig,
)
from schemathesis.engine import events, from_schema

from accounting.ledger.budgets import Budgets
from accounting.plans.plan import parse_plan
from exemplar_store import Layout, read_json_lines
from service.answering.plans.signing import prepare, sign
from service.engines.embedded.nearest_exemplar import NearestExemplarEngine
from service.engines.embedding.embedder import Embedder
from service.gateway.api.problems import MEDIA_TYPE
from service.operations.services import Services, open_services
from service.operations.written_plans import CLASSIFY
from service.records.audit_key import make_signer
from service.records.records import Records, open_records
from service.serving.web import create_app
from tests.sanitization.restore.made_up import published
from tests.service.conftest import development, rows
from tests.service.gateway.api.test_authorisation import KEYS

pytestmark = pytest.mark.model

TOLD = [("Billing", "I was charged twice in March."), ("Technical", "The app does not start any more.")]
EXAMPLES = 5
"""Number of random examples for each operation, besides the document's own and those at the edges of its schemas."""

OF_OTHER_ROLES = {
    role: {f"{entry.method} {entry.path.replace(':path', '')}" for entry, roles in KEYS if role not in roles}
    for role in ("admin", "analyst")
}
"""Operations that never succeed, in addition to :data:`UNGUESSABLE`.

All others must succeed once, so that no operation passes only because it fails early.
"""

UNGUESSABLE = {
    "GET /v1/releases/{release_id}",
    "GET /v1/releases/{release_id}/receipt",
    "POST /v1/knowledge-bases/{knowledge_base}/archive",
    "POST /v1/restore/answers",
}
"""Operations that need a value that no example has: a release's id, a name to archive, or a bundle's hash."""


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """The service that the document's examples are about: a knowledge base ``support`` with the task ``queue``."""
    folder = tmp_path_factory.mktemp("openapi")
    texts, bundles = folder / "public.txt", folder / "bundles"
    published(bundles)
    make_signer(folder / "audit.pem", "a.example")
    texts.write_text("one\ntwo\nthree\nfour\n")
    records = open_records(
        development(
            folder,
            audit_key_file=folder / "audit.pem",
            audit_origin="a.example",
            sanitizer_words=60,
            public_texts=texts,
            restore_bundles=bundles,
        )
    )
    records.create_knowledge_base(
        "support", epsilon=800, delta=0.5, public_size=600, fields=["text", "label"], embedded_field="text"
    )
    records.ledger.groups.open("care", 900, 0.5, by="test")
    embedder = Embedder()
    exemplars = [{"unit_id": f"customer-{i}", "text": TOLD[i % 2][1], "label": TOLD[i % 2][0]} for i in range(40)]
    records.store.ingest("support", read_json_lines(rows(exemplars), Layout(("text", "label"))), embedder.embed_many)
    other = CLASSIFY | {"budget": {"epsilon": 1.5, "delta": 1e-4}}  # than the example, which is to be signed yet
    sign(records, prepare(records, parse_plan(other)), "test")
    open_cohort, retire = Records.open_cohort, Budgets.retire

    def open_small(self: Records, name: str, **cohort: Any) -> int:
        """Open a small cohort: with a thousand million exemplars, the most allowed, later previews take minutes."""
        return open_cohort(self, name, **cohort | {"public_size": min(600, cohort["public_size"])})

    def retire_others(self: Budgets, name: str, version: int, *, by: str) -> None:
        """Retire no plan whose task the other operations ask."""
        if version > 1:
            retire(self, name, version, by=by)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(Records, "open_cohort", open_small)
        patched.setattr(Budgets, "retire", retire_others)
        patched.setenv("XDG_CACHE_HOME", str(folder))
        opened = open_services(records, NearestExemplarEngine(embedder), embedder)
        opened.sanitizers.prepare()
        yield opened


def config(token: str) -> SchemathesisConfig:
    """A configuration with the same examples at each run, and every check of Schemathesis."""
    # Well-formed is not yet meaningful: a query may not fit its task, a plan its knowledge base.
    meaning = PositiveDataAcceptanceConfig(
        expected_statuses=["2xx", "401", "402", "403", "404", "409", "410", "413", "415", "422"]
    )
    project = ProjectConfig(
        headers={"Authorization": f"Bearer {token}"},
        continue_on_failure=True,
        request_timeout=120,  # the request waits until a plan is calibrated
        generation=GenerationConfig(deterministic=True, max_examples=EXAMPLES, database="none"),
        checks=ChecksConfig(positive_data_acceptance=meaning),
    )
    return SchemathesisConfig(seed=1, projects=ProjectsConfig(default=project))


@schemathesis.serializer("application/x-ndjson", "text/csv")
def as_it_is(_context: schemathesis.SerializationContext, value: object) -> bytes:
    """Send an upload as it is: Schemathesis itself can send JSON and YAML only."""
    return str(value).encode(errors="surrogatepass")


@pytest.mark.lengthy
@pytest.mark.parametrize("role", ["admin", "analyst"])
def test_requests_and_responses_conform(services: Services, role: str) -> None:
    _, token = services.records.keys.create(role, role)
    schema = schemathesis.openapi.from_asgi("/openapi.json", create_app(services), config=config(token))
    if role == "analyst":  # operations that admins may use are tried as an admin
        schema = schema.include(lambda context: context.operation.label in OF_OTHER_ROLES["admin"])
    statuses: dict[str, set[int]] = {operation.ok().label: set() for operation in schema.get_all_operations()}
    failures: list[str] = []
    for event in from_schema(schema).execute():
        match event:
            case events.ScenarioFinished():
                for sent in event.recorder.cases.values():
                    response = event.recorder.find_response(case_id=sent.value.id)
                    if response is not None:
                        statuses[sent.value.operation.label].add(response.status_code)
                failures += [
                    f"{event.label}: {check.failure_info.failure}\n{check.failure_info.code_sample}"
                    for checks in event.recorder.checks.values()
                    for check in checks
                    if check.failure_info is not None
                ]
            case events.NonFatalError() | events.FatalError():
                failures.append(event.info.format())
    assert failures == [], "\n\n".join(failures)
    never_answered = {label for label, seen in statuses.items() if not seen & {200, 201, 204}}
    assert never_answered - UNGUESSABLE == OF_OTHER_ROLES[role] & statuses.keys() - UNGUESSABLE


def test_every_required_parameter_and_every_body_has_an_example(services: Services) -> None:
    """A parameter that may be left out, such as a page of a list, needs none."""
    document = create_app(services).openapi()
    for path, operations in document["paths"].items():
        for method, operation in operations.items():
            required = [parameter for parameter in operation.get("parameters", ()) if parameter["required"]]
            for parameter in required:
                examples = parameter["schema"].get("examples") or parameter.get("examples")
                assert examples, (method, path, parameter["name"])
            for media_type, body in operation.get("requestBody", {}).get("content", {}).items():
                name = body["schema"].get("$ref", "").rpartition("/")[2]
                schema = document["components"]["schemas"].get(name, {})
                assert body.keys() & {"example", "examples"} or schema.get("examples"), (method, path, media_type)


def test_every_refusal_is_a_problem_document(services: Services) -> None:
    document = create_app(services).openapi()
    responses = [
        (path, status, response)
        for path, operations in document["paths"].items()
        for operation in operations.values()
        for status, response in operation["responses"].items()
    ]
    for path, status, response in responses:
        assert "x-request-id" in response["headers"], (path, status)
        if status >= "400":
            (content,) = response["content"].items()
            assert content == (MEDIA_TYPE, {"schema": {"$ref": "#/components/schemas/ProblemDocument"}}), (path, status)
    assert not document["components"]["schemas"].keys() & {"HTTPValidationError", "ValidationError"}
