"""The component that signs the audit trail: it gives service pods alone the key, as a file that no others can read."""

from pathlib import Path

import kubernetes_validate
import pytest

from service.settings import Settings
from tests.deploy.overlays import containers, with_components
from tests.deploy.test_schemas import KUBERNETES


@pytest.mark.parametrize("overlay", ["gpu", "production"])
def test_the_component_gives_service_pods_the_key(tmp_path: Path, overlay: str) -> None:
    found = before, after = [with_components(tmp_path, overlay, *more) for more in ((), ("audit-key",))]
    assert {key for key in after if after[key] != before.get(key)} == {("RayService", "dp-icl")}
    of_before, of_after = (one["RayService", "dp-icl"]["spec"]["rayClusterConfig"]["workerGroupSpecs"] for one in found)
    (group,) = [now for was, now in zip(of_before, of_after, strict=True) if was != now]
    template = group["template"]
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "service"}, "spec": template["spec"]}
    kubernetes_validate.validate(pod, KUBERNETES, strict=True)
    assert group["groupName"] == "service"
    (volume,) = [one for one in template["spec"]["volumes"] if one["name"] == "audit-key"]
    secret = volume["secret"]
    assert (secret["secretName"], secret["defaultMode"]) == ("dp-icl-audit-key", 0o440)
    (mounted,) = [
        (container["name"], mount)
        for container in containers(template)
        for mount in container["volumeMounts"]
        if mount["name"] == "audit-key"
    ]
    name, mount = mounted
    assert (name, mount["readOnly"]) == ("ray", True)
    (ray,) = [container for container in template["spec"]["containers"] if container["name"] == "ray"]
    given = {one["name"]: one for one in ray["env"] if one["name"].startswith("DPICL_AUDIT_")}
    assert {one.removeprefix("DPICL_").lower() for one in given} == {"audit_key_file", "audit_origin"}
    assert given.keys() <= {f"DPICL_{field.upper()}" for field in Settings.model_fields}
    (item,) = secret["items"]
    assert given["DPICL_AUDIT_KEY_FILE"]["value"] == f"{mount['mountPath']}/{item['path']}"
    assert given["DPICL_AUDIT_ORIGIN"]["valueFrom"]["secretKeyRef"] == {"name": "dp-icl-audit-key", "key": "origin"}
