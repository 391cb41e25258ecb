#!/usr/bin/env python3
"""The wheel, with a bill of what it bundles of others in its `.dist-info/sboms` (PEP 770, CycloneDX 1.6).

    python .ci/make_wheel.py FOLDER

It is built from a copy of the packages alone: what an earlier build left behind would get into it. Prints its path.
"""

from __future__ import annotations

import base64
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
FILES = ("pyproject.toml", "README.md", "LICENSE")
BUNDLED = (
    ("htmx.org", "2.0.11", "0BSD", "pkg:npm/htmx.org@2.0.11"),
    ("@fontsource-variable/inter", "5.3.0", "OFL-1.1", "pkg:npm/%40fontsource-variable/inter@5.3.0"),
)
"""Name, version, licence and package URL; service/gateway/dashboard/static/README.md has the same."""


def make_wheel(folder: Path) -> Path:
    """Build the wheel into a folder, and return its path.

    Raises:
        subprocess.CalledProcessError: pip cannot build it.
    """
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as temporary:
        source, built = Path(temporary, "source"), Path(temporary, "built")
        for pattern in project["tool"]["setuptools"]["packages"]["find"]["include"]:
            package = pattern.removesuffix("*")
            shutil.copytree(ROOT / package, source / package, ignore=shutil.ignore_patterns("__pycache__"))
        for file in FILES:
            shutil.copy(ROOT / file, source)
        pip = [sys.executable, "-m", "pip", "wheel", "-q", "--disable-pip-version-check", "--no-deps"]
        subprocess.run([*pip, source, "-w", built], check=True, stdout=sys.stderr)  # noqa: S603
        (wheel,) = built.glob("*.whl")
        return _with_bill(wheel, folder / wheel.name, project["project"])


def _with_bill(wheel: Path, file: Path, project: dict[str, str]) -> Path:
    name = f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    bill, record = f"{name}/sboms/{project['name']}.cdx.json", f"{name}/RECORD"
    content = json.dumps(_bill(project), indent=2).encode()
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    with zipfile.ZipFile(wheel) as made, zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as finished:
        for member in made.infolist():
            if member.filename != record:
                finished.writestr(member, made.read(member))
        finished.writestr(bill, content)
        recorded = made.read(record).decode()
        finished.writestr(made.getinfo(record), f"{bill},sha256={digest},{len(content)}\n{recorded}")
    return file


def _bill(project: dict[str, str]) -> dict[str, object]:
    itself = {"type": "library", "bom-ref": "dp-icl", "name": project["name"], "version": project["version"]}
    licence = [{"license": {"id": project["license"]}}]
    return {
        "$schema": "http://cyclonedx.org/schema/bom-1.6.schema.json",
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": {**itself, "licenses": licence}},
        "components": [
            {
                "type": "library",
                "bom-ref": url,
                "name": name,
                "version": version,
                "licenses": [{"license": {"id": of}}],
                "purl": url,
            }
            for name, version, of, url in BUNDLED
        ],
        "dependencies": [{"ref": "dp-icl", "dependsOn": [url for *_, url in BUNDLED]}],
    }


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    print(make_wheel(Path(sys.argv[1])))
