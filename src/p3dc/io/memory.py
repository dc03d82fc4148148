"""How much memory there is, asked before something large is read."""

from pathlib import Path

from p3dc.errors import InputError

MEMORY, LIMIT = Path("/proc/meminfo"), Path("/sys/fs/cgroup/memory.max")


def free_memory() -> int | None:
    """Return how many bytes this process may still use, where Linux or its container says; None elsewhere."""
    found = []
    try:
        lines = dict(line.split(":", 1) for line in MEMORY.read_text().splitlines())
        found.append(1024 * int(lines["MemAvailable"].split()[0]))
        found.append(int(LIMIT.read_text()))
    except (OSError, ValueError, KeyError):  # another system, or a container without a limit
        pass
    return min(found, default=None)


def check_memory(place: object, n_bytes: int) -> None:
    """Refuse to read what does not fit into memory."""
    free = free_memory()
    if free is not None and n_bytes > free:
        raise InputError(
            f"{place} takes {n_bytes / 1e9:,.1f} GB in memory, and {free / 1e9:,.1f} GB are free. Read it on a larger "
            "machine, or write it in parts."
        )
