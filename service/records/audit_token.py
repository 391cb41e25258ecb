"""An Ed25519 key that never leaves a token: a hardware security module, a smart card or SoftHSM, by PKCS#11.

A URI of RFC 7512 names it: ``pkcs11:token=audit;object=dp-icl?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=
/run/secrets/pin``.
"""

from functools import cache
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import Any
from urllib.parse import unquote, unquote_to_bytes

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

from accounting.ledger.checkpoints import CheckpointError
from exemplar_store.key_files import read_key_file

SCHEME = "pkcs11:"
_ATTRIBUTES = {"token", "serial", "object", "id", "type", "module-path", "pin-source"}
_PUBLIC_BYTES = 32
_OCTETS = bytes([0x04, _PUBLIC_BYTES])
"""What stands before the key where a token gives it as an octet string of DER."""


class TokenError(ValueError):
    """A URI that leads to no key to sign by; the message names the remedy."""


class TokenKey:
    """A private key in a token. May be shared by threads.

    Args:
        uri: URI of RFC 7512.

    Raises:
        TokenError: it leads to no key that signs.
        exemplar_store.key_files.ReadableKeyError: others can read the file with the PIN.
        OSError: no file with the PIN can be read.
    """

    def __init__(self, uri: str) -> None:
        self._named = _attributes(uri)
        try:
            self._library = import_module("pkcs11")
        except ImportError:
            raise TokenError("a key in a token needs python-pkcs11: pip install 'dp-icl[pkcs11]'") from None
        self._exceptions: Any = import_module("pkcs11.exceptions")
        self._errors = self._exceptions.PKCS11Error
        self._lock = Lock()
        self._session: Any = None
        try:
            self._open()
            signature = self._sign(probe := b"dp-icl")
        except (self._errors, RuntimeError) as error:  # the latter: the module cannot be loaded
            said = " ".join(str(error).split())
            why = f"{type(error).__name__}{f': {said}' if said else ''}"
            raise TokenError(
                f"the token does not sign by this key ({why}): are token, object, module-path and PIN right, and is "
                "the key Ed25519?"
            ) from None
        try:
            self._public.verify(signature, probe)
        except InvalidSignature:
            raise TokenError("the token's public key is not that of its private key: name one pair by id") from None

    def public_key(self) -> Ed25519PublicKey:
        """The public key."""
        return self._public

    def sign(self, data: bytes) -> bytes:
        """Sign a message, in a new session if the old one has ended.

        Raises:
            CheckpointError: the token does not sign.
        """
        with self._lock:
            try:
                return self._sign(data)
            except self._errors:
                pass
            try:
                self._open()
                return self._sign(data)
            except self._errors as error:
                why = type(error).__name__
                raise CheckpointError(
                    f"the token with the audit trail's key does not sign ({why}): look at it"
                ) from None

    def _sign(self, data: bytes) -> bytes:
        signature: bytes = self._key.sign(data, mechanism=self._library.Mechanism.EDDSA)
        return signature

    def _open(self) -> None:
        if self._session is not None:
            self._session.close()
        named, kinds, attribute = self._named, self._library.ObjectClass, self._library.Attribute
        library = self._library.lib(named["module-path"].decode())
        where = {"token_label": "token", "token_serial": "serial"}
        token = library.get_token(
            **{
                option: named[name].decode() if option == "token_label" else named[name]
                for option, name in where.items()
                if name in named
            }
        )
        pin = named.get("pin-source")
        path = None if pin is None else Path(pin.decode().removeprefix("file://").removeprefix("file:"))
        try:
            session = token.open(user_pin=None if path is None else read_key_file(path).decode().strip())
        except self._exceptions.UserAlreadyLoggedIn:  # by another key of this token: one sign-in is the process's
            session = token.open()
        which: dict[str, Any] = {"id": named["id"]} if "id" in named else {}
        which |= {"label": named["object"].decode()} if "object" in named else {}
        edwards = self._library.KeyType.EC_EDWARDS
        self._key = session.get_key(object_class=kinds.PRIVATE_KEY, key_type=edwards, **which)
        point = session.get_key(object_class=kinds.PUBLIC_KEY, key_type=edwards, **which)[attribute.EC_POINT]
        self._public = Ed25519PublicKey.from_public_bytes(bytes(point).removeprefix(_OCTETS))
        self._session = session


@cache
def token_key(uri: str) -> TokenKey:
    """The key that a URI names; a process signs in to a token once. Raises as :class:`TokenKey`."""
    return TokenKey(uri)


def _attributes(uri: str) -> dict[str, bytes]:
    """The attributes in a URI, as bytes.

    Raises:
        TokenError: one is unknown or missing.
    """
    path, _, query = uri.removeprefix(SCHEME).partition("?")
    pairs = [part.partition("=") for part in [*path.split(";"), *query.split("&")] if part]
    named = {unquote(name): unquote_to_bytes(value) for name, _, value in pairs}
    if "pin-value" in named:
        raise TokenError("write the PIN into a file, and name it with pin-source: settings are shown and logged")
    if unknown := sorted(named.keys() - _ATTRIBUTES):
        known = ", ".join(sorted(_ATTRIBUTES))
        raise TokenError(f"the URI has {', '.join(unknown)}, which is not known here; what is known: {known}")
    if named.get("type", b"private") != b"private":
        raise TokenError("the URI must lead to a private key: leave type out")
    if "module-path" not in named or not {"token", "serial"} & named.keys() or not {"object", "id"} & named.keys():
        raise TokenError(
            "the URI must name a token (token or serial), a key (object or id) and the token's library, as in "
            "pkcs11:token=audit;object=dp-icl?module-path=/usr/lib/softhsm/libsofthsm2.so&pin-source=/run/secrets/pin"
        )
    return named
