"""The memory of this machine, so that a run that cannot fit ends in a sentence at its start."""

import contextlib
from collections.abc import Callable
from pathlib import Path

from albert_tf.errors import UserError

_GIB = 2**30
# Versions 2 and 1: the directory, and its files of limit and use.
_CONTROL_GROUPS = (
    (Path("/sys/fs/cgroup"), "memory.max", "memory.current"),
    (Path("/sys/fs/cgroup/memory"), "memory.limit_in_bytes", "memory.usage_in_bytes"),
)


def check_host_memory(estimate: Callable[..., int], *, batch_size: int) -> None:
    """Raises UserError where the machine has less memory available than `estimate(batch_size=batch_size)` bytes."""
    available = available_host_bytes()
    needed = estimate(batch_size=batch_size)
    if available is None or needed <= available:
        return
    fixed = estimate(batch_size=0)
    largest = int((available - fixed) / (estimate(batch_size=1) - fixed))
    advice = "Not even one example fits: use a smaller model"
    if largest > 0:
        advice = (
            f"At most {largest} may fit at once: raise --gradient_accumulation_steps, lower --train_batch_size, or "
            "make shorter records"
        )
    raise UserError(
        f"training on {batch_size} examples at once needs at least {needed / _GIB:.1f} GiB of memory, and this "
        f"machine has {available / _GIB:.1f} GiB available. {advice}"
    )


def available_host_bytes() -> int | None:
    """Returns the memory that this process may still take, by /proc/meminfo and the control group; None if unknown."""
    try:
        meminfo = _fields(Path("/proc/meminfo"))
    except OSError:
        return None
    limits = [meminfo["MemAvailable:"] * 1024] if "MemAvailable:" in meminfo else []
    for directory, limit_name, used_name in _CONTROL_GROUPS:
        with contextlib.suppress(OSError, ValueError):
            limit = int((directory / limit_name).read_text())  # "max" where there is none
            used = int((directory / used_name).read_text())
            # The kernel gives back the file cache when it needs to.
            cache = _fields(directory / "memory.stat").get("inactive_file", 0)
            limits.append(limit - max(0, used - cache))
    return max(0, min(limits)) if limits else None


def _fields(path: Path) -> dict[str, int]:
    """Returns the numbers of a file of lines "name number"."""
    lines = (line.split() for line in path.read_text().splitlines())
    return {words[0]: int(words[1]) for words in lines if len(words) > 1 and words[1].isdecimal()}
