"""Answers to redacted texts; and the bundles with which clients redact."""

from __future__ import annotations

import base64
from typing import Any

from pydantic import BaseModel, ConfigDict, Field

from sanitization.restore.bundle import LONGEST_TEXT, Bundle
from service.answering.restoring import Mode, RedactedQuery, Restoring
from service.operations.command import command
from service.operations.roles import Actor, Right

CONTROLS = {
    "full": "The whole text",
    "restored": "Redacted; its own vector, no noise",
    "own_profile": "Redacted; its own profile, no noise",
    "own_profile_as_text": "Redacted; its own profile's spans as text, no noise",
    "redacted": "Redacted",
    "constant": "Redacted; one vector tuned for all people",
    "another": "Redacted; another person's vector",
    "redacted_attacker": "An attacker who sees redacted texts only",
    "option_prior": "The commonest answer, always",
}
"""Names for people of the controls that a bundle's report measures beside mechanisms."""


_EXAMPLE: dict[str, Any] = {
    "bundle": "clinic@1",
    "bundle_sha256": "0" * 64,
    "query": "Known: smoker. Reports: ___.",
    "profile": 3,
    "mode": "text",
}


class RedactedText(BaseModel):
    """A redacted text, and the profile that its owner's randomised response drew: nothing else leaves the owner."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    bundle: str = Field(max_length=80)
    bundle_sha256: str = Field(pattern="^[0-9a-f]{64}$", description="SHA-256 of the bundle that it was redacted with.")
    query: str = Field(max_length=LONGEST_TEXT)
    profile: int = Field(ge=0, lt=1 << 31)
    mode: Mode = "text"
    free_text: bool = Field(default=False, description="Have an answer written, instead of one of the options.")


class RestoredAnswer(BaseModel):
    """An answer to a redacted text."""

    answer: str
    bundle: str
    mode: Mode


class BundleView(BaseModel):
    """All that a client needs to redact, and to check the publisher of the bundle."""

    bundle: str = Field(examples=["clinic@1"])
    sha256: str = Field(description="SHA-256 of `manifest`.")
    manifest: str = Field(description="JSON, exactly as it was signed.")
    book: str = Field(description="A safetensors file in base64; the manifest has its SHA-256.")
    publisher: str = Field(description="An Ed25519 public key, in hexadecimal.")
    signature: str = Field(description="Signature of `manifest`, in hexadecimal.")

    @classmethod
    def of(cls, bundle: Bundle) -> BundleView:
        """A bundle as JSON shows it."""
        return cls(
            bundle=bundle.address,
            sha256=bundle.sha256,
            manifest=bundle.manifest_bytes.decode(),
            book=base64.b64encode(bundle.book_bytes).decode(),
            publisher=bundle.signature.publisher,
            signature=bundle.signature.signature,
        )


class Bundles(BaseModel):
    """The bundles that are served, by name and version."""

    items: list[str]


@command(Right.ASK)
async def answer(actor: Actor, restoring: Restoring, wanted: RedactedText) -> RestoredAnswer:
    """Answer a redacted text as if the spans that were taken out had been those of the profile.

    Raises:
        service.operations.roles.OutOfScopeError: the actor may only ask some tasks.
    """
    actor.require_no_scope("sanitises and restores no other texts")
    said = await restoring.answer(RedactedQuery(**wanted.model_dump()), actor.id)
    return RestoredAnswer(answer=said, bundle=wanted.bundle, mode=wanted.mode)


@command(Right.SEE)
def list_bundles(actor: Actor, restoring: Restoring) -> Bundles:
    """The bundles that are served, by name and version; none for actors who may only ask some tasks."""
    return Bundles(items=[] if actor.scope else restoring.addresses())


@command(Right.SEE)
def bundle(actor: Actor, restoring: Restoring, address: str) -> Bundle:
    """A bundle as it was signed.

    Raises:
        service.operations.roles.OutOfScopeError: the actor may only ask some tasks.
        service.answering.restoring.UnknownBundleError: no bundle has this address.
    """
    actor.require_no_scope("restores no texts")
    return restoring.bundle(address)
