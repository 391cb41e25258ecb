"""The private keys that sign checkpoints of the audit trail: Ed25519, in PEM files that their owner alone can read, or
in a token."""

import os
from pathlib import Path

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from accounting.ledger.notes import Signer, check_name
from exemplar_store.key_files import ReadableKeyError, read_key_file
from service.records.audit_token import SCHEME, TokenError, token_key
from service.settings import Settings


class AuditKeyError(ValueError):
    """A file that holds no key to sign by, or that others can read; the message names the remedy."""


def signer_of(settings: Settings) -> Signer | None:
    """The audit trail's signer that the settings name; None: checkpoints are not signed.

    Raises:
        AuditKeyError: the file cannot be used.
    """
    if settings.audit_key_file is None or settings.audit_origin is None:
        return None
    try:
        return read_signer(settings.audit_key_file, settings.audit_origin)
    except AuditKeyError as error:
        raise AuditKeyError(f"DPICL_AUDIT_KEY_FILE: {error}") from None


def read_signer(file: Path, name: str) -> Signer:
    """The key in a file, with the name that it signs by.

    Args:
        file: the file, or the URI of a key in a token.
        name: name of the key.

    Raises:
        AuditKeyError: the file cannot be read, others can read it, or it holds no Ed25519 key without a password.
        accounting.ledger.notes.NoteError: the name cannot name a key.
    """
    if str(file).startswith(SCHEME):
        try:
            return Signer(check_name(name), token_key(str(file)))
        except (TokenError, ReadableKeyError, OSError) as error:
            raise AuditKeyError(str(error)) from None
    how = f"make one with `dpicl audit key {file} NAME`"
    try:
        key = load_pem_private_key(read_key_file(file), password=None)
    except ReadableKeyError as error:
        raise AuditKeyError(str(error)) from None
    except OSError as error:
        raise AuditKeyError(f"{file} cannot be read ({error.strerror}); {how}") from None
    except TypeError:
        raise AuditKeyError(f"{file} is protected by a password: a service cannot ask for it; {how}") from None
    except (ValueError, UnsupportedAlgorithm):
        raise AuditKeyError(f"{file} holds no private key in PEM; {how}") from None
    if not isinstance(key, Ed25519PrivateKey):
        raise AuditKeyError(f"{file} holds a key of another kind than Ed25519; {how}")
    return Signer(check_name(name), key)


def make_signer(file: Path, name: str) -> Signer:
    """The key in a file, which is made if there is no such file, for its owner alone; raises as :func:`read_signer`."""
    check_name(name)
    if str(file).startswith(SCHEME):  # tokens make their keys themselves
        return read_signer(file, name)
    key = Ed25519PrivateKey.generate().private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    try:
        handle = os.open(file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        return read_signer(file, name)
    except OSError as error:
        raise AuditKeyError(f"{file} cannot be written ({error.strerror})") from None
    with os.fdopen(handle, "wb") as opened:
        opened.write(key)
    return read_signer(file, name)
