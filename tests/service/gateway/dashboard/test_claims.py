"""A role by claims of every shape that providers send, and what is shown where they give none."""

from __future__ import annotations

from typing import Any

import pytest

from service.gateway.dashboard.claims import missing, role_of

STAFF = {"staff": "viewer", "IT Staff": "auditor", "deciders": "admin"}
SCOPES = "openid profile email"


@pytest.mark.parametrize(
    ("claim", "claims", "role"),
    [
        ("groups", {"groups": ["staff", "others"]}, "viewer"),
        ("groups", {"groups": ["staff", "deciders"]}, "admin"),
        ("groups", {"groups": "staff"}, "viewer"),
        ("groups", {"groups": "others,staff"}, "viewer"),
        ("groups", {"groups": "others, IT Staff"}, "auditor"),
        ("groups", {"groups": "others staff"}, "viewer"),
        ("groups", {"groups": "IT Staff"}, "auditor"),
        ("groups", {"groups": {"staff": {"17": "example.org"}}}, "viewer"),
        ("groups", {"groups": {"staff": None, "deciders": False}}, None),
        ("groups", {"groups": [["staff"]]}, None),
        ("groups", {"groups": ["others staff"]}, None),
        ("groups", {"groups": ["/staff", "Staff", "staﬀ", "staff "]}, None),
        ("groups", {"groups": None}, None),
        ("groups", {"roles": ["staff"]}, None),
        ("groups.name", {"groups": [{"id": "1", "name": "staff"}, {"id": "2"}, "x", None]}, "viewer"),
        ("realm_access.roles", {"realm_access": {"roles": ["staff"]}}, "viewer"),
        ("realm_access.roles", {"realm_access": ["staff"]}, None),
        ("resource_access.dp-icl.roles", {"resource_access": {"dp-icl": {"roles": ["deciders"]}}}, "admin"),
        ("resource_access.dp\\.icl.roles", {"resource_access": {"dp.icl": {"roles": ["deciders"]}}}, "admin"),
        ("https://example.org/roles", {"https://example.org/roles": ["staff"]}, "viewer"),
        ("https://example\\.org/roles", {"https://example.org/roles": ["staff"]}, "viewer"),
        ("https://example\\.org/auth.roles", {"https://example.org/auth": {"roles": ["staff"]}}, "viewer"),
        ("a.b", {"a.b": ["staff"], "a": {"b": ["deciders"]}}, "viewer"),
    ],
)
def test_the_role_that_claims_give(claim: str, claims: dict[str, Any], role: str | None) -> None:
    assert role_of(claims, {claim: STAFF}) == role


def test_a_claim_of_another_type_than_text() -> None:
    assert role_of({"boss": True}, {"boss": {"true": "admin"}}) == "admin"
    assert role_of({"level": 7}, {"level": {"7": "admin"}}) == "admin"
    assert role_of({"boss": False, "level": 7.0}, {"boss": {"true": "admin"}, "level": {"7": "admin"}}) is None


def test_an_address_that_is_not_verified_gives_no_role() -> None:
    roles = {"email": {"jane@example.org": "admin"}}
    assert role_of({"email": "jane@example.org"}, roles) == "admin"
    for unverified in (False, "false"):
        claims = {"email": "jane@example.org", "email_verified": unverified}
        assert role_of(claims, roles) is None
        assert "has not verified your e-mail address" in missing({"the ID token": claims}, roles, SCOPES, [])


@pytest.mark.parametrize(
    ("claims", "says"),
    [
        (
            {},
            "There is no claim groups. An operator can request it with DPICL_OIDC_SCOPES='openid profile email groups'",
        ),
        ({"_claim_names": {"groups": "src1"}}, "because you have too many of them"),
        ({"hasgroups": True}, "because you have too many of them"),
        ({"hasgroups": "true"}, "because you have too many of them"),
        ({"groups": []}, "groups is empty"),
        ({"groups": [{"id": 7}]}, "such as groups.id."),
        ({"groups": [{"name": "secret", "id": "secret"}]}, "such as groups.id."),
        ({"groups": {"list.s": ["secret"]}}, "such as groups.list\\.s."),
        ({"groups": ["secret"]}, "groups has no value that DPICL_OIDC_ROLES maps"),
        ({"realm_access": {"roles": ["secret"]}}, "The claims in the ID token: sub, realm_access, realm_access.roles."),
        ({"iss": "x", "exp": 1}, "The claims in the ID token: sub."),
        ({"roles": {"secret": {"17": "x"}}}, "The claims in the ID token: sub, roles."),
        ({f"c{number}": 1 for number in range(30)}, "c18, and 11 others."),
    ],
)
def test_what_is_shown_where_no_claim_gives_a_role(claims: dict[str, Any], says: str) -> None:
    sources = {"the ID token": {"sub": "1", **claims}, "userinfo": {}}
    said = missing(sources, {"groups": STAFF}, SCOPES, ["openid", "groups"])
    assert says in said
    assert "secret" not in said
    assert "The claims in userinfo: there are none." in said
