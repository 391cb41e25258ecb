"""The component for signing in with a provider: it gives service pods alone settings that the service has."""

from pathlib import Path

import kubernetes_validate
import pytest

from service.settings import Settings
from tests.deploy.overlays import containers, with_components
from tests.deploy.test_schemas import KUBERNETES


@pytest.mark.parametrize("overlay", ["gpu", "production"])
def test_the_component_lets_service_pods_ask_the_provider(tmp_path: Path, overlay: str) -> None:
    found = before, after = [with_components(tmp_path, overlay, *more) for more in ((), ("sign-in",))]
    (policy,) = after.keys() - before.keys()
    kubernetes_validate.validate(after[policy], KUBERNETES, strict=True)
    assert after[policy]["metadata"]["namespace"] == "dp-icl"
    assert after[policy]["spec"]["egress"] == [{"ports": [{"port": 443, "protocol": "TCP"}]}]
    given = {}
    of_before, of_after = (one["RayService", "dp-icl"]["spec"]["rayClusterConfig"]["workerGroupSpecs"] for one in found)
    for was, group in zip(of_before, of_after, strict=True):
        labels = group["template"]["metadata"]["labels"]
        wanted = after[policy]["spec"]["podSelector"]["matchLabels"]
        assert (wanted.items() <= labels.items()) == (group["groupName"] == "service")
        for had, container in zip(containers(was["template"]), containers(group["template"]), strict=True):
            added = [one for one in container.get("env", []) if one not in had.get("env", [])]
            assert not added or (group["groupName"], container["name"]) == ("service", "ray")
            given |= {one["name"]: one["valueFrom"]["secretKeyRef"] for one in added}
    assert {key["name"] for key in given.values()} == {"dp-icl-sign-in"}
    assert [name for name, key in given.items() if key.get("optional")] == ["DPICL_OIDC_SCOPES"]  # else its default
    assert (
        {name.removeprefix("DPICL_").lower() for name in given}
        == {"oidc_issuer", "oidc_client_id", "oidc_client_secret", "oidc_roles", "oidc_scopes"}
        < Settings.model_fields.keys()
    )
