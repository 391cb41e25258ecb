"""Events of exemplars, whose number and units are private."""

# ruff: noqa: D102 - Particulars documents these methods
from __future__ import annotations

from collections.abc import Iterable

from accounting.ledger.events.particulars import Names, Particulars
from accounting.ledger.events.replayed import Replayed


class ExemplarsIngested(Particulars, kind="exemplars.ingested", words="Exemplars uploaded"):
    """Exemplars will be added, or none where that fails; how many is private. It is witnessed before they are stored.

    Attributes:
        upload: a random name, by which it is found to have ended.
    """

    knowledge_base: str
    upload: str
    by: str = ""

    says = "{by} uploaded exemplars to {knowledge_base}."
    lost = "exemplars of {knowledge_base} were uploaded: upload them again"

    def replay(self, past: Replayed) -> Iterable[str]:
        yield from past.exists(self.knowledge_base)
        past.uploads.add(self.upload)
        past.uploaded.add(self.knowledge_base)
        yield from past.came_late(self.knowledge_base)


class UploadEnded(Particulars, kind="upload.ended", words="Upload ended"):
    """An upload stores nothing more: written with its exemplars, or once it has failed, which is private."""

    knowledge_base: str
    upload: str
    by: str

    says = "{by}’s upload to {knowledge_base} ended."

    def replay(self, past: Replayed) -> Iterable[str]:
        if self.upload not in past.uploads:
            yield f"upload {self.upload} was never announced"


class UnitForgotten(Particulars, kind="unit.forgotten", words="Unit forgotten"):
    """A privacy unit was deleted; which one is private."""

    knowledge_base: str
    by: str = ""

    says = "{by} deleted a unit of {knowledge_base}."
    lost = "a unit of {knowledge_base} was forgotten and is back: forget it again, before answering"
    binds = False

    def replay(self, past: Replayed) -> Iterable[str]:
        yield from past.exists(self.knowledge_base)


class RemoteEngineChanged(Particulars, kind="remote_engine.changed", words="Engine outside allowed or forbidden"):
    """Exemplars may be shown to an engine outside the deployment, or no longer."""

    knowledge_base: str
    allowed: bool
    by: str = ""

    lost = "the rule on remote engines of {knowledge_base} was changed: will be changed again"
    binds = False

    def sentence(self, named: Names) -> str:
        did = "allowed" if self.allowed else "forbade"
        return f"{named(self.by)} {did} engines outside the deployment for {self.knowledge_base}."

    def replay(self, past: Replayed) -> Iterable[str]:
        yield from past.exists(self.knowledge_base)
