#!/usr/bin/env python3
"""Known vulnerabilities of what the lock files pin, by the package index that pip is configured for.

    python .ci/audit_dependencies.py requirements.lock ...

Not pip-audit: it asks the public index alone, whichever pip uses, and a version of which that has no document it skips
and still exits with 0; of a mirror that serves documents of the newest versions only, it audits nothing and reports
that no vulnerability is known. Here a package is vouched for if there is a document of the pinned version, or if that
is the newest; every other package is named.

Exits with 1 for a vulnerability that is not acknowledged below, for an acknowledgement that no longer fits anything, if
the index does not answer, and if there was nothing that it could vouch for.
"""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
from packaging.version import Version

ACKNOWLEDGED: dict[tuple[str, str], str] = {}
"""Reasons why a vulnerability cannot be reached from here, by package and id."""
_PINNED = re.compile(r"^([\w.-]+)==(\S+)", re.MULTILINE)


def audit(locks: list[Path], index: str) -> bool:
    """Ask the index for every pinned version, print what it knows, and return whether all is well.

    Args:
        locks: requirements with hashes.
        index: URL of its JSON documents, such as ``https://index.example/pypi``.

    Raises:
        httpx.HTTPError: the index does not answer.
        KeyError: it has no list of vulnerabilities, of one package at least.
    """
    vouched, unknown, wrong, unused = 0, [], [], set(ACKNOWLEDGED)
    with httpx.Client(base_url=index, timeout=60, follow_redirects=True) as client:
        for name, version in sorted({pinned for lock in locks for pinned in _PINNED.findall(lock.read_text())}):
            vulnerabilities = _known(client, name, Version(Version(version).public))  # of a build such as 2.13.0+cpu
            if vulnerabilities is None:
                unknown.append(f"{name}=={version}")
                continue
            vouched += 1
            for ids, fixes in vulnerabilities.items():
                line = f"{name}=={version}: {' '.join(sorted(ids))}, fixed in {', '.join(fixes) or 'no version'}"
                fitting = {(name, id) for id in ids} & ACKNOWLEDGED.keys()
                unused -= fitting
                if fitting:
                    print(f"acknowledged: {line}: {'; '.join(ACKNOWLEDGED[one] for one in sorted(fitting))}")
                else:
                    wrong.append(line)
    wrong += [f"{name}: {id} is acknowledged, and no longer there: remove it" for name, id in sorted(unused)]
    if not vouched:
        wrong.append("the index could vouch for nothing: this was no audit")
    if unknown:
        print(f"NOT AUDITED, {len(unknown)} packages of which the index knows a newer version alone:", *unknown)
    for line in wrong:
        print(f"WRONG: {line}", file=sys.stderr)
    print(f"{vouched} audited, {len(unknown)} not")
    return not wrong


def _known(client: httpx.Client, name: str, version: Version) -> dict[frozenset[str], list[str]] | None:
    """Fixed versions of each vulnerability, by all its ids; None if the index does not know."""
    document = _document(client, name)
    if document is not None and Version(document["info"]["version"]) != version:
        document = _document(client, f"{name}/{version}")
    if document is None:
        return None
    standing = [entry for entry in document["vulnerabilities"] if not entry.get("withdrawn")]
    return {frozenset([entry["id"], *entry["aliases"]]): sorted(entry["fixed_in"], key=Version) for entry in standing}


def _document(client: httpx.Client, name: str) -> dict[str, Any] | None:
    response = client.get(f"{name}/json")
    if response.status_code == 404:
        return None
    document: dict[str, Any] = response.raise_for_status().json()
    return document


def configured_index() -> str:
    """URL of the JSON documents of pip's index."""
    url = os.environ.get("PIP_INDEX_URL") or _pip("config", "get", "global.index-url")
    if not url:  # pip's help names the index that it uses where none is configured
        named = re.search(r"Package Index \(default\s+([^\s)]+)\)", _pip("download", "--help"))
        if named is None:
            raise SystemExit("pip does not name the index that it uses: set PIP_INDEX_URL")
        url = named[1]
    return f"{url.rstrip('/').removesuffix('/simple')}/pypi"


def _pip(*words: str) -> str:
    command = [sys.executable, "-m", "pip", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout.strip()  # noqa: S603


if __name__ == "__main__":
    try:
        sys.exit(not audit([Path(name) for name in sys.argv[1:]], configured_index()))
    except (httpx.HTTPError, KeyError) as error:  # whose words may hold the index's password
        sys.exit(f"the index did not answer as one does: {type(error).__name__}")
