"""The deployment that steers a language model: apart from the one that sees private exemplars."""

from pathlib import Path
from typing import Any

import numpy as np
from ray.serve.handle import DeploymentHandle

from service.engines.configs import VllmConfig
from service.engines.errors import EngineUnavailableError
from service.engines.task import TaskSpec
from service.records.telemetry.logs import configure_logs
from service.serving.deployments import call, deployment, or_refusal
from service.serving.local_ray import begin_replica


@deployment
class RestoreEngine:
    """vLLM with the vectors of all bundles made for its model."""

    def __init__(self, config: VllmConfig):
        from service.engines.vllm.isolation import isolate
        from service.engines.vllm.model_folder import model_folder
        from service.settings import Settings

        configure_logs()
        begin_replica()
        root = Settings().restore_bundles
        if root is None:
            raise EngineUnavailableError("the config has restore, and DPICL_RESTORE_BUNDLES is not set")
        config = config.model_copy(update={"model": model_folder(config.model, exact=True)})
        isolation = isolate(config)  # first: vLLM reads the environment when it is imported
        from service.engines.vllm.steered import SteeredVllm

        self._engine = SteeredVllm(config, isolation, Path(root))

    async def ask(self, method: str, *args: Any) -> Any:
        """Call a method of :class:`service.engines.vllm.steered.SteeredVllm`; returns a refusal."""
        return await or_refusal(getattr(self._engine, method)(*args))

    async def check_health(self) -> None:
        """Serve replaces a replica whose vLLM has died."""
        await self._engine.health()

    def __del__(self) -> None:
        """Called by Serve when the replica stops, and by Python when the constructor failed."""
        if hasattr(self, "_engine"):
            self._engine.close()


class RemoteSteerer:
    """The deployment as a :class:`service.engines.protocol.Steerer`."""

    def __init__(self, handle: DeploymentHandle[Any]):
        self._handle = handle
        self._bundles = frozenset[str]()  # a replica has some

    async def bundles(self) -> frozenset[str]:
        """SHA-256 of the bundles that are served, as last seen."""
        if not self._bundles:
            await self.health()
        return self._bundles

    async def health(self) -> None:
        """Return when vLLM has started, and note its bundles: a new replica may have more."""
        self._bundles = await call("restore engine", self._handle, "ask", "bundles")

    async def restore(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> np.ndarray:
        """Probabilities of the options, float64 (options,)."""
        return await call("restore engine", self._handle, "ask", "restore", task, text, bundle, profile)

    async def restore_text(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> str:
        """An answer in free text."""
        return await call("restore engine", self._handle, "ask", "restore_text", task, text, bundle, profile)
