"""Settings: environment variables that begin with ``DPICL_``. Nothing ships with a default secret."""

from __future__ import annotations

import base64
import os
import re
from contextlib import suppress
from difflib import get_close_matches
from ipaddress import ip_network
from pathlib import Path
from typing import Literal
from urllib.parse import urlsplit

from pydantic import Field, SecretStr, field_validator, model_validator

from service.connections import ConnectionSettings
from service.environment import PREFIX, FromEnvironment

PersonRole = Literal["viewer", "auditor", "admin"]
"""Roles of people who sign in at a provider."""

_OPERATORS = ("DATABASE_", "WITNESS_", "ENCRYPTION_", "MIGRATE", "DEVELOPMENT", "OIDC_", "AUDIT_", "PLAN_")


def set_operators_aside() -> dict[str, str]:
    """Remove an operator's databases, keys, people and their rules from the environment, for a trial.

    Variables that govern how questions are answered stay, such as the machine's latency grain.

    Returns:
        The removed variables with their values.
    """
    prefixes = tuple(f"DPICL_{name}" for name in _OPERATORS)
    return {name: os.environ.pop(name) for name in list(os.environ) if name.upper().startswith(prefixes)}


class RemoteSecrets(FromEnvironment):
    """The secrets of the remote endpoint, from the environment."""

    remote_api_key: SecretStr | None = None
    """Sent to a remote endpoint as a bearer token."""


class EmbeddingSettings(FromEnvironment):
    """The embedding model. A class of its own for programs that embed texts without opening a database."""

    embedding_model: str = ""
    """Model that embeds exemplars and questions: a folder, or NAME or NAME@REVISION on the Hugging Face Hub, of a
    sentence-transformers model with safetensors weights. The packaged all-MiniLM-L6-v2 unless set. The same for all
    processes; a knowledge base keeps the model that embedded its exemplars."""


class Settings(EmbeddingSettings):
    """Settings of an operator; each field is the environment variable ``DPICL_<NAME>``."""

    database_url: str = "sqlite:///var/dpicl.sqlite"
    """Knowledge bases, ledger and keys: `sqlite:///FILE` or `postgresql://USER:PASSWORD@HOST/NAME`."""
    witness_url: SecretStr | None = None
    """The witness, a second database, never restored together with the first: it notices a ledger restored from a
    backup. By default a file beside a SQLite database; required with PostgreSQL; `none` runs without one."""
    migrate: Literal["auto", "never"] = "auto"
    """`auto` creates the schema in an empty database; `never` leaves that, too, to `dpicl migrate`."""
    encryption_key: SecretStr | None = None
    """32 random bytes in base64, which encrypt exemplars at rest. Without a key the service refuses to start."""
    encryption_key_file: Path | None = None
    """A file that holds the key instead, such as a mounted secret."""
    audit_key_file: Path | None = None
    """A file with the Ed25519 key, in PEM, that signs checkpoints of the audit trail: `dpicl audit key` makes one. Only
    its owner may read it. Or the PKCS#11 URI of a key in a token. Nothing is signed unless set."""
    audit_origin: str | None = None
    """The name that the audit trail's checkpoints are signed by, such as `dp-icl.example.org/audit`; never that of
    another trail."""
    plan_approvers: dict[str, str] = Field(default={}, examples=[{"ann": "MCowBQYDK2VwAyEA..."}])
    """Persons of whom one must approve each plan before it is signed, as JSON: names with Ed25519 public keys, the line
    of base64 that `openssl pkey -in KEY.pem -pubout` prints. No plan needs an approval unless set."""
    development: bool = False
    """Allow a published key, for trials on made-up data, never for real exemplars."""

    latency_grain_ms: int | None = Field(default=None, ge=0, le=600_000)
    """Answers leave at multiples of this time after their charge. It must be at least twice the time that a task's
    largest slots take, which the service measures at start. Each task gets the smallest sufficient grain unless set."""
    latency_unpadded: bool = False
    """Send answers when they are ready. Their time then depends on private exemplars, and every answer carries a
    notice."""
    query_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Slots that are not answered within this time abstain."""
    lease_s: float = Field(default=360.0, gt=0, le=86_400)
    """A charge that is not settled within this time counts as lost, unless its answer may take longer."""
    max_queries_in_flight: int = Field(default=32, ge=1, le=10_000)
    """Queries that an ingress replica works on at once; further ones get a 429."""
    attention_percent: int = Field(default=90, ge=1, le=100)
    """The overview and the alerting rules warn when a task has spent this percentage of its answers."""
    attention_days: int = Field(default=14, ge=0, le=365)
    """They also warn when a task's answers will run out within this number of days; 0: never."""
    max_upload_bytes: int = Field(default=256 * 1024 * 1024, ge=1024)
    """Largest body of a bulk upload over REST."""
    root_path: str = Field(default="", examples=["/dp-icl"])
    """The path at which a reverse proxy serves all this, such as `/dp-icl`, whether the proxy takes the path away or
    leaves it. None unless set. `X-Forwarded-Prefix` of a trusted proxy counts more."""
    trusted_proxies: list[str] = Field(default=["127.0.0.1", "::1"])
    """Addresses and networks of reverse proxies, as JSON: `["10.1.0.0/16"]`. Only their `X-Forwarded-Prefix`,
    `X-Forwarded-Proto` and `X-Forwarded-For` count; let each proxy set or remove them itself, since callers can send
    them, too."""
    problem_base: str = ""
    """Beginning of the `type` of a problem; the problem's name follows. `/problems/` below the root path unless set,
    where the service explains problems. Set it to lead to documentation that you publish, up to its `#`."""
    mcp_hosts: list[str] = Field(default=["127.0.0.1:*", "localhost:*", "[::1]:*"])
    """Host names by which agents reach `/mcp`, as JSON; `:*` stands for any port: `["dp-icl.example.org"]`."""
    sanitizer_words: int = Field(default=0, ge=0, le=21_000)
    """Number of English words that `/v1/sanitize` knows, such as 3000, and at least 50; 0 switches it off. They are
    embedded at the first start, and kept in `$XDG_CACHE_HOME/dpicl`."""
    public_texts: Path | None = None
    """A file of 4 to 6,000 public texts, one a line, for sanitising by `whole_rr`. None unless set."""
    restore_bundles: Path | None = None
    """A folder of bundles, which `dpicl restore publish` adds to and `/v1/restore` serves. None unless set."""
    text_epsilon_cap: float | None = Field(default=None, ge=0)
    """The most ε that a key's sanitised texts may cost, all together. No cap unless set."""
    oidc_issuer: str | None = None
    """Issuer of an OpenID Connect provider that signs people in to the dashboard, exactly as it writes it:
    `https://...`."""
    oidc_client_id: str | None = None
    """The dashboard's client id at the provider, registered with the redirect address
    `https://HOST/admin/sign-in/callback`."""
    oidc_client_secret: SecretStr | None = None
    """The dashboard's client secret at the provider."""
    oidc_client_secret_file: Path | None = None
    """A file that holds the client secret instead, such as a mounted secret."""
    oidc_roles: dict[str, dict[str, PersonRole]] = Field(default={}, examples=[{"groups": {"budget-owners": "admin"}}])
    """Role by claim and value of the claim, as JSON: `{"groups": {"budget-owners": "admin"}}`. A claim within another
    is a path, such as `realm_access.roles` or, of objects in a list, `groups.name`; a dot in a name is written `\\\\.`.
    A person with several roles gets the most privileged one; a person without a role in the ID token is looked up in
    userinfo, and refused if there is none."""
    oidc_scopes: str = "openid profile email"
    """Scopes that a sign-in requests, with spaces between. Some providers send groups only with `groups` among them."""
    metrics_open: bool = False
    """Show `/metrics` without a key."""

    @property
    def oidc_secret(self) -> str:
        """The dashboard's secret at the OpenID Connect provider.

        Raises:
            ValueError: the secret's file cannot be read, can be read by others, or is empty.
        """
        if self.oidc_client_secret is not None:
            return self.oidc_client_secret.get_secret_value()
        from exemplar_store.key_files import ReadableKeyError, read_key_file  # which takes time to import

        file = self.oidc_client_secret_file or Path()
        try:
            secret = read_key_file(file).decode().strip()
        except ReadableKeyError as error:
            raise ValueError(f"DPICL_OIDC_CLIENT_SECRET_FILE: {error}") from None
        except OSError as error:
            raise ValueError(f"DPICL_OIDC_CLIENT_SECRET_FILE: {file} cannot be read ({error.strerror})") from None
        if not secret:
            raise ValueError(f"DPICL_OIDC_CLIENT_SECRET_FILE: {file} is empty")
        return secret

    @model_validator(mode="after")
    def _latency_is_set_once(self) -> Settings:
        if self.latency_unpadded and self.latency_grain_ms is not None:
            raise ValueError(
                "DPICL_LATENCY_UNPADDED=true and DPICL_LATENCY_GRAIN_MS exclude each other: unset one of them"
            )
        return self

    @model_validator(mode="after")
    def _signs_by_a_key_and_a_name(self) -> Settings:
        if (self.audit_key_file is None) != (self.audit_origin is None):
            missing = "DPICL_AUDIT_ORIGIN" if self.audit_origin is None else "DPICL_AUDIT_KEY_FILE"
            raise ValueError(f"signing the audit trail needs {missing}, too")
        return self

    @model_validator(mode="after")
    def _knows_all_of_the_provider(self) -> Settings:
        secret = self.oidc_client_secret or self.oidc_client_secret_file
        given = {"ISSUER": self.oidc_issuer, "CLIENT_ID": self.oidc_client_id, "CLIENT_SECRET": secret}
        missing = [f"DPICL_OIDC_{name}" for name, value in {**given, "ROLES": self.oidc_roles}.items() if not value]
        if 0 < len(missing) < 4:
            raise ValueError(f"signing in with a provider needs {', '.join(missing)}, too")
        if "openid" not in self.oidc_scopes.split():
            raise ValueError(f"DPICL_OIDC_SCOPES must have openid among them: openid {self.oidc_scopes}")
        if self.oidc_client_secret and self.oidc_client_secret_file:
            raise ValueError("DPICL_OIDC_CLIENT_SECRET and DPICL_OIDC_CLIENT_SECRET_FILE exclude each other")
        if self.oidc_issuer:
            address = urlsplit(self.oidc_issuer)
            if address.scheme != "https" and address.hostname not in ("localhost", "127.0.0.1", "::1"):
                raise ValueError("DPICL_OIDC_ISSUER must begin with https://, or be on this machine")
        return self

    @field_validator("database_url", "text_epsilon_cap", mode="before")
    @classmethod
    def _is_not_empty(cls, written: object) -> object:
        if isinstance(written, str) and not written.strip():  # neither another ledger nor no cap by oversight
            raise ValueError("it is empty: give it a value, or unset it")
        return written

    @field_validator("plan_approvers")
    @classmethod
    def _approvers_have_keys(cls, approvers: dict[str, str]) -> dict[str, str]:
        if not approvers:
            return approvers
        from cryptography.exceptions import UnsupportedAlgorithm  # which takes time to import
        from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey
        from cryptography.hazmat.primitives.serialization import load_der_public_key

        for name, written in approvers.items():
            key = None
            with suppress(ValueError, UnsupportedAlgorithm):
                key = load_der_public_key(base64.b64decode(written, validate=True))
            if not isinstance(key, Ed25519PublicKey) or not name.strip() or not name.isprintable():
                raise ValueError(
                    f"{name!r} needs a name and an Ed25519 public key, the line of base64 that `openssl pkey -in "
                    "KEY.pem -pubout` prints"
                )
        return approvers

    @field_validator("problem_base")
    @classmethod
    def _base_is_a_path_or_an_address(cls, base: str) -> str:
        if base and not re.fullmatch(r"(https?:/)?/([!-.0-~][!-~]*)?", base):
            raise ValueError(
                "write a path such as /problems/, or an address such as https://docs.example.org/problems#"
            )
        return base

    @field_validator("root_path")
    @classmethod
    def _root_is_a_path(cls, path: str) -> str:
        return read_root_path(path)

    @field_validator("trusted_proxies")
    @classmethod
    def _proxies_are_addresses(cls, proxies: list[str]) -> list[str]:
        for proxy in proxies:
            try:
                ip_network(proxy)
            except ValueError:
                raise ValueError(
                    f"{proxy!r} is neither an address nor a network: write 10.1.2.3 or 10.1.0.0/16"
                ) from None
        return proxies

    @field_validator("mcp_hosts")
    @classmethod
    def _hosts_are_names(cls, hosts: list[str]) -> list[str]:
        if wrong := [host for host in hosts if not re.fullmatch(r"[^\s/@]+", host)]:
            raise ValueError(f"{wrong[0]!r} is not a host's name: write it without https:// and a path")
        return hosts

    @field_validator("sanitizer_words")
    @classmethod
    def _words_are_enough(cls, words: int) -> int:
        if 0 < words < 50:
            raise ValueError("words can be replaced by others if there are at least 50; 0 sanitises none")
        return words

    @field_validator("latency_grain_ms")
    @classmethod
    def _no_grain_is_stated(cls, grain: int | None) -> int | None:
        if grain == 0:
            raise ValueError(
                "with a grain of 0, latency would reveal private exemplars: set it above what the engine's slowest "
                "answer takes, or set DPICL_LATENCY_UNPADDED=true instead"
            )
        return grain


_OWN = ("admin", "docs", "healthz", "mcp", "metrics", "openapi.json", "problems", "readyz", "v1", "version")
"""First parts of the service's own paths: below one of them, no request would show what a proxy has taken away."""


def read_root_path(written: str) -> str:
    """A path at which the service is served, without a slash at the end; empty: the site's own root.

    Raises:
        ValueError: it is not such a path.
    """
    path = written.rstrip("/")
    if path and not re.fullmatch(r"(/(?!\.{1,2}(/|$))[A-Za-z0-9._~-]+)+", path):
        raise ValueError("write a path such as /dp-icl, of letters, digits, hyphens, dots, tildes and underscores")
    if path.split("/")[1:2] and path.split("/")[1] in _OWN:
        raise ValueError("the service has this path itself: write another, such as /dp-icl")
    return path


class ListenSettings(FromEnvironment):
    """Where `dpicl serve` listens; its options count more. No other command reads them."""

    host: str | None = None
    """Address on which `dpicl serve` listens, instead of its config's; its option `--host` counts more."""
    port: int | None = Field(default=None, ge=1, le=65535)
    """Port on which `dpicl serve` listens, instead of its config's; its option `--port` counts more."""

    @field_validator("port", mode="before")
    @classmethod
    def _no_service_link(cls, written: object) -> object:
        # Kubernetes' name for the address of a Service that is named dpicl.
        return None if isinstance(written, str) and "://" in written else written


_CLIENT = ("DPICL_URL", "DPICL_API_KEY", "DPICL_SOURCE_URL")
"""Variables of options of commands."""
_SERVICE_LINK = re.compile(r"DPICL_(\w+_)?(SERVICE_(HOST|PORT(_\w+)?)|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)")
"""Variables that Kubernetes sets in every pod of a namespace that has a Service named ``dpicl...``."""
_ALMOST = 0.9
"""How alike a variable that does not begin with ``DPICL_`` and a setting are, if it is mistyped (``DPIC_...``)."""


class UnknownSettingError(ValueError):
    """A variable of the environment looks like a setting, and has another name than each, or another's."""


def setting_names() -> tuple[str, ...]:
    """The environment variables of the service and of its clients."""
    models = (Settings, ListenSettings, RemoteSecrets, ConnectionSettings)
    return (*(f"DPICL_{name.upper()}" for model in models for name in model.model_fields), *_CLIENT)


def check_setting_names() -> None:
    """Refuse variables that seem to be settings, and name none or the same one twice: one would be ignored.

    Raises:
        UnknownSettingError: there is one; the message names the setting that may be meant, and no value.
    """
    known = setting_names()
    spellings: dict[str, str] = {}
    for name in sorted(os.environ):
        upper = name.upper()
        if upper in known and (twice := spellings.setdefault(upper, name)) != name:
            raise UnknownSettingError(f"{twice} and {name} are the same setting: unset one of them")
        address = upper.endswith("_PORT") and "://" in os.environ[name]  # of a Service named dp-icl, for instance
        if upper in known or address or _SERVICE_LINK.fullmatch(upper):
            continue
        begins = upper.startswith(PREFIX)
        meant = get_close_matches(upper, known, n=1, cutoff=0.6 if begins else _ALMOST)
        if begins or meant:
            advice = f"did you mean {meant[0]}?" if meant else "correct its name, or unset it."
            shown = name if name.isprintable() else ascii(name)
            raise UnknownSettingError(f"{shown} is not a setting: {advice} docs/reference/settings.md lists all")
