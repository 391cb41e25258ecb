"""A file that its owner alone can read, as those of keys must be."""

from pathlib import Path


def private_file(file: Path, content: str | bytes) -> Path:
    """Write such a file, and return its path."""
    file.touch(mode=0o600)
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return file
