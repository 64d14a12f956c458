"""Ids of leases: all random, so that none comes again when a database has gone back in time, restored or failed over."""

from __future__ import annotations

import secrets

__all__ = ["new_lease_id"]

_LARGEST_LEASE_ID = 2**62


def new_lease_id() -> int:
    """Draw an id, from 1. The store sees to it that no lease has it at the moment."""
    return 1 + secrets.randbelow(_LARGEST_LEASE_ID)
