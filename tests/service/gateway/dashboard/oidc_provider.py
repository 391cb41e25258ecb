"""An OpenID Connect provider over HTTP that checks its client, codes, PKCE and nonces, and can be made to lie."""

import hmac
import json
import secrets
import socket
import threading
import time
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from hashlib import sha256
from typing import Any
from urllib.parse import parse_qsl, urlencode

import uvicorn
from joserfc import jwt
from joserfc.jwk import RSAKey
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, RedirectResponse, Response
from starlette.routing import Route

CLIENT = "dpicl-dashboard"
SECRET = "secret"


def _base64(data: bytes) -> str:
    return urlsafe_b64encode(data).rstrip(b"=").decode()


class Provider:
    """The provider, with one client.

    Attributes:
        issuer: the provider's address.
        person: the claims of the person at the browser.
        more_keys: keys that are published beside its own.
        forge: a function that changes an ID token's claims before it is signed.
        signing: the key that signs ID tokens; a test may set another than the published one.
        algorithm: the algorithm that signs ID tokens: also "none", or HS256 with the public key as the secret.
        described: changes to the provider's description of itself.
        userinfo: claims at its userinfo endpoint, beside the person's subject.
        asked: the dashboard's requests to sign people in.
        leads_back: the only address to which browsers may return after signing out.
        signed_out: the subject of each person who signed out, or None where the provider would have to ask the person.
    """

    def __init__(self, issuer: str, redirect_uri: str):
        self.issuer = issuer
        self.person: dict[str, Any] = {"sub": "248289761001"}
        self.published = self.signing = RSAKey.generate_key(2048, {"kid": "1", "use": "sig"})
        self.more_keys: list[dict[str, Any]] = []
        self.forge: Callable[[dict[str, Any]], object] = lambda _claims: None
        self.algorithm = "RS256"
        self.described: dict[str, Any] = {}
        self.userinfo: dict[str, Any] = {}
        self.asked: list[dict[str, str]] = []
        self.leads_back = ""
        self.signed_out: list[str | None] = []
        self._redirect_uri = redirect_uri
        self._codes: dict[str, dict[str, str]] = {}
        answers = {
            "/.well-known/openid-configuration": self._describe,
            "/keys": lambda _request: JSONResponse({"keys": [*self.more_keys, self.published.as_dict(private=False)]}),
            "/authorize": self._authorize,
            "/token": self._token,
            "/end": self._end_session,
            "/userinfo": self._userinfo,
        }
        self.app = Starlette(routes=[Route(path, answer, methods=["GET", "POST"]) for path, answer in answers.items()])

    def _describe(self, _request: Request) -> Response:
        own = {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "id_token_signing_alg_values_supported": ["RS256"],
        }
        return JSONResponse(own | self.described)

    def _authorize(self, request: Request) -> Response:
        asked = dict(request.query_params)
        client = asked["client_id"], asked["redirect_uri"], asked["response_type"]
        if client != (CLIENT, self._redirect_uri, "code") or asked["nonce"] in [old["nonce"] for old in self.asked]:
            return JSONResponse({"error": "invalid_request"}, 400)
        code = secrets.token_urlsafe()
        self.asked.append(asked)
        self._codes[code] = asked
        return RedirectResponse(f"{self._redirect_uri}?{urlencode({'code': code, 'state': asked['state']})}", 302)

    async def _token(self, request: Request) -> Response:
        sent = dict(parse_qsl((await request.body()).decode()))
        asked = self._codes.pop(sent["code"], {})  # a code is taken once
        if request.headers.get("authorization") != f"Basic {b64encode(f'{CLIENT}:{SECRET}'.encode()).decode()}":
            return JSONResponse({"error": "invalid_client"}, 401)
        challenge = _base64(sha256(sent["code_verifier"].encode()).digest())
        if (challenge, sent["redirect_uri"]) != (asked.get("code_challenge"), asked.get("redirect_uri")):
            return JSONResponse({"error": "invalid_grant"}, 400)
        now = int(time.time())
        claims = {"iss": self.issuer, "aud": [CLIENT], "iat": now, "exp": now + 300, "nonce": asked["nonce"]}
        claims |= self.person
        self.forge(claims)
        return JSONResponse({"token_type": "Bearer", "access_token": "unused", "id_token": self.signed(claims)})

    def _userinfo(self, request: Request) -> Response:
        if request.headers.get("authorization") != "Bearer unused":
            return JSONResponse({"error": "invalid_token"}, 401)
        return JSONResponse({"sub": self.person["sub"]} | self.userinfo)

    def signed(self, claims: dict[str, Any]) -> str:
        """An ID token with these claims."""
        header = {"alg": self.algorithm, "kid": "1"}
        if self.algorithm == "RS256":
            return jwt.encode(header, claims, self.signing)
        # By hand, because no library would sign like this.
        parts = ".".join(_base64(json.dumps(part).encode()) for part in (header, claims))
        secret = self.published.as_pem(private=False)
        return f"{parts}.{_base64(hmac.digest(secret, parts.encode(), 'sha256')) if self.algorithm == 'HS256' else ''}"

    def _end_session(self, request: Request) -> Response:
        hint, back = (request.query_params.get(name) for name in ("id_token_hint", "post_logout_redirect_uri"))
        self.signed_out.append(jwt.decode(hint, self.published).claims["sub"] if hint else None)
        return RedirectResponse(back, 302) if hint and back == self.leads_back else Response("Sign out?")


@contextmanager
def provider(redirect_uri: str) -> Iterator[Provider]:
    """A provider that listens on this machine until the block ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        running = Provider(f"http://127.0.0.1:{listening.getsockname()[1]}", redirect_uri)
        server = uvicorn.Server(uvicorn.Config(running.app, log_level="error"))
        thread = threading.Thread(target=server.run, args=([listening],))
        thread.start()
        try:
            yield running
        finally:
            server.should_exit = True
            thread.join()
