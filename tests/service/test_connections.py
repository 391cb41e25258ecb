"""Connections: what uses a proxy, what never does, and which words refuse what cannot be used."""

import asyncio
import http.server
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import certifi
import httpx
import pytest

from exemplar_store import Layout
from service.cli.ask import Service, connect
from service.connections import (
    CallsThroughProxyError,
    CertificatesError,
    certificates,
    http_options,
    is_loopback,
    leave_proxies,
    proxy_for,
    require_direct_calls,
)
from service.engines.configs import OpenAiCompatibleConfig
from service.engines.factory import require_here
from service.engines.remote.chat_endpoint import ChatEndpoint
from service.engines.remote.completion import Reply
from service.environment import InvalidSettingError
from service.sources.files import open_file
from tests.processes import free_ports
from tests.recording_proxy import EVERY_NAME, RecordingProxy, recording_proxy
from tests.service.engines.chat_server import ChatServer, completion
from tests.service.shell import Shell

PROXY = "http://proxy.example.org:3128"
ELSEWHERE = "http://192.0.2.1:9"  # RFC 5737: no machine has it


@pytest.fixture(autouse=True)
def clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in list(os.environ):
        if name.lower().endswith("_proxy") or "CERT" in name or name.endswith("CA_BUNDLE"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("grpc_proxy", "")  # so that it is put back


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[RecordingProxy]:
    """A proxy to which the environment sends every program."""
    with recording_proxy() as recording:
        for name, value in recording.environment().items():
            monkeypatch.setenv(name, value)
        yield recording


HERE = [
    "localhost", "LOCALHOST.", "dp-icl.localhost", "127.0.0.1", "127.0.0.53", "127.1", "0x7f.0.0.1", "2130706433",
    "0.0.0.0",  # noqa: S104
    "::1", "[::1]", "::", "0:0:0:0:0:0:0:1", "::ffff:127.0.0.1", "[::ffff:7f00:5]", "::1%lo",
]  # fmt: skip
"""Spellings of this machine."""


@pytest.mark.parametrize("host", HERE)
def test_this_machine_is_recognised_by_any_name(host: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert is_loopback(host)
    monkeypatch.setenv("DPICL_PROXY_URL", PROXY)
    assert proxy_for(f"http://{host if ':' not in host else '[' + host.strip('[]') + ']'}:8080/v1") is None


def test_a_name_that_resolves_to_this_machine_is_this_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    found = [(socket.AF_INET, socket.SOCK_STREAM, 6, "", ("127.0.1.1", 0))]
    monkeypatch.setattr(socket, "getaddrinfo", lambda *_: found)
    assert is_loopback("model-server")


@pytest.mark.parametrize("host", ["192.0.2.1", "10.0.0.1", "[2001:db8::1]", "::ffff:192.0.2.1", "128.0.0.1"])
def test_another_machine_is_reached_through_the_proxy_of_the_setting(host: str, monkeypatch) -> None:
    assert not is_loopback(host)
    address = f"http://[{host.strip('[]')}]/" if ":" in host else f"http://{host}/"
    assert proxy_for(address) is None
    monkeypatch.setenv("DPICL_PROXY_URL", PROXY)
    assert proxy_for(address) == PROXY


def test_the_client_sends_its_question_to_the_service_alone(proxy: RecordingProxy, dpicl: Shell) -> None:
    nowhere = f"http://127.0.0.1:{free_ports(1)[0]}"
    said = dpicl.fails("ask", "shop.team", "MY QUESTION", "--url", nowhere, "--key", "dpicl_none")
    assert "does not answer" in said
    assert "is not used: to go through a proxy, set DPICL_PROXY_URL" in said
    assert proxy.seen == []


def test_the_client_goes_through_the_proxy_of_the_setting(proxy: RecordingProxy, monkeypatch) -> None:
    for name in EVERY_NAME:
        monkeypatch.delenv(name)
    monkeypatch.setenv("DPICL_PROXY_URL", proxy.url)
    with connect(Service(url=ELSEWHERE, key="dpicl_none")) as client:
        assert client.get("/v1/budgets").status_code == 503  # the proxy's own
    assert len(proxy.seen) == 1
    assert proxy.seen[0].startswith(f"GET {ELSEWHERE}/v1/budgets".encode())


def config(url: str) -> OpenAiCompatibleConfig:
    return OpenAiCompatibleConfig(
        name="openai_compatible", base_url=url, model="m", isolation="best_effort", max_attempts=1
    )


def test_a_model_server_on_this_machine_is_asked_directly(proxy: RecordingProxy) -> None:
    async def behave(_: object) -> bytes:
        return completion("Billing")

    async def ask() -> object:
        async with ChatServer(behave) as server:
            endpoint = ChatEndpoint(config(server.url))
            reply = await endpoint.ask("A PRIVATE EXEMPLAR", temperature=0.0, max_tokens=5)
            await endpoint._client.aclose()
            return reply

    assert asyncio.run(ask()) == Reply("Billing")
    assert proxy.seen == []


def test_rows_at_an_address_on_this_machine_are_read_directly(proxy: RecordingProxy, tmp_path: Path) -> None:
    (tmp_path / "rows.jsonl").write_text('{"text": "a", "label": "x", "unit_id": "u"}\n')
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(tmp_path))
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        with open_file(f"http://127.0.0.1:{server.server_port}/rows.jsonl") as source:
            assert len(list(source.rows(Layout(("text", "label"))))) == 1
        server.shutdown()
    assert proxy.seen == []


def test_libraries_find_no_proxy_but_that_of_the_setting(proxy: RecordingProxy, monkeypatch) -> None:
    assert set(leave_proxies()) == set(EVERY_NAME)
    assert {name for name in os.environ if name.lower().endswith("_proxy")} == {"grpc_proxy"}
    assert leave_proxies() == []
    monkeypatch.setenv("DPICL_PROXY_URL", proxy.url)
    monkeypatch.setenv("SSLKEYLOGFILE", "/tmp/keys")  # noqa: S108
    leave_proxies()
    assert os.environ["https_proxy"] == os.environ["http_proxy"] == proxy.url
    assert "SSLKEYLOGFILE" not in os.environ
    for host in ("localhost", "127.0.0.1", "[::1]"):
        with (
            httpx.Client() as client,
            pytest.raises(httpx.ConnectError),
        ):  # as a library's own
            client.get(f"http://{host}:9/")
    assert proxy.seen == []


def test_a_proxy_that_does_not_answer_is_named(monkeypatch: pytest.MonkeyPatch, dpicl: Shell) -> None:
    monkeypatch.setenv("DPICL_PROXY_URL", "http://me:PASSWORD@127.0.0.1:9")
    for url, told in ((ELSEWHERE, True), ("http://127.0.0.1:9", False)):
        said = dpicl.fails("ask", "shop.team", "Where?", "--url", url, "--key", "dpicl_none")
        assert ("the proxy that DPICL_PROXY_URL names" in said) is told
        assert "PASSWORD" not in said


@pytest.mark.parametrize(
    "wrong",
    ["socks5://127.0.0.1:1080", "socks://h:1/", "127.0.0.1:3128", "proxy.example.org", "http://", "http://h:99999",
     "http://h:0", "http://[::1", "http://me:PASSWORD@", "ftp://h:1", "http://h:3128/path", "http://h o:1", "http://h:x"],
)  # fmt: skip
def test_a_proxy_that_cannot_be_used_is_refused_by_the_settings_name(wrong: str, monkeypatch, dpicl: Shell) -> None:
    monkeypatch.setenv("DPICL_PROXY_URL", wrong)
    with pytest.raises(InvalidSettingError):
        http_options(ELSEWHERE)
    said = dpicl.fails("ask", "shop.team", "Where?", "--url", "http://127.0.0.1:9", "--key", "dpicl_none")
    assert "DPICL_PROXY_URL" in said
    assert "http://proxy.example.org:3128" in said
    assert "PASSWORD" not in said


@pytest.mark.parametrize("name", ["SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
@pytest.mark.parametrize("where", ["/no/such/place", "/dev/null"])
def test_certificates_that_cannot_be_read_are_refused_by_the_variables_name(
    name: str, where: str, monkeypatch: pytest.MonkeyPatch, dpicl: Shell
) -> None:
    monkeypatch.setenv(name, where)
    with pytest.raises(CertificatesError, match=f"^{name}: .*{where}.*(correct|unset)"):
        certificates()
    with pytest.raises(CertificatesError, match=f"^{name}: "):
        require_here(config("https://models.example.org/v1"))
    said = dpicl.fails("ask", "shop.team", "Where?", "--url", "http://127.0.0.1:9", "--key", "dpicl_none")
    assert said.startswith(f"error: {name}: ")


def test_a_folder_of_certificates_under_a_files_name_is_refused(monkeypatch, tmp_path: Path) -> None:
    monkeypatch.setenv("REQUESTS_CA_BUNDLE", str(tmp_path))
    with pytest.raises(CertificatesError, match=r"REQUESTS_CA_BUNDLE: .* is a folder"):
        certificates()


def test_authorities_are_those_that_the_environment_names(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    assert len(certificates().get_ca_certs()) > 50
    end = "-----END CERTIFICATE-----\n"
    bundle = tmp_path / "one.pem"
    bundle.write_text(Path(certifi.where()).read_text().partition(end)[0] + end)
    monkeypatch.setenv("CURL_CA_BUNDLE", str(bundle))
    assert len(certificates().get_ca_certs()) == 1


@pytest.mark.parametrize(
    ("environment", "refused"),
    [
        ({}, ""),
        ({"http_proxy": PROXY}, "http_proxy"),
        ({"https_proxy": PROXY}, "https_proxy"),
        ({"grpc_proxy": PROXY}, "grpc_proxy"),
        ({"http_proxy": PROXY, "grpc_proxy": ""}, ""),
        ({"HTTP_PROXY": PROXY}, ""),
    ],
)
def test_a_cluster_whose_calls_would_use_a_proxy_is_refused(environment, refused: str, monkeypatch) -> None:
    """As gRPC itself decides it, in a process of its own."""
    monkeypatch.delenv("grpc_proxy")
    with recording_proxy() as recording:
        environment = {name: value and recording.url for name, value in environment.items()}
        for name, value in environment.items():
            monkeypatch.setenv(name, value)
        call = (
            "import grpc\nwith grpc.insecure_channel('127.0.0.1:9') as channel:\n"
            " try: channel.unary_unary('/a/b')(b'', timeout=5)\n except grpc.RpcError: pass"
        )
        subprocess.run([sys.executable, "-c", call], check=True, timeout=60)
        assert bool(recording.seen) is bool(refused)
    if refused:
        with pytest.raises(CallsThroughProxyError, match=f"{refused} names: set grpc_proxy to an empty text"):
            require_direct_calls()
    else:
        require_direct_calls()
