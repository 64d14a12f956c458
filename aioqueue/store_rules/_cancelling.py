"""What a chain's request to end means for what is written of its jobs, and what stands in their histories."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from aioqueue.vocabulary._job import AttemptError, SettlementKind

if TYPE_CHECKING:
    from datetime import datetime

    from aioqueue.vocabulary._job import Settlement

__all__ = ["CANCELLED", "WITHOUT_REASON", "as_cancelled", "asked_to_end", "gives_way", "kept_reason"]

CANCELLED = "Cancelled"
"""The type of the entry in the history of a job that ended since that was asked for."""

_LONGEST = 1_000
"""Characters of a reason."""

WITHOUT_REASON = "it was cancelled"
"""What stands there for an empty reason."""


def kept_reason(reason: str) -> str:
    """What is kept of a reason. Bounded, and without what a text column can't hold."""
    text = reason if len(reason) <= _LONGEST else reason[: _LONGEST - 1] + "…"
    return text.encode(errors="replace").decode().replace("\0", "\ufffd")


def asked_to_end(reason: str, now: datetime) -> AttemptError:
    """The entry of a job that ended since that was asked for."""
    return AttemptError(attempt=0, at=now, type=CANCELLED, message=reason or WITHOUT_REASON)


def gives_way(settlement: Settlement) -> bool:
    """Whether a job is cancelled in place of this, if its chain was asked to end."""
    return not settlement.kind.finishes or (settlement.kind is SettlementKind.FAILED and settlement.yields)


def as_cancelled(settlement: Settlement, reason: str, now: datetime) -> Settlement:
    """What is written in place of a settlement that gives way. Its error is kept."""
    error = settlement.error or asked_to_end(reason, now)
    return replace(settlement, kind=SettlementKind.CANCELLED, delay=None, run_at=None, error=error)
