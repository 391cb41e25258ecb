"""Signing in with an OpenID Connect provider: the authorization code flow, with PKCE and a nonce.

The provider's description and keys are fetched anew for each sign-in: sign-ins are rare, and providers change keys.
Source: OpenID Connect Core 1.0, sections 3.1.2 and 3.1.3; RFC 7636 (PKCE); RFC 9207 (who answers); OpenID Connect
RP-Initiated Logout 1.0, section 2.
"""

from __future__ import annotations

import re
import secrets
from collections.abc import Mapping
from typing import Any

import httpx
from authlib.common.urls import add_params_to_uri
from authlib.oauth2.auth import ClientAuth
from authlib.oauth2.rfc6749.parameters import prepare_grant_uri
from authlib.oauth2.rfc7636 import create_s256_code_challenge
from authlib.oidc.core import CodeIDToken
from joserfc import jwt
from joserfc.errors import ClaimError, JoseError, MissingClaimError
from joserfc.jwk import KeySet
from joserfc.jws import JWSRegistry

from service.dashboard.attempts import Attempt, SignInRefusedError
from service.records.roles import MAY, Role
from service.records.sessions import Person
from service.settings import Settings

_SKEW_S = 60
_TIMEOUT_S = 10.0
_LONGEST = 190
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")  # NUL and halves of surrogate pairs, which cannot be stored
_ASYMMETRIC = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
_METHODS = ("client_secret_basic", "client_secret_post")


class Provider:
    """The provider that the settings name.

    Args:
        settings: with ``oidc_issuer``.
    """

    def __init__(self, settings: Settings) -> None:
        self.issuer = settings.oidc_issuer or ""
        self._client_id = settings.oidc_client_id or ""
        self._secret = settings.oidc_secret
        self._roles = settings.oidc_roles

    async def address(self, attempt: Attempt, redirect_uri: str) -> str:
        """Where the browser goes to sign in.

        Raises:
            SignInRefusedError: the provider cannot be reached, or is another.
        """
        async with _client() as client:
            described = await self._described(client)
        address: str = prepare_grant_uri(
            described["authorization_endpoint"],
            self._client_id,
            "code",
            redirect_uri,
            "openid profile email",
            attempt.state,
            nonce=attempt.nonce,
            code_challenge=create_s256_code_challenge(attempt.verifier),
            code_challenge_method="S256",
        )
        return address

    async def person(self, attempt: Attempt, answer: Mapping[str, str], redirect_uri: str) -> tuple[Person, str]:
        """Who signed in, once the provider sent the browser back, and the ID token that says so.

        Args:
            attempt: as it was begun.
            answer: what the provider added to the address.
            redirect_uri: as given before.

        Raises:
            SignInRefusedError: it is nobody who may.
        """
        if not secrets.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise SignInRefusedError("This answer belongs to another sign-in. Start again.")
        if answer.get("iss", self.issuer) != self.issuer:
            raise SignInRefusedError("This answer comes from another provider. Start again.")
        if "error" in answer:
            raise SignInRefusedError(f"The provider did not sign you in: {answer['error'][:100]}.")
        async with _client() as client:
            described = await self._described(client)
            id_token = await self._fetch(client, described, attempt, answer.get("code", ""), redirect_uri)
            keys = await _json(client.get(described["jwks_uri"]))
        return self._read(id_token, keys, described, attempt.nonce), id_token

    async def sign_out_address(self, id_token: str | None, back: str) -> str | None:
        """Where the browser goes to sign out at the provider, too; None if it has no such place.

        Args:
            id_token: of the sign-in, by which the provider knows who it is; None: it asks them.
            back: where the provider sends the browser then, if it knows that address.

        Raises:
            SignInRefusedError: the provider cannot be reached, or is another.
        """
        async with _client() as client:
            described = await self._described(client)
        if not isinstance(endpoint := described.get("end_session_endpoint"), str):
            return None
        asked = {"client_id": self._client_id, "post_logout_redirect_uri": back}
        if id_token is not None:
            asked["id_token_hint"] = id_token
        address: str = add_params_to_uri(endpoint, asked)
        return address

    async def _described(self, client: httpx.AsyncClient) -> dict[str, Any]:
        described = await _json(client.get(f"{self.issuer.rstrip('/')}/.well-known/openid-configuration"))
        if described.get("issuer") != self.issuer:
            raise SignInRefusedError(
                f"The provider calls itself {described.get('issuer')!r}, not {self.issuer!r}; DPICL_OIDC_ISSUER must "
                "say exactly that.",
                502,
            )
        if missing := {"authorization_endpoint", "token_endpoint", "jwks_uri"} - described.keys():
            raise SignInRefusedError(f"The provider’s description lacks {', '.join(sorted(missing))}.", 502)
        return described

    async def _fetch(
        self, client: httpx.AsyncClient, described: dict[str, Any], attempt: Attempt, code: str, redirect_uri: str
    ) -> str:
        offered = described.get("token_endpoint_auth_methods_supported", _METHODS[:1])
        method = next((one for one in _METHODS if one in offered), _METHODS[0])
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": redirect_uri,
            "code_verifier": attempt.verifier,
        }
        headers = {"Content-Type": "application/x-www-form-urlencoded"}
        auth = ClientAuth(self._client_id, self._secret, method)
        body = str(httpx.QueryParams(form))
        address, headers, body = auth.prepare("POST", described["token_endpoint"], headers, body)
        tokens = await _json(client.post(address, headers=headers, content=body))
        if not isinstance(tokens.get("id_token"), str):
            raise SignInRefusedError("The provider sent no ID token.", 502)
        id_token: str = tokens["id_token"]
        return id_token

    def _read(self, id_token: str, keys: Any, described: dict[str, Any], nonce: str) -> Person:
        algorithms = _ASYMMETRIC & {*described.get("id_token_signing_alg_values_supported", ["RS256"])}
        registry = JWSRegistry(algorithms=sorted(algorithms), strict_check_header=False)
        options = {
            "iss": {"essential": True, "value": self.issuer},
            "aud": {"essential": True, "value": self._client_id},
            "nonce": {"essential": True, "value": nonce},
        }
        try:
            token = jwt.decode(id_token, KeySet.import_key_set(keys), registry=registry)
            claims = CodeIDToken(token.claims, token.header, options, {"nonce": nonce, "client_id": self._client_id})
            claims.validate(leeway=_SKEW_S)
        except ClaimError as error:
            if error.claim in ("exp", "nbf", "iat") and not isinstance(error, MissingClaimError):
                raise SignInRefusedError(
                    "The provider’s ID token is not valid at this time. If you have just signed in, the clocks of the "
                    f"provider and of this service differ by more than {_SKEW_S} seconds."
                ) from None
            raise SignInRefusedError(f"The provider’s ID token is not for this sign-in: {error}.") from None
        except (JoseError, ValueError) as error:
            raise SignInRefusedError(f"The provider’s ID token is not genuine ({type(error).__name__}).") from None
        name = next((str(claims[one]) for one in ("name", "preferred_username", "email") if claims.get(one)), "")
        person = Person(self.issuer, str(claims["sub"]), name[:200], self._role(claims))
        if len(person.by) > _LONGEST:
            raise SignInRefusedError(
                f"The provider’s names for itself and for you have more than {_LONGEST} characters."
            )
        if _NO_CHARACTER.search(f"{person.by}{person.name}"):
            raise SignInRefusedError("The provider’s name for you contains characters that cannot be stored.")
        return person

    def _role(self, claims: Mapping[str, Any]) -> Role:
        """The role that may the most of those that the claims give."""
        found = set()
        for claim, roles in self._roles.items():
            said = claims.get(claim, [])
            for value in said if isinstance(said, list) else [said]:
                if isinstance(value, str) and value in roles:
                    found.add(roles[value])
        if not found:
            raise SignInRefusedError(
                f"You are known to the provider, but nothing in {' or '.join(self._roles)} gives you a role here. "
                "An operator can map it with DPICL_OIDC_ROLES."
            )
        return max(found, key=lambda role: len(MAY[role]))


def _client() -> httpx.AsyncClient:
    return httpx.AsyncClient(timeout=_TIMEOUT_S)


async def _json(request: Any) -> dict[str, Any]:
    """What the provider answers. What it says of errors may be private, so only its status is told."""
    try:
        response = await request
        answer = response.json() if response.is_success else None
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise SignInRefusedError(
            f"The provider cannot be reached, or does not answer as one ({type(error).__name__}). Try again, or sign "
            "in with a key.",
            503,
        ) from None
    if not isinstance(answer, dict):
        raise SignInRefusedError(f"The provider refused ({response.status_code}). Start again.", 502)
    return answer
