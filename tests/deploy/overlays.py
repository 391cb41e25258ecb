"""The overlays as `kubectl kustomize` renders them, and the Dockerfiles as text, for the tests here."""

import re
import shlex
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
OVERLAYS = ["local", "gpu", "production"]
Objects = dict[tuple[str, str], Any]

each_overlay = pytest.mark.parametrize("overlay", OVERLAYS)
_planted: dict[str, Objects] = {}


def _kustomized(folder: Path) -> str:
    if not shutil.which("kubectl"):
        pytest.fail("kubectl 1.27 or later is needed to render deploy/: see https://kubernetes.io/docs/tasks/tools/")
    done = subprocess.run(["kubectl", "kustomize", folder], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


@cache
def _rendered(overlay: str) -> str:
    return _kustomized(ROOT / "deploy" / "overlays" / overlay)


@cache
def _parsed(overlay: str) -> Objects:
    return parse(_rendered(overlay))


def parse(manifests: str) -> Objects:
    """Objects by kind and name."""
    objects = list(yaml.safe_load_all(manifests))
    named = {(one["kind"], one["metadata"]["name"]): one for one in objects}
    assert len(named) == len(objects)
    return named


def with_components(
    folder: Path, overlay: str, *components: str, variables: Mapping[str, str] | None = None
) -> Objects:
    """An overlay with components, as an operator would write it beside the repository's own.

    Args:
        folder: folder that gets a copy of ``deploy``.
        overlay: overlay to build on.
        components: names of the components.
        variables: changed variables of the network; the component ``network`` needs some.
    """
    shutil.copytree(ROOT / "deploy", folder / "deploy", dirs_exist_ok=True)
    mine = folder / "deploy" / "overlays" / "mine"
    mine.mkdir(exist_ok=True)
    wanted: dict[str, Any] = {
        "kind": "Kustomization",
        "resources": [f"../{overlay}"],
        "components": [f"../../{c}" for c in components],
    }
    if variables is not None:
        defaults = yaml.safe_load((ROOT / "deploy" / "network" / "variables.yaml").read_text())
        assert variables.keys() <= defaults["data"].keys()
        mine.joinpath("network.yaml").write_text(yaml.safe_dump({**defaults, "data": defaults["data"] | variables}))
        wanted["resources"] = [*wanted["resources"], "network.yaml"]
    mine.joinpath("kustomization.yaml").write_text(yaml.safe_dump(wanted))
    return parse(_kustomized(mine))


def rendered(overlay: str) -> Objects:
    """The overlay's objects by kind and name."""
    return _planted.get(overlay) or _parsed(overlay)


@contextmanager
def planted(overlay: str) -> Iterator[Objects]:
    """The overlay's objects, for a test to spoil: until the block ends, every test sees the changes."""
    _planted[overlay] = parse(_rendered(overlay))
    try:
        yield _planted[overlay]
    finally:
        del _planted[overlay]


def ray_service(overlay: str) -> dict[str, Any]:
    return rendered(overlay)["RayService", "dp-icl"]["spec"]


def groups(overlay: str) -> dict[str, dict[str, Any]]:
    """The groups of Ray's pods by name."""
    cluster = ray_service(overlay)["rayClusterConfig"]
    return {"head": cluster["headGroupSpec"], **{g["groupName"]: g for g in cluster.get("workerGroupSpecs", [])}}


def pods(overlay: str) -> dict[str, dict[str, Any]]:
    """The templates of all pods: Ray's groups by name, and jobs."""
    jobs = {name: one["spec"]["template"] for (kind, name), one in rendered(overlay).items() if kind == "Job"}
    return {**{name: group["template"] for name, group in groups(overlay).items()}, **jobs}


def containers(template: dict[str, Any]) -> list[dict[str, Any]]:
    """A pod's containers, init containers first."""
    return [*template["spec"].get("initContainers", []), *template["spec"]["containers"]]


def service_pod(overlay: str) -> str:
    """The group whose pods answer questions."""
    (name,) = (name for name in groups(overlay) if component(pods(overlay)[name]) == "service")
    return name


def component(template: dict[str, Any]) -> str:
    labels = template["metadata"]["labels"]
    assert labels["app.kubernetes.io/part-of"] == "dp-icl"
    return str(labels["app.kubernetes.io/component"])


def settings(container: dict[str, Any]) -> dict[str, Any]:
    """A container's environment variables by name."""
    return {one["name"]: one for one in container.get("env", [])}


def serve_config(overlay: str) -> dict[str, Any]:
    return yaml.safe_load(ray_service(overlay)["serveConfigV2"])


def instructions(image: Path) -> list[tuple[str, str]]:
    """A Dockerfile's instructions as (keyword, rest), without comments and with continued lines joined."""
    lines = [line for line in image.read_text().splitlines() if line.strip() and not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", " ", "\n".join(lines))
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in joined.splitlines())]


def stages(image: Path) -> dict[str, list[tuple[str, str]]]:
    """A Dockerfile's instructions by stage; the last, which has no name, is ""."""
    found: dict[str, list[tuple[str, str]]] = {}
    for word, rest in instructions(image):
        if word == "FROM":
            found[rest.partition(" AS ")[2]] = current = []
        current.append((word, rest))
    return found


def environment(image: Path) -> dict[str, str]:
    """The environment variables that the image's last stage sets."""
    pairs = [pair for word, rest in stages(image)[""] if word == "ENV" for pair in shlex.split(rest)]
    return dict(pair.split("=", 1) for pair in pairs)
