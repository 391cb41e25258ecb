#!/usr/bin/env python3
"""Known vulnerabilities of what the lock files pin, by the package index that pip is configured for.

    python .ci/audit_dependencies.py requirements.lock ...

An index that has no document of a version (not all have) still has one of the newest. So a package is vouched for if
there is a document of the version pinned, or if that is the newest; every other one is named, since nothing was found
out about it. pip-audit has no such second look: of such an index it says that no vulnerability is known.

Exits with 1 for a vulnerability that ``acknowledged.toml`` does not acknowledge, for an acknowledgement that has run
out or fits nothing any more, if the index does not answer, and if there was nothing that it could vouch for.
The documents are those of the JSON API of the Python Package Index, with its "known vulnerabilities".
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path
from typing import Any

import httpx
from packaging.version import Version

ACKNOWLEDGED = Path(__file__).parent / "acknowledged.toml"
_PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


class SilentIndexError(Exception):
    """The index did not answer as one does."""


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


def audit(locks: Sequence[Path], index: str, acknowledged: Iterable[dict[str, Any]], today: date) -> Report:
    """Ask the index for every version pinned.

    Args:
        locks: requirements with hashes.
        index: where its JSON documents are, such as ``https://index.example/pypi``.
        acknowledged: entries with ``package``, ``id``, ``reason`` and ``until``.
        today: decides what has run out.

    Raises:
        SilentIndexError: it does not answer.
    """
    report = Report()
    unused = entries = {(entry["package"], entry["id"]): entry for entry in acknowledged}
    with httpx.Client(base_url=index, timeout=60, follow_redirects=True) as client:
        for name, version in sorted({pinned for lock in locks for pinned in _PINNED.findall(lock.read_text())}):
            vulnerabilities = _known(client, name, Version(Version(version).public))  # of a build such as 2.13.0+cpu
            if vulnerabilities is None:
                report.unknown.append(f"{name}=={version}")
                continue
            report.vouched += 1
            for ids, fixes in vulnerabilities.items():
                says = f"{name}=={version}: {' '.join(sorted(ids))}, mended in {', '.join(fixes) or 'no version'}"
                fitting = [entries[name, id] for id in ids if (name, id) in entries]
                unused = {key: entry for key, entry in unused.items() if entry not in fitting}
                if any(entry["until"] >= today for entry in fitting):
                    report.accepted.append(f"{says}: {'; '.join(entry['reason'] for entry in fitting)}")
                else:
                    report.wrong.append(says + (" (its acknowledgement has run out)" if fitting else ""))
    report.wrong += [f"{name}: {id} is acknowledged, and not there any more: remove it" for name, id in sorted(unused)]
    if not report.vouched:
        report.wrong.append("the index could vouch for nothing: this was no audit")
    return report


def _known(client: httpx.Client, name: str, version: Version) -> dict[frozenset[str], list[str]] | None:
    """Fixed versions of each vulnerability, by all its ids; None if the index cannot tell."""
    document = _document(client, name)
    if document is not None and Version(document["info"]["version"]) != version:
        document = _document(client, f"{name}/{version}")
    if document is None:
        return None
    standing = [entry for entry in document["vulnerabilities"] if not entry.get("withdrawn")]
    return {frozenset([entry["id"], *entry["aliases"]]): sorted(entry["fixed_in"], key=Version) for entry in standing}


def _document(client: httpx.Client, name: str) -> dict[str, Any] | None:
    try:
        response = client.get(f"{name}/json")
        if response.status_code == 404:
            return None
        document: dict[str, Any] = response.raise_for_status().json()
    except (httpx.HTTPError, ValueError) as error:
        raise SilentIndexError(f"the index did not answer for {name}: {type(error).__name__}") from error
    if "vulnerabilities" not in document:
        raise SilentIndexError(f"the index says nothing of vulnerabilities, of {name} at least")
    return document


def configured_index() -> str:
    """Where pip's index has its JSON documents.

    Raises:
        SilentIndexError: pip does not say which index it uses.
    """
    url = os.environ.get("PIP_INDEX_URL") or _pip("config", "get", "global.index-url")
    if not url:  # pip's help names the index that it uses where none is configured
        named = re.search(r"Package Index \(default\s+([^\s)]+)\)", _pip("download", "--help"))
        if named is None:
            raise SilentIndexError("pip does not say which index it uses: set PIP_INDEX_URL")
        url = named[1]
    return f"{url.rstrip('/').removesuffix('/simple')}/pypi"


def _pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603


def main() -> int:
    """Audit the lock files named on the command line."""
    acknowledged = tomllib.loads(ACKNOWLEDGED.read_text()).get("acknowledged", [])
    try:
        report = audit([Path(name) for name in sys.argv[1:]], configured_index(), acknowledged, date.today())
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
