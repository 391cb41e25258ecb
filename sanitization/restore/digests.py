"""SHA-256 of files, and of a language model's folder."""

from __future__ import annotations

import hashlib
from pathlib import Path

_READ = (".json", ".safetensors", ".model", ".txt", ".jinja")


def file_digest(file: Path) -> str:
    """Of a file's content."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def model_digest(folder: Path) -> str:
    """Of what a model's answers hang on: the names and contents of configuration, tokenizer and weights.

    Raises:
        ValueError: the folder holds no weights in safetensors; other formats are not read.
    """
    files = sorted(one for one in folder.iterdir() if one.suffix in _READ)
    if not any(one.suffix == ".safetensors" for one in files):
        raise ValueError(f"{folder} holds no .safetensors: other formats are not read")
    said = "".join(f"{one.name} {file_digest(one)}\n" for one in files)
    return hashlib.sha256(said.encode()).hexdigest()
