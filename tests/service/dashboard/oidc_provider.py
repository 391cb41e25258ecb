"""An OpenID Connect provider over HTTP, by Authlib's own server: it checks clients, codes, PKCE and nonces."""

from __future__ import annotations

import hmac
import json
import secrets
import threading
import time
from base64 import urlsafe_b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qsl, urlsplit

from authlib.oauth2.rfc6749 import AuthorizationServer, OAuth2Error, OAuth2Payload, OAuth2Request, grants
from authlib.oauth2.rfc7636 import CodeChallenge
from authlib.oidc.core import OpenIDCode, UserInfo
from authlib.oidc.rpinitiated import EndSessionEndpoint, EndSessionRequest
from joserfc import jwt
from joserfc.jwk import RSAKey

CLIENT = "dpicl-dashboard"
SECRET = "secret"


class Client:
    """The one client that is registered."""

    client_id = CLIENT

    def __init__(self, redirect_uri: str):
        self._redirect_uri = redirect_uri
        self.client_metadata: dict[str, list[str]] = {}

    def get_client_id(self) -> str:
        return CLIENT

    def check_redirect_uri(self, uri: str) -> bool:
        return uri == self._redirect_uri

    def get_allowed_scope(self, scope: str) -> str:
        return scope

    def check_client_secret(self, secret: str) -> bool:
        return secret == SECRET

    def check_endpoint_auth_method(self, method: str, endpoint: str) -> bool:
        return method == "client_secret_basic"

    def check_response_type(self, kind: str) -> bool:
        return kind == "code"

    def check_grant_type(self, kind: str) -> bool:
        return kind == "authorization_code"


class Code(SimpleNamespace):
    """What a code stands for, once."""

    def get_redirect_uri(self) -> str:
        return self.redirect_uri

    def get_scope(self) -> str:
        return self.scope

    def get_nonce(self) -> str:
        return self.nonce

    def get_auth_time(self) -> int:
        return int(time.time())

    def get_acr(self) -> None:
        return None

    def get_amr(self) -> None:
        return None


class Payload(OAuth2Payload):
    def __init__(self, fields: list[tuple[str, str]]):
        self._fields = fields

    @property
    def data(self) -> dict[str, str]:
        return dict(self._fields)

    @property
    def datalist(self) -> dict[str, list[str]]:
        return {name: [value for one, value in self._fields if one == name] for name, _ in self._fields}


class Request(OAuth2Request):
    """A request as Authlib wants to see it."""

    def __init__(self, method: str, uri: str, headers: Any, body: str):
        super().__init__(method, uri, headers=headers)
        self._form = dict(parse_qsl(body))
        self.payload = Payload(parse_qsl(urlsplit(uri).query) + parse_qsl(body))

    @property
    def args(self) -> dict[str, str]:
        return dict(parse_qsl(urlsplit(self.uri).query))

    @property
    def form(self) -> dict[str, str]:
        return self._form


class Provider(AuthorizationServer):
    """The provider.

    Attributes:
        issuer: its address.
        person: the claims of whoever is at the browser.
        forge: changes an ID token's claims before it is signed.
        signing: the key that ID tokens are signed with; another than is published when a test says so.
        algorithm: that ID tokens are signed by: also "none", or HS256 with the public key as the secret.
        described: changes what it says of itself.
        asked: what the dashboard asked for.
        signed_out: who signed out, by subject; None: somebody, whom it would have to ask.
    """

    def __init__(self, issuer: str, redirect_uri: str):
        super().__init__(scopes_supported=["openid", "profile", "email"])
        self.issuer = issuer
        self.client = Client(redirect_uri)
        self.person: dict[str, Any] = {"sub": "248289761001"}
        self.published = self.signing = RSAKey.generate_key(2048, {"kid": "1", "use": "sig"})
        self.forge: Callable[[dict[str, Any]], object] = lambda _claims: None
        self.algorithm = "RS256"
        self.described: dict[str, Any] = {}
        self.asked: list[dict[str, str]] = []
        self.signed_out: list[str | None] = []
        self._codes: dict[str, Code] = {}
        self._nonces: set[str] = set()
        self.register_token_generator("default", self._token)
        self.register_endpoint(self._end_session())
        self.register_grant(self._grant(), [CodeChallenge(required=True), self._openid()])

    def query_client(self, client_id: str) -> Client | None:
        return self.client if client_id == CLIENT else None

    def save_token(self, token: object, request: object) -> None:
        pass

    def send_signal(self, name: str, *args: object, **kwargs: object) -> None:
        pass

    def create_oauth2_request(self, request: Request) -> Request:
        return request

    def handle_response(self, status: int, body: Any, headers: Any) -> tuple[int, Any, Any]:
        return status, body, headers

    def _token(self, **_: object) -> dict[str, Any]:
        return {"token_type": "Bearer", "access_token": secrets.token_urlsafe(), "expires_in": 60, "scope": "openid"}

    def _grant(self) -> type:
        this = self

        class Grant(grants.AuthorizationCodeGrant):
            TOKEN_ENDPOINT_AUTH_METHODS = ("client_secret_basic",)

            def save_authorization_code(self, code: str, request: Request) -> None:
                asked = request.payload.data
                this.asked.append(asked)
                names = ("redirect_uri", "scope", "nonce", "code_challenge", "code_challenge_method")
                this._codes[code] = Code(code=code, **{name: asked.get(name) for name in names})
                this._nonces.add(asked["nonce"])

            def query_authorization_code(self, code: str, client: Client) -> Code | None:
                return this._codes.get(code)

            def delete_authorization_code(self, code: Code) -> None:
                del this._codes[code.code]

            def authenticate_user(self, code: Code) -> dict[str, Any]:
                return this.person

        return Grant

    def _end_session(self) -> type:
        this = self

        class EndSession(EndSessionEndpoint):
            def get_server_jwks(self) -> dict[str, Any]:
                return {"keys": [this.published.as_dict(private=False)]}

            def end_session(self, request: EndSessionRequest) -> None:
                this.signed_out.append(request.id_token_claims and request.id_token_claims["sub"])

        return EndSession

    def _openid(self) -> OpenIDCode:
        this = self

        class OpenID(OpenIDCode):
            def exists_nonce(self, nonce: str, request: Request) -> bool:
                return nonce in this._nonces

            def generate_user_info(self, user: dict[str, Any], scope: str) -> UserInfo:
                return UserInfo(user)

            def encode_id_token(self, token: dict[str, Any], request: Request) -> str:
                now = int(time.time())
                claims = {"iss": this.issuer, "aud": [CLIENT], "iat": now, "exp": now + 300, **request.user}
                claims |= self.get_authorization_code_claims(request.authorization_code)
                this.forge(claims)
                return this.signed(claims)

        return OpenID(require_nonce=True)

    def signed(self, claims: dict[str, Any]) -> str:
        """An ID token."""
        header = {"alg": self.algorithm, "kid": "1"}
        if self.algorithm == "RS256":
            return jwt.encode(header, claims, self.signing)
        # By hand: no library would sign so.
        parts = b".".join(urlsafe_b64encode(json.dumps(part).encode()).rstrip(b"=") for part in (header, claims))
        mac = hmac.digest(self.published.as_pem(private=False), parts, "sha256") if self.algorithm == "HS256" else b""
        return b".".join((parts, urlsafe_b64encode(mac).rstrip(b"="))).decode()

    def answer(self, request: Request) -> tuple[int, Any, Any]:
        """One HTTP request."""
        path = urlsplit(request.uri).path
        if path == "/.well-known/openid-configuration":
            return 200, self._description(), []
        if path == "/keys":
            return 200, {"keys": [self.published.as_dict(private=False)]}, []
        if path == "/authorize":
            try:
                grant = self.get_consent_grant(request, end_user=self.person)
            except OAuth2Error as error:
                return self.handle_error_response(request, error)
            return self.create_authorization_response(request, grant_user=self.person, grant=grant)
        if path == "/token":
            return self.create_token_response(request)
        if path == "/end":
            return self.create_endpoint_response("end_session", request) or (200, {}, [])
        return 404, {}, []

    def _description(self) -> dict[str, Any]:
        return {
            "issuer": self.issuer,
            "authorization_endpoint": f"{self.issuer}/authorize",
            "token_endpoint": f"{self.issuer}/token",
            "jwks_uri": f"{self.issuer}/keys",
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": ["RS256"],
        } | self.described


@contextmanager
def provider(redirect_uri: str) -> Iterator[Provider]:
    """A provider that listens on this machine until the block ends."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self._handle("")

        def do_POST(self) -> None:
            self._handle(self.rfile.read(int(self.headers["Content-Length"])).decode())

        def _handle(self, body: str) -> None:
            request = Request(self.command, f"{running.issuer}{self.path}", self.headers, body)
            status, answer, headers = running.answer(request)
            sent = answer.encode() if isinstance(answer, str) else json.dumps(answer).encode()
            self.send_response(status)
            for name, value in headers:
                if name.lower() not in ("content-type", "content-length"):
                    self.send_header(name, value)
            self.send_header("Content-Type", "application/json")
            self.send_header("Content-Length", str(len(sent)))
            self.end_headers()
            self.wfile.write(sent)

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        running = Provider(f"http://127.0.0.1:{server.server_port}", redirect_uri)
        thread = threading.Thread(target=server.serve_forever, daemon=True)
        thread.start()
        try:
            yield running
        finally:
            server.shutdown()
            thread.join()
