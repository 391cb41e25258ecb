"""The memory that this process may still take, on Linux."""

from pathlib import Path

from service.engines.errors import EngineUnavailableError

_LIMIT = Path("/sys/fs/cgroup/memory.max")


def require_memory(needed: int, purpose: str) -> None:
    """Refuse what could not be done for want of memory, rather than be killed in the middle.

    Args:
        needed: bytes, at least.
        purpose: purpose of the memory, for the message.

    Raises:
        service.engines.errors.EngineUnavailableError: there are fewer.
    """
    if needed > (available := available_memory()):
        raise EngineUnavailableError(
            f"too little memory to {purpose}: it takes {needed / 2**30:.1f} GiB, and {available / 2**30:.1f} are left"
        )


def available_memory() -> int:
    """Bytes that the machine has left, or the container may take at most."""
    said = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines())
    available = 1024 * int(said["MemAvailable"].split()[0])
    limit = _LIMIT.read_text().strip() if _LIMIT.is_file() else "max"
    return available if limit == "max" else min(available, int(limit))
