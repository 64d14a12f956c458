"""Lost workers' jobs that can't be settled now: each waits by itself, for longer each time, and is told of once."""

from __future__ import annotations

import logging
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.runtime._log import event
from aioqueue.worker._backoff import Backoff
from aioqueue.worker._text import one_line

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import Claim, ClaimedJob

__all__ = ["WaitingOrphans"]

logger = logging.getLogger("aioqueue.worker")

_MOST_ENTRIES = 10_000
_OFTEN_LOCKED = 4
"""Times that a row was found locked, after which that is worth a line in the log."""
_MOST_NAMED = 10
_FIRST_WAIT_SECONDS = 1.0
_LOCKED = "somebody else has locked its row"


@dataclass(slots=True)
class _Entry:
    backoff: Backoff
    until: float = 0.0
    times: int = 0
    told: bool = False


class WaitingOrphans:
    """Keeps the lost workers' jobs that `Recovery` couldn't settle. It asks which are to be tried, and says which couldn't be.

    Arguments:
        name: The worker's.
        longest: Seconds that a job waits at most until it's tried again.
    """

    def __init__(self, name: str, longest: float) -> None:
        self._name = one_line(name)
        self._longest = longest
        self._entries: dict[Claim, _Entry] = {}
        self._news: list[str] = []

    def __len__(self) -> int:
        return len(self._entries)

    def ready(self, jobs: Sequence[ClaimedJob]) -> tuple[list[ClaimedJob], list[ClaimedJob]]:
        """Sort jobs: those that are new, and those that were put off and whose time has come. The rest waits."""
        if not self._entries:
            return list(jobs), []
        now = time.monotonic()
        new = [job for job in jobs if job.claim not in self._entries]
        again = [job for job in jobs if (entry := self._entries.get(job.claim)) is not None and entry.until <= now]
        return new, again

    def forget_others(self, left: Sequence[ClaimedJob]) -> None:
        """Keep nothing but these: they're all that is left of lost workers, so that the others were settled by somebody."""
        if self._entries:
            claims = {job.claim for job in left}
            self._entries = {claim: entry for claim, entry in self._entries.items() if claim in claims}

    def add(self, job: ClaimedJob, why: str = "") -> None:
        """Put a job off, since somebody else has locked its row, or for another reason."""
        entry = self._entries.get(job.claim)
        if entry is None:
            if len(self._entries) >= _MOST_ENTRIES:
                return
            entry = self._entries[job.claim] = _Entry(Backoff(_FIRST_WAIT_SECONDS, self._longest))
        entry.until = time.monotonic() + entry.backoff.next()
        entry.times += 1
        if not entry.told and (why or entry.times >= _OFTEN_LOCKED):
            entry.told = True
            self._news.append(f"{job.type} {job.id}: {why or _LOCKED}")

    def tell(self) -> None:
        """Write one line about those that are worth it, and weren't told of yet."""
        news, self._news = self._news, []
        if news:
            logger.warning(
                "worker %s: %d jobs of lost workers can't be recovered now; that is tried again now and then. %s%s",
                self._name,
                len(news),
                "; ".join(one_line(each) for each in news[:_MOST_NAMED]),
                "" if len(news) <= _MOST_NAMED else "; …",
                extra=event("recovery.waiting", worker=self._name, jobs=len(news)),
            )
