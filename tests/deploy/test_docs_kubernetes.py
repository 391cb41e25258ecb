"""docs/kubernetes.md: its ``bash`` blocks are executed; the others, for a cluster or Docker, are read and checked."""

import base64
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml

from service.engines.configs import SanitizeConfig
from service.operations.services import check_sanitizers
from service.settings import Settings
from tests.deploy.overlays import OVERLAYS, ROOT, Objects, containers, parse, pods, rendered
from tests.deploy.test_schemas import KUBERNETES
from tests.documented import DOCS, blocks, run

PAGES = sorted(page.name for page in DOCS.glob("*.md") if "kubectl" in page.read_text())


def commands(page: str = "kubernetes.md") -> list[str]:
    """The commands of the blocks that are not executed, one each."""
    text = "".join(blocks(DOCS / page, "sh")).replace("\\\n", "")
    return [line.strip() for line in text.splitlines()]


def test_the_blocks_for_here_run_as_written(tmp_path: Path):
    shutil.copytree(ROOT / "deploy", tmp_path / "deploy")
    first, texts, network = blocks(DOCS / "kubernetes.md", "bash")
    run(first, tmp_path)
    alone = tmp_path / "deploy" / "overlays" / "mine" / "kustomization.yaml"
    without_components = alone.read_text()
    before = parse((tmp_path / "mine.yaml").read_text())
    images = {
        container["image"]
        for group in before["RayService", "dp-icl"]["spec"]["rayClusterConfig"]["workerGroupSpecs"]
        for container in containers(group["template"])
    }
    assert images == {"registry.example.org/dp-icl:0.1.0", "registry.example.org/dp-icl-gpu:0.1.0"}
    run(texts, tmp_path)
    brings_public_texts(before, parse((tmp_path / "mine.yaml").read_text()), tmp_path)
    alone.write_text(without_components)
    run(network, tmp_path)
    after = parse((tmp_path / "mine.yaml").read_text())
    policies = {name for kind, name in after.keys() - before.keys() if kind == "NetworkPolicy"}
    assert policies == {"dp-icl-remote-model", "dp-icl-traces"}
    assert {key for key in before if before[key] != after[key]} == {("NetworkPolicy", "dp-icl-database")}
    assert after["NetworkPolicy", "dp-icl-database"]["spec"]["egress"][0]["ports"][0]["port"] == 6432


def brings_public_texts(before: Objects, after: Objects, folder: Path) -> None:
    """Check that service pods alone get the texts, in a file that the service can read, named by their hash."""
    (added,) = after.keys() - before.keys()
    assert added[0] == "ConfigMap"
    assert re.fullmatch(r"dp-icl-public-texts-\w{10}", added[1])
    kubernetes_validate.validate(after[added], KUBERNETES, strict=True)
    service, engine = workers(after)
    was_service, was_engine = workers(before)
    assert engine == was_engine
    (container,), (was,) = service["containers"], was_service["containers"]
    (volume,) = [one for one in service["volumes"] if one not in was_service["volumes"]]
    (mount,) = [one for one in container["volumeMounts"] if one not in was["volumeMounts"]]
    (variable,) = [one for one in container["env"] if one not in was["env"]]
    assert volume == {"name": mount["name"], "configMap": {"name": added[1]}}
    assert mount["readOnly"] is True
    file = Path(variable["value"])
    assert str(file.parent) == mount["mountPath"]
    (folder / file.name).write_text(after[added]["data"][file.name])
    given = {variable["name"].removeprefix("DPICL_").lower(): folder / file.name}
    check_sanitizers(Settings.model_validate({"development": True, **given}), SanitizeConfig(mechanism="whole_rr"))


def workers(objects: Objects) -> list[dict[str, Any]]:
    """The pods of the two groups of workers: the one that answers questions, and the engine's."""
    return [
        one["template"]["spec"]
        for one in objects["RayService", "dp-icl"]["spec"]["rayClusterConfig"]["workerGroupSpecs"]
    ]


def references(objects: Any) -> set[tuple[str, str]]:
    """The secrets that these manifests name, each with its entry."""
    if isinstance(objects, list):
        return {found for one in objects for found in references(one)}
    if not isinstance(objects, dict):
        return set()
    found = {found for one in objects.values() for found in references(one)}
    if "secretKeyRef" in objects:
        found.add((objects["secretKeyRef"]["name"], objects["secretKeyRef"]["key"]))
    if "secretName" in objects and "defaultMode" in objects:
        found |= {(objects["secretName"], one["key"]) for one in objects.get("items", [{"key": "key"}])}
    if isinstance(objects.get("credentials"), dict):
        found.add((objects["credentials"]["name"], objects["credentials"]["key"]))
    return found


def test_the_secrets_of_the_page_are_those_of_the_manifests():
    """`kubectl create` shows without a cluster what it would make."""
    made = set()
    for command in commands():
        if "create secret" not in command:
            continue
        alone = re.sub(r"\$\(kubectl[^)]*\)", "token", command)
        done = subprocess.run(
            ["bash", "-euc", f"{alone} --dry-run=client --output yaml"], check=True, capture_output=True, text=True
        )
        secret = yaml.safe_load(done.stdout)
        assert secret["metadata"]["namespace"] == "dp-icl"
        made |= {(secret["metadata"]["name"], entry) for entry in secret["data"]}
        if "encryption" in secret["metadata"]["name"]:
            assert len(base64.b64decode(base64.b64decode(secret["data"]["key"]))) == 32
    named = set().union(*(references(list(rendered(overlay).values())) for overlay in OVERLAYS))
    assert made == named


@pytest.mark.parametrize("page", PAGES)
def test_commands_name_what_the_manifests_have(page: str):
    text = "\n".join(commands(page))
    labels = set(re.findall(r"-l (\S+)=(\S+)", text))
    of_pods = [template["metadata"]["labels"].items() for template in pods("gpu").values()]
    assert all(any(label in one for one in of_pods) for label in labels)
    assert set(re.findall(r"-c (\w+) --", text)) <= {one["name"] for one in containers(pods("gpu")["service"])}
    for kind, name in re.findall(r"(?:get|delete|patch) (job|rayservice|secret) ([\w-]+)", text):
        kinds = {"job": "Job", "rayservice": "RayService"}
        if kind in kinds:
            assert (kinds[kind], name) in rendered("gpu")
        else:
            assert name in {secret for secret, _ in references(list(rendered("gpu").values()))}
    for folder in re.findall(r"apply -k (\S+)", text):
        assert folder == "deploy/overlays/mine"
    for path in re.findall(r"-f (deploy/\S+)", text):
        assert (ROOT / path).is_file()
    (mounted,) = {
        mount["mountPath"]
        for one in containers(pods("gpu")["service"])
        for mount in one["volumeMounts"]
        if mount["name"] == "encryption-key"
    }
    assert {str(Path(one).parent) for one in re.findall(r"--new-key-file (/\S+)", text)} <= {mounted}
