"""Claiming: due jobs become a lease's, as many as a worker has room for."""

from __future__ import annotations

import functools
import time
from typing import TYPE_CHECKING

from aioqueue.errors import StoreError
from aioqueue.sqlite._claim_lanes import quotas_as_json
from aioqueue.sqlite._claim_odd import claim_one_by_one
from aioqueue.sqlite._claim_take import Wanted, claim, pick
from aioqueue.sqlite._connections import Connection, in_snapshot, in_transaction
from aioqueue.sqlite._errors import concerns_a_row
from aioqueue.sqlite._rows import Unreadable, dump
from aioqueue.store_rules._turns import Turns, urgency_of

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.sqlite._rows_odd import OddRows
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._quota import Quota

__all__ = ["Claims"]

_PARKING_SECONDS = 0.5
"""For which a claim looks further behind those that it has parked, where it comes to nothing else. Each time is a transaction,
between which others write.
"""


class Claims:
    """Claims of one open store.

    Arguments:
        writer: Where they run.
        odd_rows: What is done with rows that can't be claimed.
    """

    def __init__(self, writer: Writer, odd_rows: OddRows) -> None:
        self._writer = writer
        self._odd_rows = odd_rows
        self._turns = Turns()
        self._idle = True

    async def claim(
        self,
        lease_id: int,
        types: Sequence[str],
        limit: int,
        leases: Mapping[str, int] | None,
        *,
        dry_run: bool,
        quotas: Sequence[Quota] = (),
    ) -> Sequence[ClaimedJob]:
        """Take due jobs, as `aioqueue.abc.Store.claim` promises."""
        names = sorted(set(types))
        turns = dump({name: self._turns.of(name) for name in names} if len(names) > 1 else {})
        wanted = Wanted(lease_id, leases or {}, dump(names), limit, dry_run, turns, quotas_as_json(quotas))

        def run(
            connection: Connection, abandoned: Callable[[], bool]
        ) -> tuple[tuple[Sequence[ClaimedJob], bool], Notification | None]:
            parked: list[str] = []
            try:
                # After an empty claim another one looks first, so that waiting workers don't take the lock in turns.
                if self._idle and in_snapshot(connection, lambda each: _finds_nothing(each, wanted)):
                    return ([], False), None
                if not self._odd_rows.any_stuck():
                    take = functools.partial(claim, wanted=wanted, parked=parked)
                    jobs = in_transaction(connection, self._writer.timeout, take, abandoned)
                    self._idle = not (jobs or parked)
                    return (jobs, bool(parked)), None
            except (Unreadable, StoreError) as error:
                if isinstance(error, StoreError) and not concerns_a_row(error):
                    raise
            jobs, notification = claim_one_by_one(connection, wanted, self._odd_rows, quotas)
            return (jobs, False), notification

        jobs: Sequence[ClaimedJob] = []
        goes_on, until = limit > 0, time.monotonic() + _PARKING_SECONDS
        while goes_on and not jobs:
            jobs, parked = await self._writer.hop(run)
            goes_on = parked and time.monotonic() < until
        self._turns.serve({job.type for job in jobs})
        return sorted(jobs, key=urgency_of)


def _finds_nothing(connection: sqlite3.Connection, wanted: Wanted) -> bool:
    """Whether a claim would neither take nor park anything."""
    _, rows, paused = pick(connection, wanted)
    return rows == "[]" and not paused
