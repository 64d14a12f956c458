"""The log of what happens to jobs: the store for PostgreSQL keeps none so far."""

from __future__ import annotations

__all__: list[str] = []
