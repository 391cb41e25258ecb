"""Files that hold keys: others on the machine must not be able to read them."""

import os
import stat
from pathlib import Path


class ReadableKeyError(ValueError):
    """Others can read a key's file; the message names the remedy."""


def read_key_file(file: Path) -> bytes:
    """The content of a file that holds a key.

    A group may read a file that belongs to another user, as it must where Kubernetes mounts a secret.

    Raises:
        ReadableKeyError: others can read it, or a group that need not.
        OSError: it cannot be read.
    """
    with file.open("rb") as opened:
        status = os.fstat(opened.fileno())
        needless = stat.S_IRGRP if status.st_uid == os.geteuid() else 0
        if stat.S_ISREG(status.st_mode) and status.st_mode & (stat.S_IROTH | needless):
            raise ReadableKeyError(
                f"{file} holds a key, and other users can read it: chmod 600 {file}, or mount the secret for its "
                "user alone, and make another key if it may have been read"
            )
        return opened.read()
