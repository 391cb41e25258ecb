"""Redacted texts in, answers out; and the bundles that clients redact with."""

from __future__ import annotations

import base64

from pydantic import BaseModel, Field

from sanitization.restore.bundle import Bundle
from service.answering.restoring import Mode, RedactedText, Restoring
from service.operations.command import command
from service.operations.roles import Actor, Right

CONTROLS = {
    "full": "The whole text",
    "restored": "Redacted; its own vector, no noise",
    "own_profile": "Redacted; its own profile, no noise",
    "own_profile_as_text": "Redacted; its own profile's spans as text, no noise",
    "redacted": "Redacted",
    "constant": "Redacted; one vector tuned for everybody",
    "another": "Redacted; another person's vector",
    "redacted_attacker": "An attacker who sees redacted texts only",
    "option_prior": "The commonest answer, always",
}
"""What a bundle's report measures beside mechanisms, in words."""


class RestoredAnswer(BaseModel):
    """An answer to a redacted text."""

    answer: str
    bundle: str
    mode: Mode


class BundleView(BaseModel):
    """All that a client needs to redact, and to check whose bundle it is."""

    bundle: str = Field(examples=["clinic@1"])
    sha256: str = Field(description="Of `manifest`.")
    manifest: str = Field(description="JSON, exactly as it was signed.")
    book: str = Field(description="A safetensors file in base64; the manifest has its SHA-256.")
    publisher: str = Field(description="An Ed25519 public key, in hexadecimal.")
    signature: str = Field(description="Over `manifest`, in hexadecimal.")

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
    """Answer as if the spans that were taken out had been what the profile says."""
    said = await restoring.answer(wanted, actor.id)
    return RestoredAnswer(answer=said, bundle=wanted.bundle, mode=wanted.mode)


@command(Right.SEE)
def list_bundles(_actor: Actor, restoring: Restoring) -> Bundles:
    """All bundles that are served, by name and version."""
    return Bundles(items=restoring.addresses())


@command(Right.SEE)
def bundle(_actor: Actor, restoring: Restoring, address: str) -> Bundle:
    """A bundle as it was signed.

    Raises:
        service.answering.restoring.UnknownBundleError: there is none.
    """
    return restoring.bundle(address)
