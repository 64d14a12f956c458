"""How many jobs of some types a claim may take. No I/O."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Quota"]


@dataclass(frozen=True, slots=True)
class Quota:
    """At most so many jobs of these types together in one claim.

    Attributes:
        types: Names. No two quotas of a claim have one in common.
        jobs: At least 1: what may not be claimed at all isn't asked for.
    """

    types: frozenset[str]
    jobs: int
