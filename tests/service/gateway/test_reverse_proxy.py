"""The service below a path of a site, behind a real nginx that takes the path away or leaves it."""

import html
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import httpx2
import pytest
from fastapi.testclient import TestClient
from mcp.client import Client
from mcp.client.streamable_http import streamable_http_client
from openai import OpenAI
from pydantic import SecretStr

from service.operations.services import Services, open_services
from service.records.records import open_records
from service.serving.web import create_app
from service.settings import Settings
from tests.nginx import PREFIX, documented_location, nginx
from tests.processes import free_ports, listening
from tests.service.conftest import EMBEDDER, MajorityEngine, bearer, development, serving
from tests.service.gateway.dashboard.oidc_provider import CLIENT, SECRET, provider
from tests.service.shell import Shell

WAYS = {
    "as documented": {"strips": True, "reports": True},
    "taken away, not reported": {"strips": True, "reports": False},
    "left, not reported": {"strips": False, "reports": False},
    "left and reported": {"strips": False, "reports": True},
}
"""What nginx does with the path; where it does not report it, the service is given it."""


class Site:
    """A service below a path, with keys of an admin and an analyst.

    Attributes:
        url: address of the service as its callers have it.
        direct: address of the service without the proxy.
    """

    def __init__(self, services: Services, url: str, direct: str) -> None:
        self.services, self.url, self.direct = services, url, direct
        keys = services.records.keys
        self.admin, self.analyst = keys.create("maria", "admin")[1], keys.create("ana", "analyst")[1]


@pytest.fixture(params=WAYS)
def site(request: pytest.FixtureRequest, tmp_path: Path, toys: Path) -> Iterator[Site]:
    way = WAYS[request.param]
    shutil.copytree(toys, tmp_path, dirs_exist_ok=True)
    settings = development(tmp_path, root_path="" if way["reports"] else PREFIX)
    services = open_services(open_records(settings), MajorityEngine(), EMBEDDER)
    # The peer is the proxy, as through Ray Serve.
    with (
        listening(create_app(services), forwarded_allow_ips="") as direct,
        nginx(tmp_path / "nginx", documented_location(direct, **way)) as proxy,
    ):
        yield Site(services, proxy + PREFIX, direct)


def test_addresses_in_answers_lead_through_the_proxy(site: Site) -> None:
    assert httpx.head(f"{site.url}/healthz").status_code == 200
    assert httpx.head(f"{site.direct}/healthz").status_code == 200  # probes need no proxy
    for path in ("/", "/docs", "/admin"):
        moved = httpx.get(site.url + path)
        assert moved.status_code == 307
        followed = httpx.URL(site.url + path).join(moved.headers["location"])
        assert str(followed) == f"{site.url}/admin/{'docs' if path == '/docs' else ''}"
    document = httpx.get(f"{site.url}/openapi.json").json()
    assert document["servers"] == [{"url": PREFIX}]
    assert "/v1/budgets" in document["paths"]
    refused = httpx.get(f"{site.url}/v1/budgets").json()
    assert refused["type"] == f"{PREFIX}/problems/missing-key"
    explained = httpx.get(str(httpx.URL(f"{site.url}/v1/budgets").join(refused["type"])))
    assert explained.json()["title"] == refused["title"]
    nowhere = httpx.get(f"{site.url}/models").json()
    assert f"there is no {PREFIX}/models, but there is {PREFIX}/v1/models" in nowhere["detail"]
    assert httpx.delete(f"{site.url}/v1/budgets").headers["allow"] == "GET"
    listed = httpx.get(f"{site.url}/v1/keys?limit=1", headers=bearer(site.admin)).json()
    assert listed["next"].startswith(f"{PREFIX}/v1/keys?")
    further = httpx.get(str(httpx.URL(site.url).join(listed["next"])), headers=bearer(site.admin)).json()
    assert [len(page["data"]) for page in (listed, further)] == [1, 1]
    assert listed["data"] != further["data"]


def test_a_request_that_is_repeated_is_the_same_by_both_addresses(site: Site) -> None:
    named = bearer(site.admin, **{"Idempotency-Key": "once"})
    made = {"name": "toys2", "epsilon": 1, "delta": 1e-5, "public_size": 1000, "fields": ["text"]}
    first = httpx.post(f"{site.url}/v1/knowledge-bases", json=made, headers=named)
    assert first.status_code == 201, first.text
    again = httpx.post(f"{site.direct}/v1/knowledge-bases", json=made, headers=named)
    assert (again.status_code, again.json()) == (201, first.json())
    assert again.headers["Idempotency-Replayed"] == "true"


async def test_clients_take_the_path_as_part_of_the_address(site: Site, dpicl: Shell) -> None:
    openai = OpenAI(base_url=f"{site.url}/v1", api_key=site.analyst)
    message = {"role": "user", "content": "a toy"}
    answer = openai.chat.completions.create(model="toys.colour", messages=[message])
    label = answer.choices[0].message.content
    assert label in ("red", "blue")
    asked = dpicl.ok("ask", "toys.colour", "a toy", "--url", site.url, "--key", site.analyst)
    assert label in asked
    async with (
        httpx2.AsyncClient(headers=bearer(site.analyst)) as http,
        Client(streamable_http_client(f"{site.url}/mcp", http_client=http)) as client,
    ):
        tool = await client.call_tool("ask", {"task": "toys.colour", "query": "a toy"})
    assert tool.structured_content["label"] == label
    assert tool.structured_content["cost"]["charged"] == 0


def test_metrics_and_refusals_count_the_same_surfaces(site: Site) -> None:
    assert httpx.get(f"{site.url}/v1/budgets", headers=bearer("dpicl_wrong")).status_code == 401
    assert httpx.get(f"{site.url}/admin/keys").status_code == 303
    exposed = httpx.get(f"{site.url}/metrics", headers=bearer(site.admin)).text
    counted = re.findall(r"dpicl_http_responses_total\{([^}]*)\} 1", exposed)
    assert len(counted) == 2, exposed
    assert any('surface="api"' in one and 'status="401"' in one for one in counted)
    assert any('surface="dashboard"' in one and 'status="303"' in one for one in counted)


def test_a_session_of_the_dashboard_stays_below_the_path(site: Site) -> None:
    origin = site.url.removesuffix(PREFIX)
    with httpx.Client(headers={"Origin": origin}) as browser:
        asked = browser.get(f"{site.url}/admin/keys")
        assert asked.headers["location"] == f"{PREFIX}/admin/sign-in?next=%2Fkeys"
        signed = browser.post(f"{site.url}/admin/sign-in", data={"key": site.admin, "next": "/keys"})
        assert (signed.status_code, signed.headers["location"]) == (303, f"{PREFIX}/admin/keys")
        (cookie,) = browser.cookies.jar
        assert cookie.path == f"{PREFIX}/admin"
        page = browser.get(f"{site.url}/admin/keys").text
    addresses = re.findall(r'(?:href|src|action|formaction|hx-get|hx-post|data-document)="([^"#]+)', page)
    assert len(addresses) > 10
    assert {one.startswith(f"{PREFIX}/admin/") for one in addresses} == {True}, addresses


def test_a_person_signs_in_at_a_provider_and_out(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    roles = {"groups": {"staff": "viewer"}}
    with provider(f"http://127.0.0.1:{port}{PREFIX}/admin/sign-in/callback") as idp:
        idp.person = {"sub": "1", "groups": ["staff"]}
        services = serving(
            tmp_path,
            oidc_issuer=idp.issuer,
            oidc_client_id=CLIENT,
            oidc_client_secret=SecretStr(SECRET),
            oidc_roles=roles,
        )
        with (
            listening(create_app(services), forwarded_allow_ips="") as direct,
            nginx(tmp_path / "nginx", documented_location(direct, strips=True, reports=True), port) as proxy,
            httpx.Client(headers={"Origin": proxy}) as browser,
        ):
            site = proxy + PREFIX
            idp.described = {"end_session_endpoint": f"{idp.issuer}/end"}
            idp.leads_back = f"{site}/admin/sign-in"
            begun = browser.get(f"{site}/admin/sign-in/provider")
            answer = httpx.get(begun.headers["location"])
            assert answer.headers["location"].startswith(f"{site}/admin/sign-in/callback?")
            signed = browser.get(answer.headers["location"])
            assert signed.status_code == 200, signed.text
            assert f'content="0; url={PREFIX}/admin/"' in signed.text
            page = browser.get(f"{site}/admin/")
            assert page.status_code == 200
            csrf = re.search(r'name="csrf" value="([^"]+)"', page.text)[1]
            out = browser.post(f"{site}/admin/sign-out", data={"csrf": csrf})
            assert out.status_code == 200, out.text
            elsewhere = html.unescape(re.search(rf'"({idp.issuer}/end[^"]+)"', out.text)[1])
            assert httpx.get(elsewhere).headers["location"] == idp.leads_back
            assert not list(browser.cookies.jar)


def peer(services: Services, address: str) -> TestClient:
    return TestClient(create_app(services), client=(address, 50000), follow_redirects=False)


def test_a_prefix_counts_from_trusted_proxies_alone(tmp_path: Path) -> None:
    services = serving(tmp_path, trusted_proxies=["10.1.0.0/16", "::1"])
    for address, moved in (
        ("10.1.2.3", "/elsewhere/admin/"),
        ("::1", "/elsewhere/admin/"),
        ("10.2.0.1", "/admin/"),
        ("127.0.0.1", "/admin/"),
        ("testclient", "/admin/"),
    ):
        # That the header names a trusted proxy as the client changes nothing.
        headers = {"X-Forwarded-Prefix": "/elsewhere/", "X-Forwarded-For": "10.1.2.3"}
        assert peer(services, address).get("/", headers=headers).headers["location"] == moved
        refused = peer(services, address).get("/v1/budgets", headers=headers).json()["type"]
        assert refused == moved.replace("admin/", "problems/missing-key")


def test_https_counts_from_trusted_proxies_alone(tmp_path: Path) -> None:
    services = serving(tmp_path, trusted_proxies=["10.1.0.0/16"])
    _, token = services.records.keys.create("chief", "admin")
    for address, secure in (("10.1.2.3", True), ("10.2.0.1", False), ("127.0.0.1", False)):
        client = peer(services, address)
        headers = {"X-Forwarded-Proto": "https", "Sec-Fetch-Site": "same-origin"}
        signed_in = client.post("/admin/sign-in", data={"key": token}, headers=headers)
        assert ("Secure" in signed_in.headers["set-cookie"]) is secure


@pytest.mark.parametrize(
    "value", ["elsewhere", "//elsewhere", "/a/../b", "/a,/b", "/a b", "/a%2fb", "/v1", "https://elsewhere", "/a\\b"]
)
def test_a_wrong_prefix_is_refused_from_a_trusted_proxy_and_ignored_from_others(tmp_path: Path, value: str) -> None:
    services = serving(tmp_path)
    refused = peer(services, "127.0.0.1").get("/healthz", headers={"X-Forwarded-Prefix": value})
    assert refused.status_code == 400
    assert refused.json()["detail"].startswith("X-Forwarded-Prefix: ")
    assert peer(services, "10.1.2.3").get("/healthz", headers={"X-Forwarded-Prefix": value}).status_code == 200


def test_an_empty_prefix_is_the_sites_root(tmp_path: Path) -> None:
    services = serving(tmp_path, root_path=PREFIX)
    client = peer(services, "127.0.0.1")
    assert client.get("/").headers["location"] == f"{PREFIX}/admin/"
    for value in ("", "/"):
        assert client.get("/", headers={"X-Forwarded-Prefix": value}).headers["location"] == "/admin/"


@pytest.mark.parametrize("path", ["dp-icl", "/admin", "/v1/dp", "/a/../b", "/a//b", "/a?b", "https://a/b"])
def test_a_wrong_root_path_is_refused(path: str) -> None:
    with pytest.raises(ValueError, match="DPICL_ROOT_PATH: "):
        Settings(root_path=path)


def test_a_root_path_may_have_several_parts_and_a_slash_at_the_end() -> None:
    assert Settings(root_path="/teams/dp-icl/").root_path == "/teams/dp-icl"
    assert Settings(root_path="/").root_path == ""


def test_a_proxy_without_an_address_is_refused() -> None:
    with pytest.raises(ValueError, match=r"DPICL_TRUSTED_PROXIES: 'proxy' is neither an address nor a network"):
        Settings(trusted_proxies=["proxy"])
