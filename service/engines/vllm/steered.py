"""vLLM whose attention heads are steered by a profile (:mod:`sanitization.restore`), in a process of its own.

Never shared with private exemplars. All that a request brings is checked here, before it reaches vLLM's worker.
"""

import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import safetensors.numpy
from typing_extensions import override

from sanitization.digests import model_digest
from sanitization.restore import bundle as bundles
from sanitization.restore.bundle import Bundle, BundleError
from sanitization.restore.steering import BEGIN, ROW, TABLE, table
from service.engines.configs import VllmConfig
from service.engines.errors import EngineUnavailableError
from service.engines.prompts import render
from service.engines.task import TaskSpec
from service.engines.vllm.engine import VllmEngine
from service.engines.vllm.isolation import Isolation
from service.engines.vllm.tokens import Tokens

_WORKER = "sanitization.restore.engine_worker.SteeringWorker"


class SteeredVllm(VllmEngine):
    """Serves the bundles that were made for its model, those that are published when it starts.

    Args:
        config: the model is a folder, on one device, not quantised. Prefixes are not cached: a cached piece of a
            steered prompt is another one in a longer prompt, or under another profile.
        isolation: see :class:`service.engines.vllm.engine.VllmEngine`.
        root: folder of the bundles.

    Raises:
        service.engines.errors.EngineUnavailableError: it cannot start here; the message names why and what to change.
    """

    def __init__(self, config: VllmConfig, isolation: Isolation, root: Path):
        try:
            made = _made_for(Path(config.model), root)
            heads, size = _shape(config.model)
            tensors, bases = table([(bundle, vectors) for bundle, vectors in made], heads, size)
        except (BundleError, OSError, ValueError) as error:
            raise EngineUnavailableError(f"no bundle can steer {config.model}: {error}") from error
        self._folder = tempfile.TemporaryDirectory(prefix="dpicl-steering-")
        file = Path(self._folder.name) / "table.safetensors"
        safetensors.numpy.save_file({f"layer.{layer}": rows for layer, rows in tensors.items()}, file)
        steering = {"worker_cls": _WORKER, "additional_config": {TABLE: str(file)}}
        self._rows = {bundle.sha256: (base, bundle.book.k) for (bundle, _), base in zip(made, bases, strict=True)}
        super().__init__(
            # The vectors were trained without a chat template.
            config.model_copy(update={"prefix_caching": False, "chat": False}),
            replace(isolation, arguments={**isolation.arguments, **steering}),
        )

    async def bundles(self) -> frozenset[str]:
        """SHA-256 of the bundles that are served, while vLLM lives.

        Raises:
            service.engines.errors.EngineUnavailableError: it has died.
        """
        await self.health()
        return frozenset(self._rows)

    async def restore(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> np.ndarray:
        """Probabilities of a bundle's options after a redacted text, float64 (options,).

        Args:
            task: the bundle's.
            text: redacted.
            bundle: SHA-256 of a bundle, one of :meth:`bundles`.
            profile: below the bundle's k; None steers nothing.

        Raises:
            service.engines.errors.EngineUnavailableError: vLLM has died, or has no such bundle.
            service.engines.errors.EngineBusyError: it has as much work as it takes on.
            service.engines.errors.UnanswerableQueryError: the text is too long for the model.
        """
        prompt, extra = self._steered(task, text, bundle, profile)
        with self._admission.probe(task):
            return await self._public(self._score(task, prompt, extra))

    async def restore_text(self, task: TaskSpec, text: str, bundle: str, profile: int | None) -> str:
        """The likeliest answer to a redacted text, perhaps empty; arguments and errors as of :meth:`restore`.

        Every token is steered, from the prompt's last one on (equation 4 of the paper).
        """
        prompt, extra = self._steered(task, text, bundle, profile)
        with self._admission.probe(task):
            return (await self._public(self._write(task, prompt, 0.0, extra=extra))).text

    def _steered(
        self, task: TaskSpec, text: str, bundle: str, profile: int | None
    ) -> tuple[Tokens, tuple[tuple[str, int], ...]]:
        """A prompt, and the row of the table and the first token that the worker is to steer."""
        base, count = self._rows.get(bundle, (0, 0))
        if profile is not None and not 0 <= profile < count:
            raise EngineUnavailableError("this engine has no such bundle: restart it after publishing one")
        (prompt,) = self._tokens[task.kind].prompts([render(task.prompt, {"text": text})])
        self._check_fits(prompt, task)
        return prompt, ((ROW, 0 if profile is None else base + profile), (BEGIN, len(prompt) - 1))

    @override
    def close(self) -> None:
        super().close()
        self._folder.cleanup()


def _made_for(model: Path, root: Path) -> list[tuple[Bundle, np.ndarray]]:
    """All bundles for a model, with their vectors.

    Raises:
        BundleError: there are none.
    """
    digest = model_digest(model)
    folders = [bundles.folder_of(root, address) for address in bundles.addresses(root)]
    made = [(bundle, folder) for folder in folders if (bundle := bundles.load(folder)).manifest.model.sha256 == digest]
    if not made:
        raise BundleError(f"none of the bundles in {root} was made for this model")
    return [(bundle, bundles.load_steering(folder, bundle)["table"]) for bundle, folder in made]


def _shape(model: str) -> tuple[int, int]:
    """The number of heads in a layer, and of numbers in a head."""
    from transformers import AutoConfig

    config = AutoConfig.from_pretrained(model).get_text_config()
    heads = int(config.num_attention_heads)
    return heads, int(getattr(config, "head_dim", None) or config.hidden_size // heads)
