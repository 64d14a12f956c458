"""The log of what happens to jobs, kept while somebody reads it."""

from __future__ import annotations

from collections import deque
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.store_rules._events import KEPT_SECONDS
from aioqueue.vocabulary._event_log import LoggedEvent

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._event_log import EventKind

__all__ = ["EventLog"]


class EventLog:
    """The log's rows, and who reads them.

    Attributes:
        rows: What is kept, by sequence.
        readers: Until when each of them is valid.
        sequence: Of the newest event.
        removed: The sequence of the newest one that was removed.
        gap: The sequence after which something wasn't logged, the newest time that this was so.
        news: Whether something was logged that nobody was told of.
    """

    def __init__(self) -> None:
        self.rows: deque[LoggedEvent] = deque()
        self.readers: dict[UUID, datetime] = {}
        self.sequence = self.removed = self.gap = 0
        self.news = False

    def watched(self, now: datetime) -> bool:
        """Whether somebody reads."""
        return any(expires_at > now for expires_at in self.readers.values())

    def add(
        self,
        kind: EventKind,
        now: datetime,
        job_id: UUID,
        chain_id: UUID,
        job_type: str,
        *,
        attempt: int = 0,
        claims: int = 0,
        body: bytes = b"{}",
    ) -> None:
        """Log one event. The caller has looked whether somebody reads."""
        self.sequence += 1
        self.news = True
        self.rows.append(
            LoggedEvent(
                sequence=self.sequence,
                kind=kind,
                at=now,
                job_id=job_id,
                chain_id=chain_id,
                job_type=job_type,
                attempt=attempt,
                claims=claims,
                body=body,
            )
        )

    def clean(self, now: datetime) -> None:
        """Remove old events, and readers that aren't valid any more."""
        while self.rows and self.rows[0].at <= now - timedelta(seconds=KEPT_SECONDS):
            self.removed = self.rows.popleft().sequence
        for reader in [each for each, expires_at in self.readers.items() if expires_at <= now]:
            del self.readers[reader]
