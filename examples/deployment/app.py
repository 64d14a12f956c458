"""The smallest application that these files deploy."""

from __future__ import annotations

from aioqueue import Registry

registry = Registry()


@registry.job
async def greet(name: str) -> str:
    """Say hello."""
    return f"Hello, {name}"
