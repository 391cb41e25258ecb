#!/usr/bin/env python3
"""Known vulnerabilities of what the lock files pin, by the package index that pip is configured for.

    python .ci/audit_dependencies.py requirements.lock ...

An index that has no document of a version (not all have) still has one of the newest. So a package is vouched for if
there is a document of the version pinned, or if that is the newest; every other one is named, since nothing was found
out about it. pip-audit alone would pass over those in silence.

Exits with 1 for a vulnerability that ``acknowledged.toml`` does not acknowledge, for an acknowledgement that has run
out or fits nothing any more, if the index does not answer, and if there was nothing that it could vouch for.
"""

from __future__ import annotations

import argparse
import sys
import tomllib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import requests
from packaging.version import Version
from pip._internal.commands import create_command
from pip_audit._dependency_source import RequirementSource
from pip_audit._service import Dependency, VulnerabilityResult, VulnerabilityService

ACKNOWLEDGED = Path(__file__).parent / "acknowledged.toml"


class SilentIndexError(Exception):
    """The index did not answer as one does."""


class Index(VulnerabilityService):
    """What an index knows of vulnerabilities.

    Args:
        url: where its JSON documents are, such as ``https://index.example/pypi``.
    """

    def __init__(self, url: str):
        self._url = url
        self._session = requests.Session()

    def query(self, spec: Dependency) -> tuple[Dependency, list[VulnerabilityResult] | None]:
        """The vulnerabilities of a pinned version; None if the index cannot tell.

        Raises:
            SilentIndexError: it does not answer.
        """
        version = Version(spec.version.public)  # of a build such as 2.13.0+cpu
        document = self._document(spec.canonical_name)
        if document is not None and Version(document["info"]["version"]) != version:
            document = self._document(f"{spec.canonical_name}/{version}")
        return spec, None if document is None else [*{known.id: known for known in _known(document)}.values()]

    def _document(self, name: str) -> dict[str, Any] | None:
        try:
            response = self._session.get(f"{self._url}/{name}/json", timeout=60)
            if response.status_code == 404:
                return None
            response.raise_for_status()
            document: dict[str, Any] = response.json()
        except requests.RequestException as error:
            raise SilentIndexError(f"the index did not answer for {name}: {type(error).__name__}") from error
        if "vulnerabilities" not in document:
            raise SilentIndexError(f"the index says nothing of vulnerabilities, of {name} at least")
        return document


def _known(document: dict[str, Any]) -> Iterator[VulnerabilityResult]:
    for found in document["vulnerabilities"]:
        if not found.get("withdrawn"):
            fixes = sorted(Version(version) for version in found["fixed_in"])
            about = found.get("summary") or found.get("details") or ""
            yield VulnerabilityResult.create([found["id"], *found["aliases"]], about, fixes, None)


@dataclass
class Report:
    """What was found out.

    Attributes:
        vouched: how many packages the index could tell about.
        unknown: those it could not, as ``name==version``.
        wrong: what must be mended, in words.
        accepted: what was acknowledged, in words.
    """

    vouched: int = 0
    unknown: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)


def audit(locks: Sequence[Path], index: Index, acknowledged: Iterable[dict[str, Any]], today: date) -> Report:
    """Ask the index for every version pinned.

    Args:
        locks: requirements with hashes.
        index: what is asked.
        acknowledged: entries with ``package``, ``id``, ``reason`` and ``until``.
        today: decides what has run out.

    Raises:
        SilentIndexError: see :class:`Index`.
    """
    report = Report()
    entries = {(entry["package"], entry["id"]): entry for entry in acknowledged}
    unused = set(entries)
    pinned = {(spec.canonical_name, spec.version): spec for lock in locks for spec in _pinned(lock)}
    for (name, version), spec in sorted(pinned.items()):
        known = index.query(spec)[1]
        if known is None:
            report.unknown.append(f"{name}=={version}")
            continue
        report.vouched += 1
        for vulnerability in known:
            says = f"{name}=={version}: {vulnerability.id}, {_remedy(vulnerability)}"
            fitting = {(name, one) for one in (vulnerability.id, *vulnerability.aliases)} & set(entries)
            unused -= fitting
            if any(entries[one]["until"] >= today for one in fitting):
                report.accepted.append(f"{says}: {'; '.join(entries[one]['reason'] for one in fitting)}")
            else:
                report.wrong.append(says + (" (its acknowledgement has run out)" if fitting else ""))
    report.wrong += [
        f"{name}: {one} is acknowledged, and not there any more: remove it" for name, one in sorted(unused)
    ]
    if not report.vouched:
        report.wrong.append("the index could vouch for nothing: this was no audit")
    return report


def _pinned(lock: Path) -> Iterator[Dependency]:
    yield from RequirementSource([lock], require_hashes=True, disable_pip=True, no_deps=True).collect()


def _remedy(vulnerability: VulnerabilityResult) -> str:
    fixes = ", ".join(map(str, vulnerability.fix_versions))
    return f"mended in {fixes}" if fixes else "mended in no version"


def configured_index() -> str:
    """Where pip's index has its JSON documents."""
    options, _ = create_command("download").parse_args([])
    return f"{options.index_url.rstrip('/').removesuffix('/simple')}/pypi"


def main() -> int:
    """Audit the lock files named on the command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("locks", nargs="+", type=Path)
    parser.add_argument("--acknowledged", type=Path, default=ACKNOWLEDGED)
    given = parser.parse_args()
    acknowledged = tomllib.loads(given.acknowledged.read_text()).get("acknowledged", [])
    try:
        report = audit(given.locks, Index(configured_index()), acknowledged, date.today())
    except SilentIndexError as error:
        print(error, file=sys.stderr)
        return 1
    for line in report.accepted:
        print(f"acknowledged: {line}")
    if report.unknown:
        print(f"NOT AUDITED, {len(report.unknown)} packages of which the index knows a newer version alone:")
        print("  " + " ".join(report.unknown))
    for line in report.wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    print(f"{report.vouched} audited, {len(report.unknown)} not, {len(report.accepted)} acknowledged")
    return 1 if report.wrong else 0


if __name__ == "__main__":
    sys.exit(main())
