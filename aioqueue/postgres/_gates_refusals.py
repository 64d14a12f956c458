"""What refuses to be let come: it's left alone for a while, so that it keeps neither the others nor a processor busy."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.errors import StoreContended, StoreIncompatible
from aioqueue.postgres._errors import breaks_connection, cuts_short, row_error
from aioqueue.runtime._log import event

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable
    from uuid import UUID

    from aioqueue.errors import StoreError

__all__ = ["PassedOver", "Refusals", "concerns_a_row", "concerns_all"]

logger = logging.getLogger("aioqueue.postgres")

_FIRST_SECONDS = 1.0
_LONGEST_SECONDS = 30.0
_PASSED_OVER_SECONDS = 60.0
_MOST_PASSED_OVER = 20


def concerns_all(error: StoreError) -> bool:
    """Whether it's about the database as a whole, and not about what was to be let come."""
    return isinstance(error, StoreIncompatible) or breaks_connection(error) or cuts_short(error)


def concerns_a_row(error: StoreError) -> bool:
    """Whether it's about one of the rows that were written: the others may be written without that."""
    return isinstance(error.__cause__, Exception) and row_error(error.__cause__) is not None


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


class PassedOver:
    """Jobs that refuse to be let come: each is left alone for a minute, so that it keeps no others of its gate back."""

    def __init__(self) -> None:
        self._until: dict[UUID, float] = {}

    def add(self, job_id: UUID, gate: str, why: StoreError) -> None:
        """Pass over a job, and tell of it.

        Raises:
            StoreError: The reason, where there are too many of them: then it's the gate that is left alone.
        """
        if len(self.ids) >= _MOST_PASSED_OVER:
            raise why
        self._until[job_id] = time.monotonic() + _PASSED_OVER_SECONDS
        logger.error(
            "job %s is passed over at %s: %s", job_id, gate, why, extra=event("store.row_passed_over", job_id=str(job_id))
        )

    @property
    def ids(self) -> Collection[UUID]:
        """Those that are passed over at the moment."""
        if self._until:
            now = time.monotonic()
            self._until = {job_id: until for job_id, until in self._until.items() if until > now}
        return self._until.keys()

    def __contains__(self, job_id: UUID) -> bool:
        return job_id in self.ids
