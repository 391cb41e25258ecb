"""Names of settings: a mistyped one is refused, everything else that begins alike is left alone."""

import re
from pathlib import Path

import pytest

from service.settings import UnknownSettingError, check_setting_names, setting_names
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
