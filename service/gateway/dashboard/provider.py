"""Signing in with an OpenID Connect provider: the authorization code flow, with PKCE and a nonce, by Authlib's client.

Authlib's ``authorize_redirect`` and ``authorize_access_token`` are not used: they keep an attempt in Starlette's
session, for which all replicas would share a secret, and take an error from the address before they check that the
state is ours.
The provider's description and keys are fetched anew for each sign-in: sign-ins are rare, and providers change keys.
Source: OpenID Connect Core 1.0, sections 3.1.2, 3.1.3 and 5.3; RFC 7517, section 5 (keys that are not understood);
RFC 7636 (PKCE); RFC 9207 (who answers); OpenID Connect RP-Initiated Logout 1.0, section 2.
"""

import re
import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import httpx2
from authlib.integrations.starlette_client import OAuth, OAuthError, StarletteOAuth2App
from joserfc.errors import ClaimError, InvalidKeyIdError, JoseError, MissingClaimError, MissingKeyError
from joserfc.jwk import import_key

from service.connections import http_options, proxy_for
from service.gateway.dashboard.attempt import Attempt, SignInRefusedError
from service.gateway.dashboard.claims import missing, role_of
from service.operations.sessions import Person
from service.settings import PersonRole, Settings

_SKEW_S = 60
_TIMEOUT_S = 10.0
_LONGEST = 190
_NO_CHARACTER = re.compile("[\0\ud800-\udfff]")  # NUL and halves of surrogate pairs, which cannot be stored
_ASYMMETRIC = {"RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA", "Ed25519"}
_NEEDED = ("issuer", "authorization_endpoint", "token_endpoint", "jwks_uri")
_ASKED = ("token_endpoint", "jwks_uri", "userinfo_endpoint")
_METHODS = ("client_secret_basic", "client_secret_post")
_CLIENT = "An operator can check DPICL_OIDC_CLIENT_ID and the client's secret."
_SETTINGS = {
    **dict.fromkeys(("invalid_client", "unauthorized_client", "aud", "azp"), _CLIENT),
    "invalid_scope": "An operator can check DPICL_OIDC_SCOPES.",
    "iss": "An operator can check DPICL_OIDC_ISSUER: it is one organisation's own address.",
}
"""What an operator can do about a provider's error, or about a claim of an ID token."""


_NAMES = ("name", "preferred_username", "email")


class Provider:
    """The provider that the settings name.

    Args:
        settings: settings with ``oidc_issuer``.

    Raises:
        ValueError: the secret, the certificates of authorities or the proxy's URL cannot be read.
    """

    def __init__(self, settings: Settings) -> None:
        self.issuer = settings.oidc_issuer or ""
        self._client_id = settings.oidc_client_id or ""
        self._secret = settings.oidc_secret
        self._roles = settings.oidc_roles
        self._scopes = settings.oidc_scopes
        self._connection = http_options(self.issuer)  # certificates are read once: a sign-in opens five clients

    async def begin(self, redirect_uri: str, going: str) -> tuple[str, Attempt]:
        """Begin a sign-in.

        Args:
            redirect_uri: address to which the provider sends the browser back.
            going: path in the dashboard to which the browser goes afterwards.

        Returns:
            The provider's address for the browser, and the attempt, which the browser must keep meanwhile.

        Raises:
            SignInRefusedError: the provider cannot be reached, or has another issuer.
        """
        client = await self._client()
        with _refusals("authorization endpoint"):
            begun = await client.create_authorization_url(redirect_uri)
        return begun["url"], Attempt(begun["state"], begun["nonce"], begun["code_verifier"], going)

    async def person(self, attempt: Attempt, answer: Mapping[str, str], redirect_uri: str) -> tuple[Person, str]:
        """The person who signed in, once the provider sent the browser back, and the ID token that shows it.

        Args:
            attempt: attempt from :meth:`begin`.
            answer: parameters that the provider added to the address.
            redirect_uri: address given to :meth:`begin`.

        Raises:
            SignInRefusedError: the answer is invalid or belongs to another attempt, the provider cannot be reached, or
                the person has no role here.
        """
        if not secrets.compare_digest(answer.get("state", "").encode(), attempt.state.encode()):
            raise SignInRefusedError("This answer belongs to another sign-in. Start again.")
        if answer.get("iss", self.issuer) != self.issuer:
            raise SignInRefusedError("This answer comes from another provider. Start again.")
        if "error" in answer:
            error = answer["error"][:100]
            raise SignInRefusedError(f"The provider did not sign you in: {error}. {_SETTINGS.get(error, '')}".strip())
        options = {"iss": {"value": self.issuer}, "aud": {"value": self._client_id}}  # a token must have both
        client = await self._client()
        with _refusals("token endpoint"):
            code = answer.get("code", "")
            tokens = await client.fetch_access_token(redirect_uri, code=code, code_verifier=attempt.verifier)
        with _refusals("set of keys"):
            keys = await client.fetch_jwk_set()
            client.server_metadata["jwks"] = {"keys": [key for key in keys["keys"] if _is_readable(key)]}
            claims = await client.parse_id_token(tokens, attempt.nonce, claims_options=options, leeway=_SKEW_S)
        if claims is None:
            raise SignInRefusedError("The provider sent no ID token.", 502)
        if not claims["sub"]:
            raise SignInRefusedError("The provider’s ID token leaves open who you are: its sub is empty.", 502)
        sources: dict[str, Mapping[str, Any]] = {"the ID token": claims}
        role = role_of(claims, self._roles)
        if role is None:  # providers that keep ID tokens small have the rest in userinfo
            with _refusals("userinfo"):
                sources["userinfo"] = await self._userinfo(client, tokens, claims["sub"])
            role = role_of(sources["userinfo"], self._roles)
        if role is None:
            scopes = client.server_metadata.get("scopes_supported")
            offered = [str(scope) for scope in scopes] if isinstance(scopes, list) else []
            raise SignInRefusedError(missing(sources, self._roles, self._scopes, offered))
        return self._person({**sources.get("userinfo", {}), **claims}, role), tokens["id_token"]

    async def sign_out_address(self, id_token: str | None, back: str) -> str | None:
        """The address at which the browser signs out at the provider, too; None: the provider has none.

        Args:
            id_token: ID token of the sign-in, by which the provider recognises the person; None: it asks them.
            back: address to which the provider sends the browser afterwards, if it knows that address.

        Raises:
            SignInRefusedError: the provider cannot be reached, or has another issuer.
        """
        client = await self._client()
        with _refusals("end of sessions"):
            if not client.server_metadata.get("end_session_endpoint"):
                return None
            leaving = await client.create_logout_url(back, id_token, client_id=self._client_id)
        return leaving["url"]

    async def _client(self) -> StarletteOAuth2App:
        """Authlib's client, with the provider's present description."""
        client = OAuth().register(
            "provider",
            client_id=self._client_id,
            client_secret=self._secret,
            server_metadata_url=f"{self.issuer.rstrip('/')}/.well-known/openid-configuration",
            client_kwargs={
                "scope": self._scopes,
                "code_challenge_method": "S256",
                "timeout": _TIMEOUT_S,
                **self._connection,
            },
        )
        with _refusals("description", "An operator can check DPICL_OIDC_ISSUER."):
            described = await client.load_server_metadata()
            for name in [name for name, value in described.items() if value is None]:
                del described[name]
        if missing := [name for name in _NEEDED if not _is_address(described.get(name))]:
            raise SignInRefusedError(f"The provider’s description lacks {', '.join(missing)}.", 502)
        if described.get("issuer") != self.issuer:
            raise SignInRefusedError(
                f"The provider calls itself {described.get('issuer')!r}, not {self.issuer!r}; DPICL_OIDC_ISSUER must "
                "be exactly that.",
                502,
            )
        asked = [str(described[name]) for name in _ASKED if described.get(name)]
        if self._connection["proxy"] and any(proxy_for(address) is None for address in asked):
            raise SignInRefusedError("The provider’s description names addresses on this machine.", 502)
        offered = described.get("token_endpoint_auth_methods_supported", _METHODS)
        ours = [method for method in _METHODS if method in offered] or _METHODS
        described["token_endpoint_auth_method"] = ours[0]
        # The description must not make a public key serve as a secret, or allow unsigned tokens.
        algorithms = _ASYMMETRIC & {*described.get("id_token_signing_alg_values_supported", ["RS256"])}
        described["id_token_signing_alg_values_supported"] = sorted(algorithms)
        return client

    async def _userinfo(self, client: StarletteOAuth2App, tokens: Any, subject: object) -> Mapping[str, Any]:
        """The claims at the provider's userinfo endpoint; none if it has no such endpoint.

        Raises:
            SignInRefusedError: they are another person's (OpenID Connect Core 1.0, section 5.3.2).
        """
        if not client.server_metadata.get("userinfo_endpoint"):
            return {}
        found: Mapping[str, Any] = await client.userinfo(token=tokens)
        if found.get("sub") != subject:
            raise SignInRefusedError("The provider’s userinfo is about another person than its ID token.", 502)
        return found

    def _person(self, claims: Mapping[str, Any], role: PersonRole) -> Person:
        name = next((name for key in _NAMES if (name := claims.get(key)) and isinstance(name, str)), "")
        person = Person(self.issuer, str(claims["sub"]), name[:200], role)
        if len(person.by) > _LONGEST:
            raise SignInRefusedError(
                f"The provider’s names for itself and for you have more than {_LONGEST} characters."
            )
        if _NO_CHARACTER.search(f"{person.by}{person.name}"):
            raise SignInRefusedError("The provider’s name for you contains characters that cannot be stored.")
        return person


def _is_address(value: object) -> bool:
    return isinstance(value, str) and value.startswith(("https://", "http://"))


def _is_readable(key: Any) -> bool:
    """Whether a key is of a kind that can check a signature here: a set may hold others beside it."""
    try:
        import_key(key)
    except (JoseError, ValueError, TypeError, LookupError, AttributeError):
        return False
    return True


@contextmanager
def _refusals(part: str, remedy: str = "Start again.") -> Iterator[None]:
    """Failures of a provider in words: only the kinds of errors, since the provider's descriptions may be private.

    Args:
        part: part of the provider that is asked.
        remedy: sentence with the remedy if it refuses.
    """
    try:
        yield
    except httpx2.HTTPStatusError as error:
        raise SignInRefusedError(
            f"The provider’s {part} refused ({error.response.status_code}). {remedy}", 502
        ) from None
    except OAuthError as error:
        remedy = _SETTINGS.get(str(error.error), remedy)
        raise SignInRefusedError(f"The provider refused ({str(error.error)[:100]}). {remedy}", 502) from None
    except ClaimError as error:
        if error.claim in ("exp", "nbf", "iat") and not isinstance(error, MissingClaimError):
            raise SignInRefusedError(
                "The provider’s ID token is not valid at this time. If you have just signed in, the clocks of the "
                f"provider and of this service differ by more than {_SKEW_S} seconds."
            ) from None
        remedy = _SETTINGS.get(error.claim or "", remedy)
        raise SignInRefusedError(f"The provider’s ID token is not for this sign-in: {error}. {remedy}") from None
    except (InvalidKeyIdError, MissingKeyError):
        raise SignInRefusedError(
            "The provider’s ID token is not genuine: it is signed with none of the keys that the provider publishes. "
            "If it has just changed its keys, try again in a minute."
        ) from None
    except JoseError as error:
        raise SignInRefusedError(f"The provider’s ID token is not genuine ({type(error).__name__}).") from None
    except (httpx2.HTTPError, httpx2.InvalidURL, ValueError, TypeError, LookupError, AttributeError) as error:
        raise SignInRefusedError(
            f"The provider cannot be reached, or its {part} is not as one should be ({type(error).__name__}). {remedy} "
            "You can sign in with a key.",
            503,
        ) from None
