"""Functions that the tests of registries make job types of."""

from __future__ import annotations

from typing import Any


async def plain(a: int, b: str = "x") -> str:
    """Say something."""
    return b * a


async def another(a: int) -> str:
    """Say something else."""
    return str(a)


async def middleware(attempt: Any, call_next: Any) -> object:
    return await call_next()
