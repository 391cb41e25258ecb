"""Redacted texts in, answers out; and the bundles that clients redact with."""

from __future__ import annotations

import asyncio
import base64
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Path
from pydantic import BaseModel, ConfigDict, Field

from sanitization.restore.bundle import LONGEST_TEXT, Bundle
from service.api.dependencies import AnalystKey, AnyKey, TheServices
from service.api.problems import Problem
from service.pipeline.restoring import Redacted, UnknownBundleError
from service.problem_kinds import ProblemKind

router = APIRouter(prefix="/v1/restore", tags=["restoring"])

_EXAMPLE: dict[str, Any] = {
    "bundle": "clinic@1",
    "bundle_sha256": "0" * 64,
    "query": "Known: smoker. Reports: ___.",
    "profile": 3,
    "mode": "text",
}


class RedactedText(BaseModel):
    """A redacted text, and the profile that its owner's randomised response drew. Nothing else may leave."""

    model_config = ConfigDict(extra="forbid", strict=True, json_schema_extra={"examples": [_EXAMPLE]})

    bundle: str = Field(max_length=80)
    bundle_sha256: str = Field(pattern="^[0-9a-f]{64}$", description="Of the bundle the text was redacted with.")
    query: str = Field(max_length=LONGEST_TEXT)
    profile: int = Field(ge=0, lt=1 << 31)
    mode: Literal["text", "steer"] = "text"


class RestoredAnswer(BaseModel):
    """An answer to a redacted text."""

    answer: str
    bundle: str
    mode: Literal["text", "steer"]


class BundleView(BaseModel):
    """All that a client needs to redact, and to check whose bundle it is."""

    bundle: str = Field(examples=["clinic@1"])
    sha256: str = Field(description="Of `manifest`.")
    manifest: str = Field(description="JSON, exactly as it was signed.")
    book: str = Field(description="A safetensors file in base64; the manifest has its SHA-256.")
    publisher: str = Field(description="An Ed25519 public key, in hexadecimal.")
    signature: str = Field(description="Over `manifest`, in hexadecimal.")

    @classmethod
    def of(cls, found: Bundle) -> BundleView:
        """A bundle as JSON shows it."""
        return cls(
            bundle=found.address,
            sha256=found.sha256,
            manifest=found.manifest_bytes.decode(),
            book=base64.b64encode(found.book_bytes).decode(),
            publisher=found.signature.publisher,
            signature=found.signature.signature,
        )


class Bundles(BaseModel):
    """The bundles that are served, by name and version."""

    items: list[str]


@router.post(
    "/answers",
    summary="Answer a redacted text",
    responses={
        403: {"description": "Not an analyst's key."},
        409: {"description": "The bundle is another one here than where the text was redacted."},
        422: {"description": "No such bundle or profile, a text that is too long, or a mode that is not served."},
        429: {"description": "Busy: come back after Retry-After seconds."},
        503: {"description": "The engine does not answer."},
    },
)
async def answer(body: RedactedText, services: TheServices, key: AnalystKey) -> RestoredAnswer:
    """Answer as if the spans that were taken out had been what the profile says.

    Redact and draw with the Python client or `dpicl restore ask`, where the text is: this service never sees the spans.
    """
    said = await services.restoring.answer(Redacted(**body.model_dump()), key.id)
    return RestoredAnswer(answer=said, bundle=body.bundle, mode=body.mode)


@router.get("/bundles", summary="List bundles")
async def list_bundles(services: TheServices, _key: AnyKey) -> Bundles:
    """All bundles that are served, by name and version."""
    return Bundles(items=await asyncio.to_thread(services.restoring.addresses))


@router.get("/bundles/{bundle}", summary="Get a bundle", responses={404: {"description": "There is no such bundle."}})
async def get_bundle(
    bundle: Annotated[str, Path(examples=["clinic@1"], max_length=80)], services: TheServices, _key: AnyKey
) -> BundleView:
    """The bundle as it was signed. Its vectors stay here: clients need none."""
    try:
        return BundleView.of(await asyncio.to_thread(services.restoring.bundle, bundle))
    except UnknownBundleError as error:
        raise Problem(ProblemKind.UNKNOWN_BUNDLE, str(error), status=404) from error
