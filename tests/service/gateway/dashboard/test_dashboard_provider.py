"""Signing in with an OpenID Connect provider, over real HTTP: roles, sessions, and every kind of refusal."""

import re
import time
from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from html import unescape
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import RSAKey
from pydantic import SecretStr

from accounting.ledger.events import PersonSignedIn, PersonSignedOut
from accounting.ledger.trail import append
from accounting.replay.trail import verify
from service.environment import InvalidSettingError
from service.gateway.dashboard.attempt import COOKIES, MOST, Attempt
from service.operations.sessions import LASTS, Sessions
from service.settings import Settings
from tests.private_file import private_file
from tests.recording_proxy import recording_proxy
from tests.service.conftest import serving
from tests.service.gateway.dashboard.dashboard_browser import Browser
from tests.service.gateway.dashboard.oidc_provider import CLIENT, SECRET, Provider, provider

CALLBACK = "http://testserver/admin/sign-in/callback"
ROLES = {"groups": {"deciders": "admin", "staff": "viewer", "audit": "auditor"}, "boss": {"yes": "admin"}}
KNOWN = {"oidc_client_id": CLIENT, "oidc_client_secret": SecretStr(SECRET), "oidc_roles": ROLES}


@pytest.fixture(scope="module")
def idp() -> Iterator[Provider]:
    with provider(CALLBACK) as running:
        yield running


@pytest.fixture
def browser(tmp_path: Path, idp: Provider) -> Iterator[Browser]:
    idp.person = {"sub": "248289761001", "name": "Jane Doe", "groups": ["staff"]}
    browser = Browser(serving(tmp_path, oidc_issuer=idp.issuer, **KNOWN))
    yield browser
    idp.forge, idp.signing, idp.described, idp.userinfo = lambda _claims: None, idp.published, {}, {}


def begin(browser: Browser, going: str = "/") -> str:
    """Begin to sign in; return the address to which the provider sends the browser back."""
    begun = browser.get("/sign-in/provider", params={"next": going})
    assert begun.status_code == 303, begun.text
    answer = httpx.get(begun.headers["location"])
    assert answer.status_code == 302, answer.text
    assert answer.headers["location"].startswith(CALLBACK)
    return answer.headers["location"]


def kept(browser: Browser) -> list[str]:
    """The attempts that the browser keeps, oldest first."""
    return [cookie.value for cookie in browser.client.cookies.jar if cookie.name.startswith(COOKIES)]


def refused(browser: Browser, address: str, status: int = 403) -> str:
    response = browser.client.get(address)
    assert response.status_code == status
    assert browser.get("/").status_code == 303  # the browser is not signed in
    assert not browser.services.records.audit.events(kinds=["person.signed_in"])
    return re.search(r'id="problem">([^<]+)<', response.text)[1]


def test_a_person_signs_in_acts_and_signs_out(browser: Browser, idp: Provider) -> None:
    idp.person |= {"groups": ["deciders", "staff"]}
    assert 'href="/admin/sign-in/provider">' in browser.get("/sign-in").text
    address = begin(browser, "/keys")
    asked = idp.asked[-1]
    assert (asked["code_challenge_method"], asked["scope"]) == ("S256", "openid profile email")
    response = browser.client.get(address)
    assert response.status_code == 200
    # Not by a redirect, with which browsers would not send the strict cookie.
    assert '<meta http-equiv="refresh" content="0; url=/admin/keys">' in response.text
    session, attempt, _ = sorted(response.headers.get_list("set-cookie"), reverse=True)
    assert session.startswith(COOKIES)  # the cookie is deleted
    assert "Max-Age=0" in session
    assert all(part in attempt for part in ("dpicl_session=", "HttpOnly", "SameSite=strict", "Path=/admin"))
    page = browser.get("/keys")
    assert page.status_code == 200
    assert "Jane Doe" in page.text
    assert browser.post("/keys", {"name": "ana", "role": "analyst"}).status_code == 201
    browser.post("/sign-out")
    assert browser.get("/").status_code == 303
    me = f"248289761001 at {idp.issuer}"
    events = browser.services.records.audit.events(by=[me])
    assert [event.kind for event in events] == ["person.signed_in", "key.created", "person.signed_out"]
    assert "Jane" not in "".join(event.body for event in events)
    assert verify(browser.services.records.audit.export(), recompute=False).problems == []


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"groups": ["staff"]}, "viewer"),
        ({"groups": "audit"}, "auditor"),
        ({"groups": ["staff", "audit", "others"]}, "auditor"),
        ({"groups": ["staff"], "boss": "yes"}, "admin"),
    ],
)
def test_the_role_is_the_greatest_that_the_claims_give(
    browser: Browser, idp: Provider, claims: dict, role: str
) -> None:
    idp.person |= claims
    browser.client.get(begin(browser))
    (event,) = browser.services.records.audit.events(kinds=["person.signed_in"])
    assert event.particulars == PersonSignedIn(
        by=f"248289761001 at {idp.issuer}", issuer=idp.issuer, subject="248289761001", role=role
    )
    assert [browser.get(page).status_code for page in ("/", "/audit", "/keys")] == {
        "viewer": [200, 403, 403],
        "auditor": [200, 200, 403],
        "admin": [200, 200, 200],
    }[role]


def test_a_person_without_a_role_is_refused(browser: Browser, idp: Provider) -> None:
    for claims in ({"groups": []}, {"groups": ["others"]}, {"groups": 7}, {"groups": [["staff"]]}, {}):
        idp.person = {"sub": "1", **claims}
        assert "groups or boss" in refused(browser, begin(browser))


@pytest.mark.parametrize(
    ("forge", "says"),
    [
        (lambda claims: claims.update(aud=["another"]), "check DPICL_OIDC_CLIENT_ID"),
        (lambda claims: claims.update(aud=["another"], azp=CLIENT), "not for this"),
        (lambda claims: claims.pop("aud"), "not for this"),
        (lambda claims: claims.update(iss="https://elsewhere.example"), "check DPICL_OIDC_ISSUER"),
        (lambda claims: claims.update(nonce="of another sign-in"), "not for this"),
        (lambda claims: claims.pop("nonce"), "not for this"),
        (lambda claims: claims.pop("sub"), "not for this"),
        (lambda claims: claims.pop("exp"), "not for this"),
        (lambda claims: claims.update(exp=int(time.time()) - 120), "clocks"),
        (lambda claims: claims.update(iat=int(time.time()) + 3600, exp=int(time.time()) + 7200), "clocks"),
        (lambda claims: claims.update(nbf=int(time.time()) + 3600), "clocks"),
        (lambda claims: claims.update(sub="x" * 190), "190 characters"),
        (lambda claims: claims.update(sub="x\0"), "cannot be stored"),
        (lambda claims: claims.update(name="x\0"), "cannot be stored"),
    ],
)
def test_a_token_that_is_not_for_this_sign_in_is_refused(browser: Browser, idp: Provider, forge, says: str) -> None:
    idp.forge = forge
    assert says in refused(browser, begin(browser))


def test_clocks_may_differ_by_a_little(browser: Browser, idp: Provider) -> None:
    idp.forge = lambda claims: claims.update(iat=claims["iat"] + 20, exp=claims["iat"] - 20)
    assert browser.client.get(begin(browser)).status_code == 200


def test_a_person_without_a_name_for_the_provider_is_refused(browser: Browser, idp: Provider) -> None:
    idp.person = {"sub": "", "groups": ["staff"]}
    assert "sub is empty" in refused(browser, begin(browser), 502)


def test_keys_that_cannot_be_read_are_passed_over(browser: Browser, idp: Provider, monkeypatch) -> None:
    others = [{"kty": "EC", "crv": "brainpoolP256r1", "kid": "2"}, {"kty": "RSA", "kid": "3"}, {"kty": "AKP"}]
    monkeypatch.setattr(idp, "more_keys", others)
    assert browser.client.get(begin(browser)).status_code == 200


def test_a_key_that_is_not_published_is_named_as_such(browser: Browser, idp: Provider, monkeypatch) -> None:
    with monkeypatch.context() as changed:
        changed.setattr(idp, "published", RSAKey.generate_key(2048, {"kid": "2"}))
        assert "none of the keys that the provider publishes" in refused(browser, begin(browser))


def test_what_a_description_leaves_open_stops_nothing(browser: Browser, idp: Provider) -> None:
    idp.described = dict.fromkeys(
        ("id_token_signing_alg_values_supported", "token_endpoint_auth_methods_supported", "scopes_supported")
    )
    assert browser.client.get(begin(browser)).status_code == 200
    idp.described = {"scopes_supported": 5}
    idp.person = {"sub": "1"}
    begin_again = Browser(browser.services)
    assert "There is no claim" in begin_again.client.get(begin(begin_again)).text


def test_a_description_that_lacks_an_address_is_refused(browser: Browser, idp: Provider) -> None:
    for changed in ({"token_endpoint": None}, {"authorization_endpoint": "/authorize"}, {"issuer": None}):
        idp.described = changed
        page = browser.get("/sign-in/provider")
        assert (page.status_code, f"description lacks {next(iter(changed))}" in page.text) == (502, True)


def test_an_address_without_a_provider_names_the_setting(tmp_path: Path, idp: Provider) -> None:
    nowhere = Browser(serving(tmp_path / "nowhere", oidc_issuer=f"{idp.issuer}/realms/none", **KNOWN))
    page = nowhere.get("/sign-in/provider")
    assert (page.status_code, "check DPICL_OIDC_ISSUER" in page.text) == (502, True)


def test_a_signature_by_another_key_is_refused(browser: Browser, idp: Provider) -> None:
    idp.signing = RSAKey.generate_key(2048, {"kid": "1"})
    assert "not genuine (BadSignatureError)" in refused(browser, begin(browser))


def test_a_token_that_the_provider_could_not_have_signed_is_refused(
    browser: Browser, idp: Provider, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A token signed with the public key as a secret, or not at all, is refused even if the provider allows it."""
    for algorithm in ("HS256", "none"):
        monkeypatch.setattr(idp, "algorithm", algorithm)
        idp.described = {"id_token_signing_alg_values_supported": ["RS256", algorithm]}
        assert "not genuine" in refused(browser, begin(browser))


def test_an_answer_is_for_the_browser_that_asked_and_once(browser: Browser, idp: Provider) -> None:
    stolen = begin(browser)
    (first,) = kept(browser)
    browser.client.cookies.clear()
    assert "another browser" in refused(browser, stolen)  # the thief's browser began it
    begin(browser)
    assert "another sign-in" in refused(browser, stolen)
    attempt = Attempt.read(first)
    state = parse_qs(urlsplit(stolen).query)["state"][0]
    assert attempt.state == state
    for changed in ("verifier", "nonce"):  # a thief has only the code and the state
        address = begin(browser)
        own = Attempt.read(kept(browser)[-1])
        browser.client.cookies.clear()
        forged = replace(own, **{changed: "x" * 43})
        browser.client.cookies.set(own.cookie, forged.kept, domain="testserver.local", path="/admin/sign-in")
        refused(browser, address, 502 if changed == "verifier" else 403)
        browser.client.cookies.clear()


def test_a_refusal_of_the_provider_is_shown(browser: Browser, idp: Provider) -> None:
    address = begin(browser)
    state = parse_qs(urlsplit(address).query)["state"][0]
    said = refused(browser, f"{CALLBACK}?error=access_denied&state={state}")
    assert "access_denied" in said
    begin(browser)
    state = Attempt.read(kept(browser)[-1]).state
    assert "check DPICL_OIDC_SCOPES" in refused(browser, f"{CALLBACK}?error=invalid_scope&state={state}")
    begin(browser)
    state = Attempt.read(kept(browser)[-1]).state
    assert "another provider" in refused(browser, f"{CALLBACK}?code=x&state={state}&iss=https://elsewhere.example")


def test_tabs_sign_in_side_by_side(browser: Browser, idp: Provider) -> None:
    """Attempts in several tabs are finished in any order, and a form in one tab outlives the sign-in of another."""
    idp.person |= {"groups": ["deciders"]}
    addresses = [begin(browser, going) for going in ("/keys", "/audit")]
    assert browser.post("/sign-in", {"key": "dpicl_wrong"}).status_code == 401
    first = browser.client.get(addresses[0])
    assert 'url=/admin/keys"' in first.text
    csrf = browser.csrf()
    assert refused_again(browser, addresses[0])  # an attempt is finished once
    second = browser.client.get(addresses[1])
    assert 'url=/admin/audit"' in second.text
    assert kept(browser) == []
    assert browser.csrf() != csrf
    assert browser.post("/keys", {"csrf": csrf, "name": "ana", "role": "analyst"}).status_code == 201
    idp.person |= {"sub": "another"}
    browser.client.get(begin(browser))
    assert browser.post("/keys", {"csrf": csrf, "name": "bo", "role": "analyst"}).status_code == 403


def refused_again(browser: Browser, address: str) -> bool:
    return browser.client.get(address).status_code == 403


def test_a_browser_keeps_few_attempts(browser: Browser) -> None:
    addresses = [begin(browser) for _ in range(MOST + 2)]
    assert len(kept(browser)) == MOST
    assert browser.client.get(addresses[-1]).status_code == 200


def test_a_provider_that_is_another_or_away_is_named(browser: Browser, idp: Provider) -> None:
    idp.described = {"issuer": "https://elsewhere.example"}
    page = browser.get("/sign-in/provider")
    assert page.status_code == 502
    assert "calls itself &#39;https://elsewhere.example&#39;" in page.text
    # No server listens there.
    idp.described = {"token_endpoint": idp.issuer.replace("127.0.0.1", "127.0.0.2") + "/token"}
    assert "cannot be reached" in refused(browser, begin(browser), 503)
    idp.described = {"jwks_uri": f"{idp.issuer}/nowhere"}
    assert "refused (404)" in refused(browser, begin(browser), 502)
    idp.described = {"jwks_uri": f"{idp.issuer}/.well-known/openid-configuration"}  # that document holds no keys
    assert "as one" in refused(browser, begin(browser), 503)
    idp.described = {"client_id": "another"}
    assert browser.get("/sign-in/provider").status_code == 503


def test_a_session_ends_with_its_time_or_its_provider(browser: Browser, idp: Provider) -> None:
    browser.client.get(begin(browser))
    token = browser.client.cookies.get("dpicl_session")
    database = browser.services.records.database
    found = Sessions(database, issuer=idp.issuer).find(token)
    assert (found.actor.name, found.actor.role) == ("Jane Doe", "viewer")
    assert Sessions(database, issuer="https://elsewhere.example").find(token) is None
    assert Sessions(database).find(token) is None
    later = found.expires_at + timedelta(seconds=1)
    assert timedelta(hours=8) == LASTS
    assert Sessions(database, issuer=idp.issuer, clock=lambda: later).find(token) is None


def test_a_replay_knows_who_signed_in(browser: Browser) -> None:
    records = browser.services.records
    with records.database.begin() as connection:
        append(
            connection,
            records.audit.head().at,
            PersonSignedOut(by="nobody at https://a.example"),
            PersonSignedIn(by="b at https://a.example", issuer="https://a.example", subject="c", role="admin"),
            PersonSignedIn(by="b at https://a.example", issuer="https://a.example", subject="b", role="analyst"),
        )
    problems = verify(records.audit.export(), recompute=False).problems
    assert [problem.partition(": ")[2] for problem in problems] == [
        "nobody at https://a.example never signed in",
        *["b at https://a.example is not who signed in, or has no role that may"] * 2,
    ]


def leave(browser: Browser) -> str:
    """Sign out; return the address to which the page leads, by itself and by its link."""
    page = browser.post("/sign-out")
    assert page.status_code == 200
    assert "signed out here" in page.text
    assert browser.get("/").status_code == 303
    assert not {"dpicl_session", "dpicl_id_token"} & {*browser.client.cookies}
    by_itself = re.search(r'http-equiv="refresh" content="0; url=([^"]+)"', page.text)[1]
    assert f'<a href="{by_itself}">' in page.text
    return unescape(by_itself)


def test_signing_out_ends_the_session_at_the_provider_too(browser: Browser, idp: Provider) -> None:
    idp.described = {"end_session_endpoint": f"{idp.issuer}/end?realm=staff"}
    idp.leads_back = "http://testserver/admin/sign-in"
    arrived = browser.client.get(begin(browser))
    (kept,) = [one for one in arrived.headers.get_list("set-cookie") if one.startswith("dpicl_id_token=")]
    assert all(part in kept for part in ("HttpOnly", "SameSite=strict", "Path=/admin/sign-out"))
    ended = httpx.get(leave(browser))
    assert (ended.status_code, ended.headers["location"].partition("?")[0]) == (302, "http://testserver/admin/sign-in")
    assert idp.signed_out.pop() == "248289761001"
    # An ID token that is too long for a cookie is not sent: then the provider asks the person.
    idp.person |= {"groups": ["staff", *(f"group-{number:04}" for number in range(400))]}
    browser.client.get(begin(browser))
    going = leave(browser)
    asked = {name: value for name, (value,) in parse_qs(urlsplit(going).query).items()}
    assert asked == {
        "state": asked["state"],
        "realm": "staff",
        "client_id": CLIENT,
        "post_logout_redirect_uri": "http://testserver/admin/sign-in",
    }


def test_signing_out_stays_here_where_the_provider_knows_nothing_of_it(browser: Browser, idp: Provider) -> None:
    browser.client.get(begin(browser))
    assert browser.post("/sign-out").headers["location"] == "/admin/sign-in"
    assert "signed out." in browser.get("/sign-in").text
    idp.described = {"end_session_endpoint": f"{idp.issuer}/end"}
    browser.sign_in()  # with a key
    assert browser.post("/sign-out").headers["location"] == "/admin/sign-in"
    browser.client.get(begin(browser))
    idp.described = {"issuer": "https://elsewhere.example"}
    assert browser.post("/sign-out").headers["location"] == "/admin/sign-in"
    assert "perhaps not at the provider" in browser.get("/sign-in").text
    assert browser.get("/").status_code == 303
    assert idp.signed_out == []


def test_groups_may_need_a_scope(tmp_path: Path, browser: Browser, idp: Provider) -> None:
    del idp.person["groups"]
    idp.described = {"scopes_supported": ["openid", "groups", "email"]}
    idp.forge = lambda claims: claims.update({"groups": ["staff"]} if "groups" in idp.asked[-1]["scope"] else {})
    said = unescape(refused(browser, begin(browser)))
    assert (
        "There is no claim groups. An operator can request it with DPICL_OIDC_SCOPES='openid profile email groups'"
        in said
    )
    assert "The claims in the ID token: sub, name." in said
    scopes = "openid groups"
    asking = Browser(serving(tmp_path / "asking", oidc_issuer=idp.issuer, oidc_scopes=scopes, **KNOWN))
    assert asking.client.get(begin(asking)).status_code == 200
    assert idp.asked[-1]["scope"] == scopes


def test_groups_may_be_in_userinfo(browser: Browser, idp: Provider) -> None:
    del idp.person["groups"]
    idp.described = {"userinfo_endpoint": f"{idp.issuer}/userinfo"}
    idp.userinfo = {"sub": "another", "groups": ["deciders"]}
    assert "another person" in refused(browser, begin(browser), 502)
    idp.userinfo = {"groups": ["others"], "name": "Not Jane", "teams": []}
    said = refused(browser, begin(browser))
    assert "no value that DPICL_OIDC_ROLES maps" in said
    assert "The claims in userinfo: sub, groups, name, teams." in said
    assert "others" not in said
    idp.userinfo = {"groups": ["staff"]}
    assert browser.client.get(begin(browser)).status_code == 200
    (event,) = browser.services.records.audit.events(kinds=["person.signed_in"])
    assert event.particulars.role == "viewer"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"oidc_client_id": None}, "DPICL_OIDC_CLIENT_ID"),
        ({"oidc_roles": {}}, "DPICL_OIDC_ROLES"),
        ({"oidc_scopes": "profile groups"}, "DPICL_OIDC_SCOPES must have openid"),
        ({"oidc_client_secret": None}, "DPICL_OIDC_CLIENT_SECRET"),
        ({"oidc_issuer": "http://idp.example"}, "https://"),
        ({"oidc_roles": {"groups": {"staff": "analyst"}}}, "DPICL_OIDC_ROLES"),
    ],
)
def test_settings_that_would_let_in_no_person_or_every_person_are_refused(changed: dict, says: str) -> None:
    with pytest.raises(InvalidSettingError, match=says):
        Settings(**{"oidc_issuer": "https://idp.example", **KNOWN} | changed)


def test_the_secret_may_be_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "secret"
    given = {**KNOWN, "oidc_client_secret": None, "oidc_client_secret_file": file}
    settings = Settings(oidc_issuer="https://idp.example", **given)
    with pytest.raises(ValueError, match="cannot be read"):
        _ = settings.oidc_secret
    private_file(file, f"{SECRET}\n")
    assert settings.oidc_secret == SECRET


def test_certificates_that_cannot_be_read_are_reported_at_the_start(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "none.pem"))
    with pytest.raises(ValueError, match="SSL_CERT_FILE"):
        Browser(serving(tmp_path, oidc_issuer="https://idp.example", **KNOWN))


def test_a_provider_on_this_machine_is_never_asked_through_a_proxy(
    browser: Browser, idp: Provider, monkeypatch
) -> None:
    with recording_proxy() as proxy, monkeypatch.context() as environment:
        for name, value in proxy.environment().items():
            environment.setenv(name, value)
        begun = browser.get("/sign-in/provider", params={"next": "/"})
        with httpx.Client(trust_env=False) as client:
            back = client.get(begun.headers["location"]).headers["location"]
        assert browser.client.get(back).status_code == 200
        assert proxy.seen == []


def test_a_provider_elsewhere_is_asked_through_the_proxy_of_the_setting(tmp_path: Path, monkeypatch) -> None:
    with recording_proxy() as proxy:
        monkeypatch.setenv("DPICL_PROXY_URL", proxy.url)
        browser = Browser(serving(tmp_path, oidc_issuer="https://idp.example.org", **KNOWN))
        assert browser.get("/sign-in/provider", params={"next": "/"}).status_code == 503
        assert [seen.split(b"\r\n")[0] for seen in proxy.seen] == [b"CONNECT idp.example.org:443 HTTP/1.1"]
