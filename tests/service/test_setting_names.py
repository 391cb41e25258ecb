"""Names and values of settings: a mistyped one is refused, what begins alike and is another program's left alone."""

import re
from pathlib import Path

import pytest

from service.records.witness import witness_url
from service.settings import Settings, UnknownSettingError, check_setting_names, setting_names
from tests.service.shell import Shell

ROOT = Path(__file__).parents[2]


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("DPICL_DATABSE_URL", "DPICL_DATABASE_URL"),
        ("DPICL_DATABASE", "DPICL_DATABASE_URL"),
        ("DPICL_WITNES_URL", "DPICL_WITNESS_URL"),
        ("dpicl_encryption_keyfile", "DPICL_ENCRYPTION_KEY_FILE"),
        ("DPICL_GRAIN_MS", "DPICL_LATENCY_GRAIN_MS"),
        ("DPICL_REMOTE_KEY", "DPICL_REMOTE_API_KEY"),
        ("DPICL_PROXY", "DPICL_PROXY_URL"),
        ("DPICL_APIKEY", "DPICL_API_KEY"),
        ("DPIC_DATABASE_URL", "DPICL_DATABASE_URL"),
        ("DP_ICL_ENCRYPTION_KEY", "DPICL_ENCRYPTION_KEY"),
        ("DP_ICL_PORT", "DPICL_PORT"),
        ("DPICL-LATENCY-UNPADDED", "DPICL_LATENCY_UNPADDED"),
        ("DPICL_XYZZY", None),
        ("DPICL_", None),
    ],
)
def test_a_mistyped_setting_is_refused(name: str, meant: str | None, dpicl: Shell, monkeypatch) -> None:
    monkeypatch.setenv(name, "canary-value")
    for command in (
        ("ask", "shop.team", "Where?", "--key", "k"),
        ("kb", "list"),
        ("serve",),
        ("migrate",),
        ("budget",),
    ):
        said = dpicl.fails(*command)
        assert f"{name} is not a setting" in said
        assert (f"did you mean {meant}?" in said) is (meant is not None)
        assert "canary" not in said
    assert dpicl.ok("--version")
    assert dpicl.ok("ask", "--help")


@pytest.mark.parametrize(
    "name",
    ["DPICL_SERVICE_HOST", "DPICL_SERVICE_PORT", "DPICL_SERVICE_PORT_HTTP", "DPICL_PORT", "DPICL_PORT_80_TCP",
     "DPICL_PORT_80_TCP_ADDR", "DPICL_HEAD_SVC_SERVICE_HOST", "DPICL_HEAD_SVC_PORT_8265_TCP_PROTO",
     "DP_ICL_SERVICE_HOST", "_DPICL_COMPLETE", "dpicl_metrics_open", "MY_DPICL_DATABSE_URL"],
)  # fmt: skip
def test_variables_of_kubernetes_and_other_programs_are_left_alone(name: str, monkeypatch) -> None:
    monkeypatch.setenv(name, "0")
    check_setting_names()


@pytest.mark.parametrize("service", ["DPICL", "DP_ICL", "DPICL2", "DPICL_HEAD_SVC", "DP_ICL_HEAD_SVC"])
def test_every_variable_of_a_service_of_almost_this_name_is_left_alone(
    service: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    address = "tcp://10.96.12.34:80"
    values = {"SERVICE_HOST": "10.96.12.34", "SERVICE_PORT": "80", "SERVICE_PORT_HTTP": "80", "PORT": address}
    parts = {"": address, "_PROTO": "tcp", "_PORT": "80", "_ADDR": "10.96.12.34"}
    for name, value in (values | {f"PORT_80_TCP{part}": value for part, value in parts.items()}).items():
        monkeypatch.setenv(f"{service}_{name}", value)
    check_setting_names()


def test_a_setting_in_two_spellings_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DPICL_MIGRATE", "never")
    monkeypatch.setenv("dpicl_migrate", "auto")
    with pytest.raises(UnknownSettingError, match="DPICL_MIGRATE and dpicl_migrate are the same setting"):
        check_setting_names()


@pytest.mark.parametrize(
    ("name", "value", "advice"),
    [
        ("DEVELOPMENT", "canary", "write true or false"),
        ("DEVELOPMENT", "'true'", "quotation marks"),
        ("MCP_HOSTS", "example.org", 'not JSON, such as ["127.0.0.1:*"'),
        ("MCP_HOSTS", '["https://example.org/"]', "not a host's name"),
        ("OIDC_ROLES", "{'groups': 1}", '{"groups": {"budget-owners": "admin"}}'),
        ("OIDC_CLIENT_SECRET", "canary", "DPICL_OIDC_ISSUER, DPICL_OIDC_CLIENT_ID, DPICL_OIDC_ROLES"),
        ("PROBLEM_BASE", "problems", "/problems/"),
        ("ENCRYPTION_KEY_FILE", "~/key", "the whole path"),
        ("LATENCY_GRAIN_MS", "1,000", "write 1000"),
        ("DATABASE_URL", " ", "it is empty"),
        ("TEXT_EPSILON_CAP", "", "it is empty"),
        ("WITNESS_URL", "canary", "not a URL"),
    ],
)
def test_a_value_that_cannot_be_used_is_refused_by_its_variable(
    name: str, value: str, advice: str, dpicl: Shell, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(f"DPICL_{name}", value)
    said = dpicl.fails("keys", "list") if name != "WITNESS_URL" else dpicl.fails("keys", "create", "ana")
    assert f"DPICL_{name}" in said or "DPICL_OIDC_ISSUER" in said
    assert advice in said
    assert "canary" not in said


def test_an_empty_value_is_as_good_as_none_and_white_space_does_not_count(monkeypatch: pytest.MonkeyPatch) -> None:
    unset = Settings()
    for name in Settings.model_fields:
        if name not in ("database_url", "text_epsilon_cap"):
            monkeypatch.setenv(f"DPICL_{name.upper()}", "\n" if name == "mcp_hosts" else "")
    assert Settings() == unset
    monkeypatch.setenv("DPICL_LATENCY_UNPADDED", " true\n")
    assert Settings().latency_unpadded
    for none in (" none\n", "None"):
        monkeypatch.setenv("DPICL_WITNESS_URL", none)
        assert witness_url(Settings()) is None


def test_every_variable_that_pages_programs_and_manifests_name_is_known() -> None:
    known = set(setting_names())
    files = [
        file
        for folder in ("docs", "docs_src", "deploy", "service", "examples", "chaos", "tests/e2e")
        for file in (ROOT / folder).rglob("*")
        if file.suffix in (".md", ".sh", ".py", ".yaml", ".json") and file.is_file()
    ]
    named = {name for file in files for name in re.findall(r"\bDPICL_[A-Z_]*[A-Z]\b(?!_|\w|\.\.\.)", file.read_text())}
    assert len(named) > 20
    assert named - known == set()


def test_a_replica_refuses_them_too(monkeypatch: pytest.MonkeyPatch) -> None:
    from service.serving.local_ray import begin_replica

    monkeypatch.setenv("DPICL_QUERY_TIMEOUT", "5")
    with pytest.raises(UnknownSettingError, match=r"did you mean DPICL_QUERY_TIMEOUT_S\?"):
        begin_replica()
