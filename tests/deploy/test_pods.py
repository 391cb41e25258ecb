"""The rights, contents and resources of the overlays' pods, and the probes of their health."""

import json
from pathlib import Path

import pytest

from service.serving import departure
from tests.deploy.overlays import (
    component,
    containers,
    each_overlay,
    groups,
    pods,
    ray_service,
    rendered,
    serve_config,
    service_pod,
    settings,
)

RESTRICTED = {"allowPrivilegeEscalation": False, "readOnlyRootFilesystem": True, "capabilities": {"drop": ["ALL"]}}
MIGRATION = "dp-icl-migrate"
OF_THE_LEDGER = {"DPICL_DATABASE_URL": "dp-icl-database", "DPICL_WITNESS_URL": "dp-icl-witness"}


@each_overlay
def test_pods_have_no_needless_rights(overlay: str):
    for name, template in pods(overlay).items():
        spec = template["spec"]
        assert spec["securityContext"]["runAsNonRoot"] is True
        assert spec["securityContext"]["runAsUser"] == 10001
        assert spec["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
        # Only Ray's autoscaler calls Kubernetes.
        autoscales = name == "head" and "enableInTreeAutoscaling" in ray_service(overlay)["rayClusterConfig"]
        assert spec["automountServiceAccountToken"] is autoscales
        assert ("ServiceAccount", spec["serviceAccountName"]) in rendered(overlay)
        assert not {"hostNetwork", "hostPID", "hostIPC"} & spec.keys()
        assert not any("hostPath" in volume for volume in spec["volumes"])
        mounts = [mount for container in containers(template) for mount in container["volumeMounts"]]
        assert {mount["name"] for mount in mounts} == {volume["name"] for volume in spec["volumes"]}
        for container in containers(template):
            assert container["securityContext"] == RESTRICTED
            assert "/tmp" in {mount["mountPath"] for mount in container["volumeMounts"]}  # noqa: S108


@each_overlay
def test_every_container_asks_for_what_it_needs(overlay: str):
    for template in pods(overlay).values():
        for container in containers(template):
            assert {"cpu", "memory"} <= container["resources"]["requests"].keys()
            assert {"cpu", "memory"} <= container["resources"]["limits"].keys()


@each_overlay
def test_the_encryption_key_is_a_reference_and_only_where_questions_are_answered(overlay: str):
    assert not any(kind == "Secret" for kind, _ in rendered(overlay))
    for template in pods(overlay).values():
        secrets = {one["secret"]["secretName"]: one for one in template["spec"]["volumes"] if "secret" in one}
        for container in containers(template):
            mounts = [one for one in container["volumeMounts"] if one["name"] == "encryption-key"]
            if component(template) != "service" or container["name"] != "ray":
                assert mounts == []
                assert "DPICL_ENCRYPTION_KEY_FILE" not in settings(container)
                continue
            file = Path(settings(container)["DPICL_ENCRYPTION_KEY_FILE"]["value"])
            # The folder is mounted, not one file: while keys change, the secret holds the next one beside the key.
            assert mounts == [{"name": "encryption-key", "mountPath": str(file.parent), "readOnly": True}]
            assert "items" not in secrets["dp-icl-encryption-key"]["secret"]
        secrets.pop("dp-icl-redis", None)  # its authority alone, on the head
        assert secrets.keys() == ({"dp-icl-encryption-key"} if component(template) == "service" else set())


@pytest.mark.parametrize("overlay", ["gpu", "production"])
def test_ledger_and_witness_are_outside_and_reached_only_from_where_they_are_needed(overlay: str):
    for name, template in pods(overlay).items():
        for container in containers(template):
            given = {variable: settings(container).get(variable, {}) for variable in OF_THE_LEDGER}
            if component(template) in ("service", "migration"):
                for variable, secret in OF_THE_LEDGER.items():
                    assert given[variable]["valueFrom"] == {"secretKeyRef": {"name": secret, "key": "url"}}
            else:
                assert not any(variable.startswith("DPICL_") for variable in settings(container)), name


def test_local_keeps_ledger_and_witness_on_volumes_of_their_own():
    template = pods("local")["head"]
    claims = {
        volume["name"]: volume["persistentVolumeClaim"]["claimName"]
        for volume in template["spec"]["volumes"]
        if "persistentVolumeClaim" in volume
    }
    for container in containers(template):
        mounted = {one["mountPath"]: claims.get(one["name"]) for one in container["volumeMounts"]}
        urls = [settings(container)[name]["value"] for name in OF_THE_LEDGER]
        folders = [str(Path(url.removeprefix("sqlite:///")).parent) for url in urls]
        assert [mounted[folder] for folder in folders] == ["dp-icl-data", "dp-icl-witness"]
    assert all(("PersistentVolumeClaim", claim) in rendered("local") for claim in claims.values())


@each_overlay
def test_pods_wait_for_the_migration(overlay: str):
    template = pods(overlay)[service_pod(overlay)]
    (first,) = template["spec"]["initContainers"]
    (container,) = template["spec"]["containers"]
    assert settings(container)["DPICL_MIGRATE"]["value"] == "never"
    if overlay == "local":  # the only pod
        assert first["command"] == ["dpicl", "migrate"]
        assert MIGRATION not in pods(overlay)
        return
    (job,) = pods(overlay)[MIGRATION]["spec"]["containers"]
    *command, patience = job["command"]
    assert command == ["dpicl", "migrate", "--wait"]
    *command, seconds = first["command"]
    assert command == ["dpicl", "migrate", "--check", "--wait"]
    assert int(seconds) >= rendered(overlay)["Job", MIGRATION]["spec"]["activeDeadlineSeconds"] > int(patience)
    for variable in OF_THE_LEDGER:
        assert settings(first)[variable] == settings(job)[variable] == settings(container)[variable]


@each_overlay
def test_every_pod_of_ray_is_probed(overlay: str):
    """Probes use HTTP, for which the image needs no program; KubeRay's own probes would call wget."""
    for name, group in groups(overlay).items():
        (container,) = group["template"]["spec"]["containers"]
        raylet = {"path": "/api/local_raylet_healthz", "port": 52365}
        # KubeRay's operator gives the Serve config to a head that is ready, so the head cannot wait for the service.
        ready = {"head": {"path": "/api/gcs_healthz", "port": 8265}, "service": {"path": "/readyz", "port": 8000}}
        assert container["livenessProbe"]["httpGet"] == raylet
        assert container["readinessProbe"]["httpGet"] == ready.get(name, raylet)
        for probe in ("livenessProbe", "readinessProbe"):
            # /readyz may take five seconds.
            assert container[probe]["timeoutSeconds"] >= 5
            assert container[probe]["periodSeconds"] * container[probe]["failureThreshold"] <= 120


@each_overlay
def test_a_drain_leaves_service_pods(overlay: str):
    """The exception is `local`, whose only pod could then never leave its node."""
    budgets = [one["spec"] for (kind, _), one in rendered(overlay).items() if kind == "PodDisruptionBudget"]
    if overlay == "local":
        assert budgets == []
        return
    (budget,) = budgets
    labels = pods(overlay)["service"]["metadata"]["labels"]
    assert budget["selector"]["matchLabels"] == labels
    assert 1 <= budget["minAvailable"] <= groups(overlay)["service"]["minReplicas"]


@each_overlay
def test_pods_that_go_finish_what_they_were_asked(overlay: str):
    timeout = serve_config(overlay)["http_options"]["request_timeout_s"]
    for group in groups(overlay).values():
        spec = group["template"]["spec"]
        *program, part = spec["containers"][0]["lifecycle"]["preStop"]["exec"]["command"]
        assert program == ["python", "-m", "service.serving.departure"]
        assert part == group["template"]["metadata"]["labels"]["app.kubernetes.io/component"]
        assert timeout < departure.MOST_S < spec["terminationGracePeriodSeconds"]


@pytest.mark.parametrize("overlay", ["gpu", "production"])
def test_replicas_fit_the_pods(overlay: str):
    deployments = {one["name"]: one for one in serve_config(overlay)["applications"][0]["deployments"]}
    engine, service = groups(overlay)["engine"], groups(overlay)["service"]
    actor = deployments["EngineDeployment"]["ray_actor_options"]
    arguments = serve_config(overlay)["applications"][0]["args"]["engine"]
    (container,) = engine["template"]["spec"]["containers"]
    assert actor["num_gpus"] == arguments["tensor_parallel_size"]
    assert container["resources"]["limits"]["nvidia.com/gpu"] == str(actor["num_gpus"])
    scaling = deployments["EngineDeployment"]["autoscaling_config"]
    assert (scaling["min_replicas"], scaling["max_replicas"]) == (engine["minReplicas"], engine["maxReplicas"])
    assert engine["template"]["spec"]["nodeSelector"]
    assert engine["template"]["spec"]["tolerations"]
    # Weights are read from where they are mounted.
    assert Path(arguments["model"]).parts[1] == "models"
    assert "/models" in {mount["mountPath"] for mount in container["volumeMounts"]}
    # Only service pods have the resource that replicas need to open the database.
    needed = [deployments[name]["ray_actor_options"]["resources"]["ledger"] for name in ("Ingress", "PrivateWork")]
    assert json.loads(json.loads(service["rayStartParams"]["resources"]))["ledger"] >= sum(needed) > max(needed)
    assert "resources" not in engine["rayStartParams"]
    assert deployments["Ingress"]["num_replicas"] <= service["minReplicas"]
