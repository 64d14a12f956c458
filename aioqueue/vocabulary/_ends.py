"""How a chain has ended, as a handler gets it that took `settled` of a call: with its value, or why there is none. No I/O."""

from __future__ import annotations

from typing import Generic, Literal, TypeVar
from uuid import UUID  # noqa: TC003 - msgspec reads the annotation

import msgspec

__all__ = ["Completed", "Failed"]

R_co = TypeVar("R_co", covariant=True)


class Completed(msgspec.Struct, Generic[R_co], frozen=True, tag_field="end", tag="completed"):
    """A chain that has ended well: what `settled` of a call is then.

    Attributes:
        value: Its output.
    """

    value: R_co


class Failed(msgspec.Struct, frozen=True, tag_field="end", tag="failed"):
    """A chain without an output: what `settled` of a call is then.

    Attributes:
        chain_id: Its id: that of its first job.
        state: `failed`, `cancelled` (also if it wasn't started in time), or `deleted`.
        reason: What became of the first job that didn't complete, for people: `site.fetch 0190…: failed: ValueError: boom`.
    """

    chain_id: UUID
    state: Literal["failed", "cancelled", "deleted"]
    reason: str
