"""Which deployments the application has, by its engine."""

from collections.abc import Mapping
from typing import Any

import pytest
from ray.serve import Application

from service.serving.application import build

REMOTE = {"name": "openai_compatible", "model": "m", "base_url": "http://127.0.0.1:9/v1", "isolation": "best_effort"}


def deployments(application: Application) -> Mapping[str, Any]:
    """An application's deployments by name, the ingress among them."""
    beside, work, _ = application._bound_deployment.init_args
    bound = [application, work, *(other for other in vars(beside).values() if isinstance(other, Application))]
    return {each._bound_deployment.name: each._bound_deployment for each in bound}


@pytest.mark.parametrize(
    ("engine", "further"),
    [
        ({"name": "nearest_exemplar"}, set()),
        ({"name": "vllm", "model": "smollm2"}, {"EngineDeployment"}),
        (REMOTE, {"EngineDeployment"}),
        (REMOTE | {"exemplars": "local", "sanitize": {}}, {"EngineDeployment"}),
    ],
)
def test_sentences_are_compared_in_the_embedders_replica(engine: Mapping[str, Any], further: set[str]) -> None:
    found = deployments(build({"engine": engine}))
    assert found.keys() == {"Ingress", "PrivateWork", "TurnsDeployment", "EmbedderDeployment"} | further


def test_private_work_has_a_process_only_while_there_is_some() -> None:
    scaling = deployments(build({}))["PrivateWork"]._deployment_config.autoscaling_config
    assert (scaling.min_replicas, scaling.max_replicas) == (0, 1)
