"""A bundle: the public book and all that goes with it, immutable, named by its content, and signed.

A folder of ``manifest.json``, safetensors files whose SHA-256 the manifest holds, and ``signature.json``: Ed25519 over
the manifest's bytes. A bundle's name is the SHA-256 of its manifest. Nothing is ever unpickled.

A client's ε does not rest on any of this: randomised response hides the profile whatever the book holds. Signatures
keep answers from being steered by another party's book.
"""

import hashlib
import os
import re
import shutil
import string
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal

import numpy as np
import safetensors.numpy
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import load_pem_private_key
from pydantic import AfterValidator, BaseModel, ConfigDict, Field, ValidationError
from safetensors import SafetensorError

from sanitization.restore.profiles import Book
from sanitization.restore.span_types import Meaning, SpanTypes
from sanitization.restore.spans import normal_form
from sanitization.restore.weights import Weighing

MANIFEST, SIGNATURE = "manifest.json", "signature.json"
BOOK, STEERING = "book.safetensors", "steering.safetensors"
_AFFINITY = "affinity"
_NAME = r"[a-z0-9][a-z0-9-]{0,62}"
_ADDRESS = re.compile(rf"({_NAME})@([1-9][0-9]{{0,8}})")
LONGEST_TEXT = 16_384


class BundleError(ValueError):
    """Not a bundle, or not the bundle that its name or signature promises."""


def check_prompt(prompt: str) -> str:
    """Return a template that every engine fills alike: ``{text}`` is its one field, and an answer follows a space.

    Raises:
        ValueError: it is not one.
    """
    try:
        fields = [field for _, field, _, _ in string.Formatter().parse(prompt) if field is not None]
    except ValueError as error:
        raise ValueError(f"the prompt is not a template: {error}") from None
    if fields != ["text"] or "{text}" not in prompt or prompt != prompt.rstrip():
        raise ValueError("the prompt must have {text} once, no other field, and no space at its end")
    return prompt


Prompt = Annotated[str, AfterValidator(check_prompt)]
"""A template with ``{text}``, ending where the answer begins."""


class BundlePart(BaseModel):
    """Part of a bundle's manifest: unknown fields are refused."""

    model_config = ConfigDict(extra="forbid", frozen=True)


class BundleModel(BundlePart):
    """The language model that the vectors were trained for."""

    name: str
    sha256: str = Field(description="SHA-256 of the names and contents of its configuration, tokenizer and weights.")


class Steering(BundlePart):
    """The attention heads that the vectors are added to, and the strength."""

    scale: float = Field(gt=0, allow_inf_nan=False)
    heads: list[tuple[int, int]] = Field(min_length=1, description="Layer and head, in the order of the vectors.")
    head_size: int = Field(ge=1)


class Declared(BundlePart):
    """The data that the bundle was made from, and who declares it: it goes to every client, and nothing protects it."""

    data: Literal["public", "consented"]
    by: str = Field(min_length=1)
    sha256: str


class Manifest(BundlePart):
    """All of a bundle but its numbers. Everything in it is public."""

    format: Literal[1] = 1
    name: str = Field(pattern=rf"^{_NAME}$")
    version: int = Field(ge=1)
    prompt: Prompt = Field(description="A template with `{text}`, ending where the answer begins.")
    text_prompt: Prompt | None = Field(default=None, description="The template for free text; without it `prompt`.")
    options: list[str] = Field(min_length=2)
    placeholder: str = Field(min_length=1)
    longest_text: int = Field(ge=1, le=LONGEST_TEXT)
    weights: Weighing
    types: dict[str, list[str]] = Field(description="Phrases of each type of span.")
    meaning: Meaning | None = Field(default=None, description="How other spans get a type; without it they have none.")
    medoids: list[list[str]] = Field(min_length=2)
    model: BundleModel
    steering: Steering
    declared: Declared
    report: dict[str, Any]
    files: dict[str, str] = Field(description="SHA-256 of each file.")


class Signature(BundlePart):
    """The publisher's public key and its signature over the manifest; 32 and 64 bytes in hexadecimal."""

    publisher: str
    signature: str

    def check(self, manifest: bytes) -> None:
        """Return if it is genuine.

        Raises:
            BundleError: it is not.
        """
        try:
            key = Ed25519PublicKey.from_public_bytes(bytes.fromhex(self.publisher))
            key.verify(bytes.fromhex(self.signature), manifest)
        except (InvalidSignature, ValueError) as error:
            raise BundleError("the bundle's signature is not its publisher's") from error


@dataclass(frozen=True)
class Bundle:
    """A bundle, checked: its signature is genuine, and its book is the one the manifest names.

    Args:
        manifest_bytes: bytes of the manifest, exactly as signed.
        book_bytes: bytes of ``book.safetensors``.
        signature: signature over the manifest.

    Raises:
        BundleError: the parts do not fit together.
    """

    manifest_bytes: bytes
    book_bytes: bytes
    signature: Signature

    def __post_init__(self) -> None:
        self.signature.check(self.manifest_bytes)
        _ = self.book, self.types

    @cached_property
    def sha256(self) -> str:
        """SHA-256 of the manifest, which names the bundle by its content."""
        return hashlib.sha256(self.manifest_bytes).hexdigest()

    @property
    def address(self) -> str:
        """The bundle's name for people, ``name@version``."""
        return f"{self.manifest.name}@{self.manifest.version}"

    @cached_property
    def manifest(self) -> Manifest:
        """The signed manifest."""
        try:
            return Manifest.model_validate_json(self.manifest_bytes)
        except ValidationError as error:
            raise BundleError(f"{MANIFEST} is not one of this version: {error.errors()[0]['msg']}") from error

    @cached_property
    def book(self) -> Book:
        """The book in which a client finds its profile."""
        tensors = self.tensors(BOOK, self.book_bytes)
        medoids = tuple(tuple(spans) for spans in self.manifest.medoids)
        try:
            return Book(tuple(self.manifest.types), tensors[_AFFINITY], medoids)
        except (KeyError, ValueError) as error:
            raise BundleError(f"{BOOK} does not fit the manifest: {error}") from error

    @cached_property
    def types(self) -> Mapping[str, str]:
        """The type of each phrase, phrases in normal form."""
        types = {normal_form(phrase): name for name, phrases in self.manifest.types.items() for phrase in phrases}
        if len(types) != sum(map(len, self.manifest.types.values())):
            raise BundleError("a phrase belongs to two types")
        return types

    @cached_property
    def span_types(self) -> SpanTypes:
        """What a span's type is found by."""
        return SpanTypes(self.types, self.manifest.meaning)

    def tensors(self, name: str, content: bytes) -> dict[str, np.ndarray]:
        """The arrays in one of its files.

        Raises:
            BundleError: it is not the one that was signed.
        """
        if hashlib.sha256(content).hexdigest() != self.manifest.files.get(name):
            raise BundleError(f"{name} is not the one that was signed")
        try:
            return safetensors.numpy.load(content)
        except SafetensorError as error:
            raise BundleError(f"{name} is not a safetensors file: {error}") from error


def publish(
    root: Path, manifest: Mapping[str, Any], book: Book, steering: Mapping[str, np.ndarray], key: Ed25519PrivateKey
) -> Path:
    """Sign a bundle and store it as the next version of its name.

    Args:
        root: holds a folder ``name/version`` for each bundle.
        manifest: :class:`Manifest`'s fields without version, types' order, medoids and files.
        book: see :mod:`sanitization.restore.profiles`.
        steering: arrays of ``steering.safetensors``.
        key: the publisher's.

    Returns:
        The new folder.
    """
    files = {
        BOOK: safetensors.numpy.save({_AFFINITY: book.affinity}),
        STEERING: safetensors.numpy.save(dict(steering)),
    }
    parent = root / str(manifest["name"])
    parent.mkdir(parents=True, exist_ok=True)
    version = 1 + max((int(folder.name) for folder in parent.iterdir() if folder.name.isdecimal()), default=0)
    whole = Manifest.model_validate(
        {
            **manifest,
            "version": version,
            "types": {name: manifest["types"][name] for name in book.types},
            "medoids": [list(spans) for spans in book.medoids],
            "files": {name: hashlib.sha256(content).hexdigest() for name, content in files.items()},
        }
    )
    said = whole.model_dump_json(indent=1).encode()
    signature = Signature(publisher=key.public_key().public_bytes_raw().hex(), signature=key.sign(said).hex())
    Bundle(said, files[BOOK], signature)
    folder = Path(tempfile.mkdtemp(dir=parent, prefix=".new-"))
    try:
        for name, content in {**files, MANIFEST: said, SIGNATURE: signature.model_dump_json().encode()}.items():
            (folder / name).write_bytes(content)
        os.rename(folder, parent / str(version))  # refused if another process published this version first
    except OSError:
        shutil.rmtree(folder)
        raise
    return parent / str(version)


def load(folder: Path) -> Bundle:
    """Read a bundle from its folder, and check it.

    Raises:
        BundleError: the folder does not hold a bundle, or its bundle was changed.
    """
    try:
        signature = Signature.model_validate_json((folder / SIGNATURE).read_bytes())
        return Bundle((folder / MANIFEST).read_bytes(), (folder / BOOK).read_bytes(), signature)
    except (OSError, ValueError) as error:
        raise error if isinstance(error, BundleError) else BundleError(f"{folder}: no bundle ({error})") from error


def load_steering(folder: Path, bundle: Bundle) -> dict[str, np.ndarray]:
    """The vectors of a bundle.

    Raises:
        BundleError: they are not the ones that were signed.
    """
    return bundle.tensors(STEERING, (folder / STEERING).read_bytes())


def folder_of(root: Path, address: str) -> Path:
    """Folder of the bundle ``name@version``.

    Raises:
        BundleError: the address is not valid, or there is no such bundle.
    """
    match = _ADDRESS.fullmatch(address)
    if match is None or not (root / match[1] / match[2]).is_dir():
        raise BundleError(f"no bundle {address}")
    return root / match[1] / match[2]


def addresses(root: Path) -> list[str]:
    """All bundles in a folder, in order."""
    versions = [
        (folder.parent.name, int(folder.name))
        for folder in root.glob("*/*")
        if folder.name.isdecimal() and folder.is_dir()
    ]
    return [f"{name}@{version}" for name, version in sorted(versions)]


def signing_key(file: Path) -> Ed25519PrivateKey:
    """The publisher's private key, from a PEM file.

    Raises:
        BundleError: the file holds none.
    """
    try:
        key = load_pem_private_key(file.read_bytes(), password=None)
    except (OSError, TypeError, ValueError) as error:
        raise BundleError(f"{file} holds no private key: openssl genpkey -algorithm ed25519 -out {file}") from error
    if not isinstance(key, Ed25519PrivateKey):
        raise BundleError(f"{file} holds a key of another kind than Ed25519")
    return key
