"""SHA-256 of files, and of a language model's folder."""

import hashlib
from pathlib import Path

_READ = (".json", ".safetensors", ".model", ".txt", ".jinja")


def file_digest(file: Path) -> str:
    """SHA-256 of a file's content."""
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()


def model_digest(folder: Path) -> str:
    """SHA-256 of what a model's answers depend on: names and contents of its configuration, tokenizer and weights.

    Raises:
        ValueError: the folder holds no weights in safetensors; other formats are not read.
    """
    files = sorted(file for file in folder.iterdir() if file.suffix in _READ)
    if not any(file.suffix == ".safetensors" for file in files):
        raise ValueError(f"{folder} holds no .safetensors: other formats are not read")
    said = "".join(f"{file.name} {file_digest(file)}\n" for file in files)
    return hashlib.sha256(said.encode()).hexdigest()
