"""Deliveries of webhooks: empty so far."""

from __future__ import annotations

__all__: list[str] = []
