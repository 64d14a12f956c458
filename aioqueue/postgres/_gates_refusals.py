"""What refuses to be let come: it's left alone for a while, so that it keeps neither the others nor a processor busy."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended, StoreIncompatible
from aioqueue.postgres._errors import breaks_connection, cuts_short
from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioqueue.errors import StoreError

__all__ = ["Refusals", "concerns_all"]

logger = logging.getLogger("aioqueue.postgres")

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 30.0


def concerns_all(error: StoreError) -> bool:
    """Whether it's about the database as a whole, and not about what was to be let come."""
    return isinstance(error, StoreIncompatible) or breaks_connection(error) or cuts_short(error)


@dataclass(slots=True)
class _Refusal:
    """How often it has refused so far.

    Attributes:
        until: When it's tried again, by the monotonic clock.
        wait: Seconds that it was left alone for.
        reason: What was told of it; None for nothing.
    """

    until: float = 0.0
    wait: float = 0.0
    reason: str | None = None


class Refusals:
    """Gates, or other names, that are left alone for 1 s; twice as long each time that they refuse again, up to 30 s."""

    def __init__(self) -> None:
        self._refusals: dict[str, _Refusal] = {}

    def add(self, names: Iterable[str], error: StoreError) -> None:
        """Leave these alone. It's told once, and when the reason is another one; never that somebody else has it locked."""
        for name in names:
            refusal = self._refusals.setdefault(name, _Refusal())
            refusal.wait = min(max(_FIRST_SECONDS, 2 * refusal.wait), _LONGEST_SECONDS)
            refusal.until = time.monotonic() + refusal.wait
            if not isinstance(error, StoreContended) and refusal.reason != str(error):
                refusal.reason = str(error)
                logger.error("jobs can't be let come at %s: %s", name, error, extra=event("store.gates_refused"))

    def forget(self, names: Iterable[str]) -> None:
        """These have let come whom they should."""
        if self._refusals:
            for name in names:
                self._refusals.pop(name, None)

    def __bool__(self) -> bool:
        return bool(self._refusals)

    @property
    def names(self) -> list[str]:
        """Those that are left alone at the moment."""
        now = time.monotonic()
        for name in [name for name, refusal in self._refusals.items() if refusal.until < now - _LONGEST_SECONDS]:
            del self._refusals[name]  # nobody has come to it since
        return [name for name, refusal in self._refusals.items() if refusal.until > now]

    @property
    def next_in(self) -> float | None:
        """Seconds until the first of them is tried again; None if there's none."""
        now = time.monotonic()
        return min((refusal.until - now for refusal in self._refusals.values() if refusal.until > now), default=None)
