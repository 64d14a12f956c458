"""Claiming: due jobs become a lease's, as many as a worker has room for."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING

from aioqueue.errors import StoreError
from aioqueue.sqlite._claim_odd import claim_one_by_one
from aioqueue.sqlite._claim_take import Wanted, claim, pick
from aioqueue.sqlite._connections import Connection, in_snapshot, in_transaction
from aioqueue.sqlite._errors import concerns_a_row
from aioqueue.sqlite._rows import Unreadable, dump

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Mapping, Sequence

    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.sqlite._rows_odd import OddRows
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._notification import Notification

__all__ = ["Claims"]

_MOST_TIMES = 10
"""That one claim looks further, behind those that it has parked: some 50 ms, with as many commits."""


class Claims:
    """Claims of one open store.

    Arguments:
        writer: Where they run.
        odd_rows: What is done with rows that can't be claimed.
    """

    def __init__(self, writer: Writer, odd_rows: OddRows) -> None:
        self._writer = writer
        self._odd_rows = odd_rows
        self._idle = True

    async def claim(
        self, lease_id: int, types: Sequence[str], limit: int, leases: Mapping[str, int] | None, *, dry_run: bool
    ) -> Sequence[ClaimedJob]:
        """Take due jobs, as `aioqueue.abc.Store.claim` promises."""
        wanted = Wanted(lease_id, leases or {}, dump(sorted(set(types))), limit, dry_run)

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[Sequence[ClaimedJob], Notification | None]:
            try:
                # After an empty claim another one looks first, so that waiting workers don't take the lock in turns.
                if self._idle and in_snapshot(connection, lambda each: _finds_nothing(each, wanted)):
                    return [], None
                if not self._odd_rows.any_stuck():
                    jobs = self._take(connection, wanted, abandoned)
                    self._idle = not jobs
                    return jobs, None
            except (Unreadable, StoreError) as error:
                if isinstance(error, StoreError) and not concerns_a_row(error):
                    raise
            return claim_one_by_one(connection, wanted, self._odd_rows)

        return await self._writer.hop(run) if limit > 0 else []

    def _take(self, connection: Connection, wanted: Wanted, abandoned: Callable[[], bool]) -> Sequence[ClaimedJob]:
        """Claim; again for a while, where all that it came to had paused keys and was parked."""
        for _ in range(_MOST_TIMES):
            parked: list[str] = []
            take = functools.partial(claim, wanted=wanted, parked=parked)
            jobs = in_transaction(connection, self._writer.timeout, take, abandoned)
            if jobs or not parked:
                return jobs
        return []


def _finds_nothing(connection: sqlite3.Connection, wanted: Wanted) -> bool:
    """Whether a claim would neither take nor park anything."""
    _, rows, paused = pick(connection, wanted)
    return rows == "[]" and not paused
