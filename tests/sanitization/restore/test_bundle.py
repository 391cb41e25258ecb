"""Bundles: only what was signed is read."""

import hashlib
import json
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.rsa import generate_private_key
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat
from pydantic import ValidationError

from sanitization.restore import bundle
from sanitization.restore.bundle import BOOK, MANIFEST, SIGNATURE, STEERING, BundleError
from tests.sanitization.restore.made_up import KEY, made, published, vectors
from tests.sanitization.restore.made_up import MANIFEST as FIELDS


def test_there_and_back(tmp_path: Path) -> None:
    one = published(tmp_path)
    assert one.address == "clinic@1"
    assert one.signature.publisher == KEY.public_key().public_bytes_raw().hex()
    np.testing.assert_array_equal(one.book.affinity, made().book.affinity)
    assert one.book.medoids == made().book.medoids
    assert one.types["strong fever"] == "fever"
    folder = bundle.folder_of(tmp_path, "clinic@1")
    np.testing.assert_allclose(
        bundle.load_steering(folder, one)["table"], made().mixture @ vectors(), rtol=1e-6, atol=1e-6
    )


def test_versions_are_never_replaced(tmp_path: Path) -> None:
    first, second = published(tmp_path), published(tmp_path, report={"restored": 0.9})
    assert bundle.addresses(tmp_path) == ["clinic@1", "clinic@2"]
    assert first.sha256 != second.sha256
    assert bundle.load(bundle.folder_of(tmp_path, "clinic@1")).sha256 == first.sha256


@pytest.mark.parametrize("name", [MANIFEST, BOOK, SIGNATURE, STEERING])
def test_every_flipped_byte_is_refused(name: str, tmp_path: Path) -> None:
    published(tmp_path)
    folder = bundle.folder_of(tmp_path, "clinic@1")
    content = (folder / name).read_bytes()
    for at in range(0, len(content), max(1, len(content) // 60)):
        (folder / name).write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])
        with pytest.raises(BundleError):
            bundle.load_steering(folder, bundle.load(folder))


def change(file: Path, **values: Any) -> None:
    file.write_text(json.dumps({**json.loads(file.read_bytes()), **values}))


def test_another_publishers_signature_is_refused(tmp_path: Path) -> None:
    published(tmp_path)
    folder = bundle.folder_of(tmp_path, "clinic@1")
    change(folder / SIGNATURE, publisher=Ed25519PrivateKey.generate().public_key().public_bytes_raw().hex())
    with pytest.raises(BundleError, match="publisher"):
        bundle.load(folder)


class Bomb:
    """Unpickling it makes a file."""

    def __init__(self, target: Path):
        self.target = target

    def __reduce__(self) -> tuple[object, ...]:
        return Path.touch, (self.target,)


@pytest.mark.parametrize("name", [MANIFEST, BOOK, SIGNATURE])
def test_a_pickle_is_refused_and_not_read(name: str, tmp_path: Path) -> None:
    """This holds even for a pickle whose hash was signed."""
    published(tmp_path)
    folder = bundle.folder_of(tmp_path, "clinic@1")
    bomb = pickle.dumps(Bomb(tmp_path / "exploded"))
    (folder / name).write_bytes(bomb)
    if name == BOOK:
        change(folder / MANIFEST, files={BOOK: hashlib.sha256(bomb).hexdigest()})
        change(folder / SIGNATURE, signature=KEY.sign((folder / MANIFEST).read_bytes()).hex())
    with pytest.raises(BundleError):
        bundle.load(folder)
    assert not (tmp_path / "exploded").exists()


@pytest.mark.parametrize("address", ["clinic", "clinic@2", "clinic@0", "../clinic@1", "clinic@1/..", "clinic@01", ""])
def test_no_such_bundle(address: str, tmp_path: Path) -> None:
    published(tmp_path)
    with pytest.raises(BundleError):
        bundle.folder_of(tmp_path, address)


def test_a_manifest_has_no_other_fields_and_each_phrase_once(tmp_path: Path) -> None:
    with pytest.raises(ValidationError, match="epsilon"):
        published(tmp_path, epsilon=4)
    with pytest.raises(BundleError, match="two types"):
        published(tmp_path, types={**FIELDS["types"], "rash": ["rash", "Strong  FEVER"]})
    assert bundle.addresses(tmp_path) == []


def test_signing_keys(tmp_path: Path) -> None:
    file = tmp_path / "key.pem"
    form = Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()
    file.write_bytes(KEY.private_bytes(*form))
    assert bundle.signing_key(file).public_key() == KEY.public_key()
    file.write_bytes(generate_private_key(65537, 2048).private_bytes(*form))
    with pytest.raises(BundleError, match="Ed25519"):
        bundle.signing_key(file)
    with pytest.raises(BundleError, match="openssl"):
        bundle.signing_key(tmp_path / "none")
