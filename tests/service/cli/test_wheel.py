"""The wheel that `make wheel` builds has every file of the packages, and nothing else; test_extras.py installs it."""

import json
import re
import subprocess
import sys
import venv
import zipfile
from email.parser import Parser
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from tests.deploy.overlays import ROOT

STATIC = ROOT / "service" / "gateway" / "dashboard" / "static"
SHIPPED = ("accounting", "aggregation", "exemplar_store", "research", "sanitization", "service", "spelling")
INFO = re.compile(r"dp_icl-[^/]+\.dist-info/")


def build(folder: Path) -> Path:
    """Build the wheel as `make wheel` does."""
    (command,) = re.findall(r"^wheel:.*\n\t\$\(PYTHON\) (\S+) dist$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    made = [sys.executable, ROOT / command, folder]
    return Path(subprocess.run(made, check=True, stdout=subprocess.PIPE, text=True).stdout.strip())


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("wheel"))


def test_every_tracked_file_of_the_packages_is_in_it_and_nothing_else(wheel: Path) -> None:
    listed = subprocess.run(["git", "ls-files", "-z", *SHIPPED], cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout
    tracked = {name for name in listed.decode().split("\0") if name and not name.startswith("research/studies/")}
    with zipfile.ZipFile(wheel) as archive:
        packed = {name for name in archive.namelist() if not INFO.match(name)}
        same = {name for name in packed if archive.read(name) == (ROOT / name).read_bytes()}
    assert tracked - packed == set()
    assert packed - tracked == set()
    assert packed == same


def test_it_has_licences_and_a_bill_of_what_it_bundles(wheel: Path) -> None:
    with zipfile.ZipFile(wheel) as archive:
        info = {INFO.sub("", name): archive.read(name).decode() for name in archive.namelist() if INFO.match(name)}
    licences = Parser().parsestr(info["METADATA"]).get_all("License-File")
    assert {Path(name).name for name in licences} == {"LICENSE", *(file.name for file in STATIC.glob("*.LICENSE.txt"))}
    assert {f"licenses/{name}" for name in licences} <= info.keys()
    bill = info["sboms/dp-icl.cdx.json"]
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill) is None
    bundled = {(one["name"], one["version"]) for one in json.loads(bill)["components"]}
    rows = [[cell.strip() for cell in row.split("|")] for row in (STATIC / "README.md").read_text().splitlines()]
    others = [
        (re.search("npm package `([^`]+)`", row[2])[1], row[3]) for row in rows if row[3:] and row[3][:1].isdigit()
    ]
    assert bundled == set(others)
    assert len(others) == 2


def test_it_is_installed_whole_and_its_files_are_found(wheel: Path, tmp_path: Path) -> None:
    """Beside the packages that are here; with nothing but its own dependencies test_extras.py installs it."""
    venv.create(tmp_path / "venv", with_pip=True)
    python = tmp_path / "venv" / "bin" / "python"
    pip = [python, "-m", "pip", "install", "-q", "--disable-pip-version-check", "--no-deps", "--no-index", wheel]
    subprocess.run(pip, check=True)  # which checks every digest in RECORD against the file
    here = next(path for path in sys.path if path.endswith("site-packages"))
    program = f"""
import sys
sys.path.append({here!r})
import service
assert service.__file__.startswith({str(tmp_path)!r}), service.__file__
from pathlib import Path
from service.engines.embedding.words import local_words
from service.gateway.dashboard.templating import VERSION
from service.serving.serve_config import load_serve_config
from service.cli.serve import DEFAULT_CONFIG
from service.records.database import open_database
from service.records.schema import migrate
load_serve_config(DEFAULT_CONFIG)
assert local_words(50, Path({str(tmp_path)!r})).words
print(VERSION, migrate(open_database("sqlite:///{tmp_path}/new.sqlite"))[1])
"""
    done = subprocess.run([python, "-c", program], cwd=tmp_path, env={}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    command = subprocess.run([tmp_path / "venv" / "bin" / "dpicl", "--version"], check=False, capture_output=True,
                             env={"PYTHONPATH": here}, text=True)  # fmt: skip
    assert command.returncode == 0, command.stderr
