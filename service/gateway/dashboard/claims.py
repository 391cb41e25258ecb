"""A person's role by the claims of an OpenID Connect provider, and what is missing where there is none.

Providers put groups into a list, a text, an object that holds the list, or objects in a list; into the ID token or into
userinfo; some only if a scope is requested, and not if they are too many. A claim is named as a provider writes it, or
by a path: ``realm_access.roles``. A dot in a name is written ``\\.``, where no claim has the whole text as its name.
Values are compared exactly: here nothing may be taken for equal that only reads alike.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from service.operations.roles import MAY
from service.settings import PersonRole

_DOT = re.compile(r"(?<!\\)\.")
_PROTOCOL = frozenset(
    (
        *("iss", "aud", "exp", "iat", "nbf", "nonce", "at_hash", "c_hash", "s_hash", "azp", "jti", "auth_time", "sid"),
        *("acr", "amr", "typ", "ver", "tid", "rh", "uti", "aio"),
    )
)
"""Claims about the token itself."""
_SHOWN = 20
_LONGEST_NAME = 80
Roles = Mapping[str, Mapping[str, PersonRole]]
"""Role by claim, and value of the claim."""


def role_of(claims: Mapping[str, Any], roles: Roles) -> PersonRole | None:
    """The most privileged of the roles that some claims give, if they give any."""
    given = {
        by_value[value]
        for claim, by_value in roles.items()
        for found in _found(claims, claim)
        for value in _values(found, by_value)
    }
    return max(given, key=lambda role: len(MAY[role]), default=None)


def missing(sources: Mapping[str, Mapping[str, Any]], roles: Roles, scopes: str, offered: Sequence[str]) -> str:
    """Why no claim gives a role, and what an operator can set, in sentences. Values of claims are not shown.

    Args:
        sources: claims by the name of where they came from.
        roles: role by claim and value.
        scopes: scopes that were requested.
        offered: scopes that the provider offers, as far as it names them.
    """
    sentences = [f"You are known to the provider, but nothing in {' or '.join(roles)} gives you a role here."]
    for claim in roles:
        sentences += _why(claim, sources, scopes, offered)
    for source, claims in sources.items():
        names = list(dict.fromkeys(_paths(claims)))
        more = f", and {len(names) - _SHOWN} others" if len(names) > _SHOWN else ""
        sentences.append(f"The claims in {source}: {', '.join(names[:_SHOWN]) or 'there are none'}{more}.")
    return " ".join(sentences)


def _why(claim: str, sources: Mapping[str, Mapping[str, Any]], scopes: str, offered: Sequence[str]) -> Iterator[str]:
    every = [found for claims in sources.values() for found in _found(claims, claim)]
    first = _DOT.split(claim)[0].replace("\\.", ".")
    if any(_is_elsewhere(claims, first) for claims in sources.values()):
        yield (
            f"The provider left {first} out of the token because you have too many of them. Have it send only the "
            "groups that are assigned to this application, or roles of the application, and name their claim in "
            "DPICL_OIDC_ROLES."
        )
    elif claim == "email" and any("email" in claims and _is_unverified(claims) for claims in sources.values()):
        yield "The provider has not verified your e-mail address (email_verified), so it gives you no role."
    elif not every:
        wanted = [scope for scope in offered if scope in (claim, first) and scope not in scopes.split()]
        set_scopes = f"DPICL_OIDC_SCOPES='{' '.join([scopes, *wanted])}'" if wanted else "DPICL_OIDC_SCOPES"
        yield (
            f"There is no claim {claim}. An operator can request it with {set_scopes}, have the provider add it to ID "
            "tokens or userinfo, or name another claim in DPICL_OIDC_ROLES, such as realm_access.roles."
        )
    elif members := sorted({name for found in every for name in _members(found)}):
        yield f"{claim} holds objects: name a member in DPICL_OIDC_ROLES, such as {claim}.{_written(members[0])}."
    elif all(found in (None, "", [], {}) for found in every):
        yield f"{claim} is empty: an operator of the provider can give you a group, or have it send those you have."
    else:
        yield f"{claim} has no value that DPICL_OIDC_ROLES maps; values are compared exactly, such as /staff."


def _is_elsewhere(claims: Mapping[str, Any], name: str) -> bool:
    """Whether the provider refers to another place for a claim, as Entra does above 200 groups."""
    referred = claims.get("_claim_names")
    return (isinstance(referred, dict) and name in referred) or (
        name == "groups" and claims.get("hasgroups") in (True, "true")
    )


def _found(claims: Mapping[str, Any], claim: str) -> list[Any]:
    """What is at a claim's name, or else at its path; a list on the way is gone through."""
    if claim == "email" and _is_unverified(claims):
        return []
    if claim in claims:
        return [claims[claim]]
    found: list[Any] = [claims]
    for name in _DOT.split(claim):
        name = name.replace("\\.", ".")
        each = [one for here in found for one in (here if isinstance(here, list) else [here])]
        found = [here[name] for here in each if isinstance(here, Mapping) and name in here]
    return found


def _is_unverified(claims: Mapping[str, Any]) -> bool:
    """Whether the person may have made up the address of e-mail."""
    return claims.get("email_verified") in (False, "false")


def _values(found: Any, known: Mapping[str, PersonRole]) -> Iterator[str]:
    """The known values of a claim: of a list, of a text with commas or spaces, or the names of an object's members.

    Members that are false or null give nothing.
    """
    if isinstance(found, Mapping):
        each: list[Any] = [name for name, value in found.items() if value is not None and value is not False]
    elif isinstance(found, str):
        parts = found.split(",") if "," in found else found.split()
        each = [found] if found in known else [part.strip() for part in parts]
    else:
        each = found if isinstance(found, list) else [found]
    for value in each:
        text = str(value).lower() if isinstance(value, bool) else str(value) if isinstance(value, int) else value
        if isinstance(text, str) and text in known:
            yield text


def _members(found: Any) -> Iterator[str]:
    """The names of the texts and numbers in a list's objects, or of the lists in an object."""
    for one in found if isinstance(found, list) else [found]:
        if isinstance(one, Mapping):
            wanted = (str, int) if isinstance(found, list) else list
            yield from (name for name, value in one.items() if isinstance(value, wanted))


def _paths(claims: Mapping[str, Any], above: str = "", depth: int = 3) -> Iterator[str]:
    """The claims' names, and below objects the paths to lists. Names of other members may be a person's data."""
    for name, value in claims.items():
        path = above + _written(name)
        if (above and isinstance(value, list)) or (not above and name not in _PROTOCOL):
            yield path
        if isinstance(value, Mapping) and depth > 1:
            yield from _paths(value, f"{path}.", depth - 1)


def _written(name: str) -> str:
    shown = "".join(character for character in name if character.isprintable())[:_LONGEST_NAME]
    return shown.replace(".", "\\.")
