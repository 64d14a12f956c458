"""A job type that can be tried out, and one that can't."""

from __future__ import annotations

from aioqueue import Registry, Retry, current_attempt

registry = Registry(prefix="shop.")
ONCE = Retry(max_attempts=1)


@registry.job(dry_run=True, retry=ONCE)
async def charge(amount: int) -> str:
    return f"would charge {amount}" if current_attempt().dry_run else f"charged {amount}"


@registry.job(retry=ONCE)
async def notify() -> None: ...
