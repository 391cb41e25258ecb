"""Every kind of problem is used, has an explanation, and shows clients whether to retry."""

import re
from pathlib import Path
from urllib.parse import urljoin

import pytest
from fastapi.testclient import TestClient

from service.gateway.api.problems import Problem
from service.problem_kinds import ProblemKind
from service.serving.web import create_app
from service.settings import Settings
from tests.service.conftest import serving

SERVICE = Path(__file__).parents[4] / "service"
each_kind = pytest.mark.parametrize("kind", ProblemKind, ids=lambda kind: kind.slug)


def test_every_kind_is_used() -> None:
    used = {name for file in SERVICE.rglob("*.py") for name in re.findall(r"ProblemKind\.([A-Z_]+)", file.read_text())}
    assert used == {kind.name for kind in ProblemKind}


@each_kind
def test_a_kind_explains_whether_anything_was_charged_or_changed(kind: ProblemKind) -> None:
    assert re.search(r"(Nothing was (charged|changed|stored|promised|created)|Perhaps charged)\b", kind.explanation)


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> TestClient:
    return TestClient(create_app(serving(tmp_path_factory.mktemp("problems"))))


def test_a_type_leads_to_its_explanation(client: TestClient) -> None:
    refused = client.get("/v1/budgets")
    assert (refused.status_code, refused.json()["type"]) == (401, "/problems/missing-key")
    explained = client.get(urljoin(str(refused.request.url), refused.json()["type"]))
    assert explained.json() == {
        "title": refused.json()["title"],
        "status": 401,
        "explanation": ProblemKind.MISSING_KEY.explanation,
    }


def test_every_kind_is_explained_and_nothing_else(client: TestClient) -> None:
    for kind in ProblemKind:
        assert client.get(f"/problems/{kind.slug}").json()["explanation"] == kind.explanation
    unknown = client.get("/problems/none")
    assert (unknown.status_code, unknown.json()["type"]) == (404, "/problems/not-found")


def test_an_operator_sets_where_types_lead(tmp_path: Path) -> None:
    base = "https://docs.example.org/reference/problems.html#"
    client = TestClient(create_app(serving(tmp_path, problem_base=base)))
    assert client.get("/v1/budgets").json()["type"] == f"{base}missing-key"
    assert client.get("/v1/budgets?after=%00").json()["type"] == f"{base}bad-address"


@pytest.mark.parametrize(
    ("path", "advice"),
    [
        ("/chat/completions", "let the base URL end in /v1"),
        ("/models", "there is /v1/models"),
        ("/v1/embeddings", "/openapi.json"),
        ("/redoc", "/openapi.json"),
        ("/v1/v1/models", "leave /v1 out"),
    ],
)
def test_an_error_about_an_unknown_address_names_the_right_one(client: TestClient, path: str, advice: str) -> None:
    answer = client.post(path)
    assert answer.status_code == 404
    assert advice in answer.json()["detail"]


def test_the_root_leads_to_the_dashboard(client: TestClient) -> None:
    answer = client.get("/", follow_redirects=False)
    assert urljoin(str(answer.url), answer.headers["location"]) == "http://testserver/admin/"


@pytest.mark.parametrize("base", ["problems/", "javascript:alert(1)", "https://a b/", "//elsewhere/"])
def test_a_base_is_a_path_or_an_address(base: str) -> None:
    with pytest.raises(ValueError, match="DPICL_PROBLEM_BASE"):
        Settings(problem_base=base)


@pytest.mark.parametrize(
    ("problem", "headers"),
    [
        (Problem(ProblemKind.ANSWERS_EXHAUSTED, ""), {"x-should-retry": "false"}),
        (Problem(ProblemKind.BUSY, "", retry_after_s=0.2), {"retry-after": "1"}),
        (Problem(ProblemKind.WRONG_ENCRYPTION_KEY, ""), {"x-should-retry": "false"}),
        (Problem(ProblemKind.UNKNOWN_TASK, ""), {}),
    ],
    ids=lambda value: getattr(value, "kind", ""),
)
def test_problems_show_whether_to_retry(client: TestClient, problem: Problem, headers: dict[str, str]) -> None:
    told = {name: value for name, value in problem.response({"app": client.app}).headers.items() if "retry" in name}
    assert told == headers
