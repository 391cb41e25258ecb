"""A decimal comma, and other numbers that can mean two things, on every face: refused, and nothing is done."""

from pathlib import Path

import pytest

from service.operations.services import Services
from service.serving.serve_config import load_serve_config
from tests.service.conftest import client_of
from tests.service.gateway.dashboard.dashboard_browser import signed_in, words
from tests.service.shell import Shell

FORMS = {
    "/new-knowledge-base": {"name": "desk", "epsilon": "8", "delta": "1e-4", "public_size": "600", "fields": "text"},
    "/groups": {"name": "care", "epsilon": "8", "delta": "1e-4"},
    "/knowledge-bases/toys/cohorts": {"epsilon": "8", "delta": "1e-4", "public_size": "600"},
    "/keys": {"name": "ana", "role": "analyst", "quota": "500", "rate_per_minute": "60", "expires_in_days": "30"},
}
WRONG = {
    "epsilon": {"0,5": "write 0.5", "1_000": "write 1000", "５": "write 5", "50%": "write 0.5", "∞": "such as"},
    "delta": {"0,0001": "write 0.0001", "1·10⁻⁴": "write 1e-4", "1,5e-4": "write 0.00015", "nan": "such as"},
    "public_size": {"1,000": "write 1000", "1.000": "write 1000", "1e3": "write 1000", "-0": "write 0"},
    "quota": {"1,000": "write 1000", "1.000": "write 1000"},
    "rate_per_minute": {"1.000": "write 1000"},
    "expires_in_days": {"1 000": "write 1000"},
}
OPTIONS = {
    "kb create desk": {"epsilon": "8", "delta": "1e-4", "public_size": "600"},
    "group create care": {"epsilon": "8", "delta": "1e-4"},
    "cohort open toys": {"epsilon": "8", "delta": "1e-4", "public_size": "600"},
    "keys create ana": {"quota": "500", "rate_per_minute": "60", "expires_in_days": "30"},
}
ROUTES = {
    "/v1/knowledge-bases": {"name": "desk", "epsilon": 8, "delta": 1e-4, "public_size": 600},
    "/v1/groups": {"name": "care", "epsilon": 8, "delta": 1e-4},
    "/v1/knowledge-bases/toys/cohorts": {"epsilon": 8, "delta": 1e-4, "public_size": 600},
    "/v1/keys": {"name": "ana", "role": "analyst", "quota": 500, "rate_per_minute": 60, "expires_in_days": 30},
}


def trail(services: Services) -> int:
    return len(list(services.records.audit.events()))


@pytest.mark.parametrize("path", FORMS)
def test_the_dashboard_refuses_them_beside_their_field(services: Services, path: str) -> None:
    browser = signed_in(services)
    before = trail(services)
    for field in FORMS[path].keys() & WRONG.keys():
        for written, way in WRONG[field].items():
            page = browser.refused(path, FORMS[path] | {field: written}, field)
            assert way in words(page)
    assert trail(services) == before


@pytest.mark.parametrize("command", OPTIONS)
def test_the_command_line_refuses_them(services: Services, dpicl: Shell, command: str) -> None:
    before = trail(services)
    for field in OPTIONS[command].keys() & WRONG.keys():
        for written, way in WRONG[field].items():
            given = (OPTIONS[command] | {field: written}).items()
            failed = dpicl.fails(*command.split(), *(f"--{name.replace('_', '-')}={value}" for name, value in given))
            assert way in " ".join(failed.replace("│", " ").split())
    assert trail(services) == before


@pytest.mark.parametrize("route", ROUTES)
def test_rest_refuses_numbers_that_are_texts(services: Services, route: str) -> None:
    client, before = client_of(services, "admin"), trail(services)
    for field in ROUTES[route].keys() & WRONG.keys():
        for written, way in (
            WRONG[field] | {"8": "write 8 without quotes"} if field == "epsilon" else WRONG[field]
        ).items():
            answer = client.post(route, json=ROUTES[route] | {field: written})
            assert (answer.status_code, way in answer.json()["detail"]) == (422, True), answer.text
    assert trail(services) == before


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ('{"name": "care", "epsilon": 8, "delta": 1e-4, "epsilon": 80}', "an object gives 'epsilon' twice"),
        ('{"name": "care", "epsilon": NaN, "delta": 1e-4}', "NaN is not a number"),
        ('{"name": "care", "epsilon": 08, "delta": 1e-4}', "at character 30"),
    ],
)
def test_rest_refuses_json_that_others_read_in_another_way(services: Services, body: str, says: str) -> None:
    client, before = client_of(services, "admin"), trail(services)
    for key in ({}, {"Idempotency-Key": "one"}):
        headers = {"Content-Type": "application/json", **key}
        answer = client.post("/v1/groups", content=body, headers=headers)
        assert (answer.status_code, says in answer.json()["detail"]) == (422, True), answer.text
    assert trail(services) == before


IN_ADDRESSES = {
    "1_0": "write 10",
    "1.0": "write 1",
    "1e1": "write 10",
    "٥": "write 5",
    "-0": "write 0",
    "2,5": "such as",
}


def test_rest_refuses_them_in_addresses(services: Services) -> None:
    """Every parameter that is a whole number, found in the document of the API, so that a new one is not left out."""
    client, before, found = client_of(services, "admin"), trail(services), set()
    filled = {"knowledge_base": "toys", "cohort": "1", "version": "1"}
    for path, operations in client.get("/openapi.json").json()["paths"].items():
        for method, operation in operations.items():
            for parameter in operation.get("parameters", ()):
                types = [option.get("type") for option in parameter["schema"].get("anyOf", [parameter["schema"]])]
                assert "number" not in types, "a parameter in an address with a decimal point: test it here, too"
                if "integer" not in types:
                    continue
                found.add((name := parameter["name"], place := parameter["in"]))
                for written, way in IN_ADDRESSES.items():
                    address = path.format_map(filled | ({name: written} if place == "path" else {}))
                    given = {name: written} if place == "query" else {}
                    answer = client.request(method, address, params=given, content="" if method == "post" else None)
                    assert (answer.status_code, way in answer.json()["detail"]) == (422, True), answer.text
    assert found == {
        ("limit", "query"),
        ("skip_lines", "query"),
        ("again", "query"),
        ("cohort", "path"),
        ("version", "path"),
    }
    assert trail(services) == before


@pytest.mark.parametrize(
    ("written", "way"),
    [
        ('"1·10⁻⁴"', "write 1e-4"),
        ('"0,5"', "write 0.5"),
        ("٥", "write 5"),
        ('"8"', "write 8 without quotes"),
        ('"1_000"', "write 1000"),
        ("010", "write 10"),
        ("1:30", "such as 0.5"),
        ("true", "valid number"),
    ],
)
def test_engines_settings_refuse_them(tmp_path: Path, written: str, way: str) -> None:
    config = tmp_path / "serve.yaml"
    engine = f"{{name: openai_compatible, model: m, base_url: 'http://127.0.0.1:1/v1', timeout_s: {written}}}"
    config.write_text(
        f"applications: [{{import_path: 'service.serving.application:build', args: {{engine: {engine}}}}}]"
    )
    with pytest.raises(ValueError, match=f"timeout_s: .*{way}"):
        load_serve_config(config)


@pytest.mark.parametrize(
    ("name", "written", "way"), [("LATENCY_GRAIN_MS", "10.000", "10000"), ("LEASE_S", "0,5", "0.5")]
)
def test_settings_refuse_them(
    monkeypatch: pytest.MonkeyPatch, dpicl: Shell, tmp_path: Path, name: str, written: str, way: str
) -> None:
    monkeypatch.setenv(f"DPICL_{name}", written)
    assert f"write {way}" in dpicl.fails("kb", "list")
