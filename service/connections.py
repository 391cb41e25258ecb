"""Connections to other machines: direct, or through the proxy that an operator names for this service.

Questions, exemplars and keys travel on them. So neither the proxies that an environment names for every program count
(``HTTP_PROXY`` and its relatives), nor its ``netrc``, nor its ``SSLKEYLOGFILE``. What is on this machine is never asked
through a proxy, however its address is written.
"""

import ipaddress
import os
import re
import socket
import ssl
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

from pydantic import SecretStr, field_validator

from service.environment import FromEnvironment

_BUNDLES = ("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE")
_BUNDLE_FOLDER = "SSL_CERT_DIR"
_PROXY = re.compile("(?!dpicl_)(no_)?[a-z0-9]+_proxy", re.IGNORECASE)
_LOOPBACK = "localhost,127.0.0.1,127.0.0.0/8,::1,0.0.0.0"
"""For libraries that read the environment, each in its own way."""


class ConnectionSettings(FromEnvironment):
    """How this service, and a client of it, reach other machines."""

    proxy_url: SecretStr | None = None
    """The HTTP proxy through which everything reaches other machines, `http://HOST:PORT`: a remote model, a sign-in
    provider, traces, files at addresses, downloads of models, and `dpicl ask`. None unless set: `HTTP_PROXY` and its
    relatives do not count, and loopback and Ray's own calls never use a proxy."""

    @field_validator("proxy_url")
    @classmethod
    def _is_a_http_proxy(cls, given: SecretStr | None) -> SecretStr | None:
        if given is None:
            return None
        written = given.get_secret_value()
        wanted = "write http://HOST:PORT, such as http://proxy.example.org:3128"
        try:
            parts = urlsplit(written)
            port = parts.port
        except ValueError:  # it repeats the URL, which may hold a password
            raise ValueError(f"it is not a URL; {wanted}") from None
        if parts.scheme.startswith("socks"):
            raise ValueError(f"it names a SOCKS proxy, and only HTTP proxies are supported; {wanted}")
        plain = written.isascii() and written.isprintable() and " " not in written
        if parts.scheme not in ("http", "https") or not parts.hostname or port == 0 or not plain:
            raise ValueError(f"it is not the address of an HTTP proxy; {wanted}")
        if parts.path not in ("", "/") or parts.query or parts.fragment:
            raise ValueError(f"it has something behind the port; {wanted}")
        return given


class CertificatesError(ValueError):
    """A variable names certificates of authorities that cannot be read."""


def http_options(address: str) -> dict[str, Any]:
    """Arguments of an httpx client, or an httpx2 client, that asks one address.

    Args:
        address: URL of what is asked.

    Raises:
        CertificatesError: certificates that the environment names cannot be read.
        service.environment.InvalidSettingError: ``DPICL_PROXY_URL`` is not the URL of an HTTP proxy.
    """
    return {"trust_env": False, "proxy": proxy_for(address), "verify": certificates()}


def proxy_for(address: str) -> str | None:
    """The proxy through which an address is asked; None: it is asked directly.

    Args:
        address: a URL.

    Raises:
        service.environment.InvalidSettingError: ``DPICL_PROXY_URL`` is not the URL of an HTTP proxy.
    """
    proxy = ConnectionSettings().proxy_url
    if proxy is None or is_loopback(urlsplit(address).hostname or ""):
        return None
    return proxy.get_secret_value()


def is_loopback(host: str) -> bool:
    """Whether a host is this machine, by whatever name or spelling of its address.

    Args:
        host: name or address, in a URL's brackets or without.
    """
    plain = unquote(host).strip("[]").partition("%")[0].rstrip(".").lower()
    if plain == "localhost" or plain.endswith(".localhost"):  # RFC 6761, section 6.3
        return True
    try:
        found = {plain} if ":" in plain else {str(where[4][0]) for where in socket.getaddrinfo(plain, None)}
    except (OSError, UnicodeError):  # its name is known to the proxy alone
        return False
    return any(_is_here(address) for address in found)


def _is_here(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    plain = getattr(found, "ipv4_mapped", None) or found
    return plain.is_loopback or plain.is_unspecified  # the kernel connects 0.0.0.0 to this machine


def certificates() -> ssl.SSLContext:
    """TLS for a client, with the authorities of the bundles that the environment names, or else certifi's.

    Raises:
        CertificatesError: a bundle cannot be read, or holds no certificate; the message names the variable.
    """
    # Not ssl.create_default_context, which writes the keys of every connection to SSLKEYLOGFILE.
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    named = check_certificates()
    for name, where in named.items():
        folder = name == _BUNDLE_FOLDER
        try:
            context.load_verify_locations(cafile=None if folder else where, capath=where if folder else None)
        except ssl.SSLError:
            raise _unreadable(name, where, "it holds no certificate in PEM") from None
    if not named:
        import certifi

        context.load_verify_locations(certifi.where())
    return context


def check_certificates(*further: str) -> dict[str, str]:
    """The files and the folders of certificates that the environment names, by variable.

    Args:
        further: variables of other programs to look at as well.

    Raises:
        CertificatesError: one cannot be read.
    """
    named = {}
    for name in (*_BUNDLES, *further, _BUNDLE_FOLDER):
        where = os.environ.get(name, "")
        if not where:
            continue
        named[name] = where
        folders = where.split(os.pathsep) if name == _BUNDLE_FOLDER else []
        if folders and not any(Path(folder).is_dir() for folder in folders):
            raise _unreadable(name, where, "there is no such folder")
        if not folders:
            if Path(where).is_dir():  # which REQUESTS_CA_BUNDLE may be
                raise _unreadable(name, where, "it is a folder, and SSL_CERT_DIR names folders")
            try:
                Path(where).open("rb").close()
            except OSError as error:
                raise _unreadable(name, where, str(error.strerror)) from None
    return named


def _unreadable(name: str, where: str, why: str) -> CertificatesError:
    return CertificatesError(
        f"{name}: the certificates of authorities {where} cannot be read ({why}): correct the variable, or unset it"
    )


def leave_proxies() -> list[str]:
    """Let no library find a proxy in the environment but the one of ``DPICL_PROXY_URL``; child processes inherit that.

    For libraries that open connections by themselves, such as those that read ``s3://``. None writes the keys of its
    connections to ``SSLKEYLOGFILE`` either.

    Returns:
        The variables that named a proxy, and no longer do.

    Raises:
        service.environment.InvalidSettingError: ``DPICL_PROXY_URL`` is not the URL of an HTTP proxy.
    """
    setting = ConnectionSettings().proxy_url
    ours = setting.get_secret_value() if setting else ""
    found = {name: os.environ.pop(name) for name in sorted(os.environ) if _PROXY.fullmatch(name)}
    if ours:
        os.environ.update(http_proxy=ours, https_proxy=ours, no_proxy=_LOOPBACK)
    os.environ.pop("SSLKEYLOGFILE", None)
    os.environ["grpc_proxy"] = ""  # noqa: SIM112  (gRPC takes an empty one for none, and looks no further)
    return [name for name, value in found.items() if value not in ("", ours) and not name.lower().startswith("no_")]


class CallsThroughProxyError(ValueError):
    """Calls between replicas would go through a proxy."""


def require_direct_calls() -> None:
    """Refuse a process of a cluster whose gRPC uses a proxy: calls between replicas carry questions and exemplars.

    gRPC takes the first of these variables, and an empty one for none.

    Raises:
        CallsThroughProxyError: it does.
    """
    for name in ("grpc_proxy", "https_proxy", "http_proxy"):
        if (proxy := os.environ.get(name)) is not None:
            if proxy:
                raise CallsThroughProxyError(
                    f"calls between replicas, which carry questions and exemplars, would go through the proxy that "
                    f"{name} names: set grpc_proxy to an empty text on every node"
                )
            return
