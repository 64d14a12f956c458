"""The machine's clocks, for leases: a wall clock that is set must not end what living workers hold."""

from __future__ import annotations

import sys
import time
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from aioqueue.sqlite._rows_times import NOW

if TYPE_CHECKING:
    from typing import Any

__all__ = ["LEASE_END", "LEASE_VALID", "clock_and_boot", "clock_parameters"]

LEASE_END = "(lease.expires_at + iif(lease.boot = :boot AND abs(:clock - lease.clock) > 500000, :clock - lease.clock, 0))"
"""When a lease ends: a wall clock that was set since the lease's last renewal is set back in the comparison."""

LEASE_VALID = f"{LEASE_END} > {NOW}"


@cache
def _boot() -> str | None:
    # Containers share it with their machine, which is right: they share its clocks too.
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip() or None
    except OSError:
        return None


def clock_and_boot() -> tuple[int, str | None]:
    """By how much the wall clock is ahead of the time since the machine's start.

    Returns:
        Microseconds, and the start's name; None where the machine doesn't tell it, which makes the first worthless.
    """
    if sys.platform == "linux":
        since_boot = time.clock_gettime_ns(time.CLOCK_BOOTTIME)
        return (time.time_ns() - since_boot) // 1000, _boot()
    return 0, None


def clock_parameters() -> dict[str, Any]:
    """The same, as statements want it."""
    clock, boot = clock_and_boot()
    return {"clock": clock, "boot": boot}
