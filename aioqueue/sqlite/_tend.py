"""Seeing to what no worker's claim leads to, in portions: untold ends, jobs that are too late, and what nobody needs."""

from __future__ import annotations

import functools
import logging
import time
from typing import TYPE_CHECKING

from aioqueue.errors import AioqueueError, StoreError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections import in_snapshot, in_transaction
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._errors import concerns_a_row, translated
from aioqueue.sqlite._gates_sweep import Swept
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._operate_cancel import end_unstarted
from aioqueue.sqlite._resolve import Resolved, first_to_tell, resolve, resolve_if_possible
from aioqueue.sqlite._resolve_ends import End, archived_ends, store_ends
from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import NOW, moment
from aioqueue.sqlite._settle_archive import archive_ended, archived_row
from aioqueue.sqlite._tend_look import DONE_WITH, LATE, LOST, NEEDLESS, OVER, Found, Places, look
from aioqueue.sqlite._tend_old import OldRows
from aioqueue.store_rules._causes import cause_of, expired
from aioqueue.vocabulary._blockers import ChainEnd, Tended
from aioqueue.vocabulary._job import StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Reader, Writer
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.sqlite._gates_sweep import GateSweep
    from aioqueue.sqlite._pauses_parked import ParkedJobs
    from aioqueue.sqlite._rows_ids import RowId

__all__ = ["Tending"]

logger = logging.getLogger("aioqueue.sqlite")

_PASSED_OVER_SECONDS = 60.0
"""After that a job that could be neither told nor discarded is tried again."""

_STILL_LOST = f"""
SELECT {NOW}, (SELECT json_group_array(chain_id) FROM (SELECT value AS chain_id FROM json_each(:chains)) AS named WHERE {LOST})
"""

_FORGET_BLOCKERS = f"""
DELETE FROM blocker WHERE job_id IN (
    SELECT job_id FROM (SELECT value AS job_id FROM json_each(:jobs)) AS named WHERE {DONE_WITH})
"""

_FORGET_ENDS = f"""
DELETE FROM chain_end WHERE chain_id IN (
    SELECT chain_id FROM (SELECT value AS chain_id FROM json_each(:chains)) AS named WHERE {NEEDLESS})
"""

_FORGET_WINDOWS = f"DELETE FROM dedup WHERE key IN (SELECT value FROM json_each(:keys)) AND {OVER}"

_STILL_LATE = f"""
SELECT {NOW}, (SELECT json_group_array(json_array(
    job.id, CAST(job.type AS TEXT), CAST(coalesce(job.chain_id, job.id) AS TEXT), job.marked IS NOT 0))
FROM json_each(:ids) AS asked CROSS JOIN job ON job.id = asked.value WHERE {LATE})
"""


class Tending:
    """What one open store does of it.

    Arguments:
        writer: Where it's written.
        reader: Where is looked.
        parked: Brings jobs back whose keys aren't paused any more.
        gates: Sees to what no mark leads to at gates.
    """

    def __init__(self, writer: Writer, reader: Reader, parked: ParkedJobs, gates: GateSweep) -> None:
        self._writer = writer
        self._reader = reader
        self._parked = parked
        self._gates = gates
        self._places = Places()
        self._old = OldRows()
        self._passed_over: dict[str, float] = {}

    async def tend(self, limit: int) -> Tended:
        """Do one portion, as `aioqueue.abc.Store.tend` promises."""
        skip = self._skip()

        def find(connection: Statements) -> tuple[Found, list[RowId], Swept]:
            found = look(connection, self._places, limit, skip)
            return found, self._parked.look(connection, limit), self._look_at_gates(connection, limit)

        found, parked, swept = await self._reader.read(find)
        if found.nothing and not parked and swept.nothing:
            return Tended()

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[Tended, Notification | None]:
            told, now = self._tell(connection, found, limit, abandoned)
            discarded, notifications = self._discard(connection, found.late, abandoned)
            notifications += self._cancel(connection, found.asked, abandoned)
            resumed, told_of_them = self._parked.bring_back(connection, parked, abandoned)
            notifications += told_of_them
            more_at_gates = self._sweep(connection, swept, limit, abandoned)
            if found.old:
                self._old.forget(connection, self._writer.timeout, limit, abandoned)
            notifications += [each for each in (told.notification(now),) if each is not None]
            tended = Tended(
                resolved=told.told,
                failed=len(told.failed),
                expired=discarded,
                resumed=resumed,
                more=told.more or found.more or len(parked) >= limit or more_at_gates,
            )
            return tended, merged(notifications)

        return await self._writer.hop(run)

    def _look_at_gates(self, connection: Statements, limit: int) -> Swept:
        """See what there is to do at gates. Where that fails, what else there is to do is done all the same."""
        try:
            with translated():
                return self._gates.look(connection, limit)
        except StoreError as error:
            if not concerns_a_row(error):
                raise
            logger.error("gates can't be looked at: %s", error, extra=event("store.gates_refused"))
            return Swept()

    def _sweep(self, connection: Connection, swept: Swept, limit: int, abandoned: Callable[[], bool]) -> bool:
        """See to gates, in a transaction of its own: what is odd there keeps nobody from telling those that wait for chains."""
        if swept.nothing:
            return False
        try:
            sweep = functools.partial(self._gates.write, swept=swept, limit=limit)
            return in_transaction(connection, self._writer.timeout, sweep, abandoned)
        except StoreError as error:
            if not concerns_a_row(error):
                raise
            logger.error("jobs at gates can't be let come: %s", error, extra=event("store.gates_refused"))
            return False

    def _skip(self) -> list[str]:
        now = time.monotonic()
        self._passed_over = {job_id: until for job_id, until in self._passed_over.items() if until > now}
        return list(self._passed_over)

    def _pass_over(self, job_id: str, why: AioqueueError) -> None:
        self._passed_over[job_id] = time.monotonic() + _PASSED_OVER_SECONDS
        logger.error("job %s is passed over: %s", job_id, why, extra=event("store.row_passed_over", job_id=job_id))

    def _tell(self, connection: Connection, found: Found, limit: int, abandoned: Callable[[], bool]) -> tuple[Resolved, int]:
        """Tell those that wait; one that refuses it is found by halving the portion, and passed over."""
        portion = limit
        while True:
            body = functools.partial(_tell, found=found, limit=portion, skip=dump(self._skip()))
            try:
                return in_transaction(connection, self._writer.timeout, body, abandoned)
            except StoreError as error:
                if not concerns_a_row(error):
                    raise
                if portion > 1:
                    portion //= 2
                    continue
                first = functools.partial(first_to_tell, chains=[*found.untold, *found.lost], skip=dump(self._skip()))
                guilty = in_snapshot(connection, first)
                if guilty is None:
                    raise
                self._pass_over(guilty, error)

    def _discard(
        self, connection: Connection, late: Sequence[str], abandoned: Callable[[], bool]
    ) -> tuple[int, list[Notification]]:
        discarded = 0
        notifications: list[Notification] = []
        if late:
            for part, outcome in halved(connection, self._writer.timeout, late, _discard, abandoned):
                if isinstance(outcome, AioqueueError):
                    self._pass_over(part[0], outcome)
                else:
                    discarded += outcome[0]
                    notifications += outcome[1]
        return discarded, notifications

    def _cancel(self, connection: Connection, asked: Sequence[str], abandoned: Callable[[], bool]) -> list[Notification]:
        """End jobs that were made pending by what knows nothing of requests, or refused to end before."""
        notifications: list[Notification] = []
        if asked:
            for part, outcome in halved(connection, self._writer.timeout, asked, end_unstarted, abandoned):
                if isinstance(outcome, AioqueueError):
                    self._pass_over(part[0], outcome)
                elif outcome.notification is not None:
                    notifications.append(outcome.notification)
        return notifications


def _tell(connection: sqlite3.Connection, found: Found, limit: int, skip: str) -> tuple[Resolved, int]:
    """Tell those that wait, and forget what nobody needs. What was found may have changed since."""
    now, rows = one(connection, _STILL_LOST, {"chains": dump(found.lost)})
    lost = load(rows)
    if lost:
        ends = zip(lost, archived_ends(connection, lost), strict=True)
        store_ends(connection, [end or End.deleted(chain) for chain, end in ends], now)
    if found.done_with:
        connection.execute(_FORGET_BLOCKERS, {"jobs": dump(found.done_with)})
    if found.needless:
        connection.execute(_FORGET_ENDS, {"chains": dump(found.needless)})
    if found.over:
        connection.execute(_FORGET_WINDOWS, {"keys": dump(found.over)})
    resolved = Resolved()
    resolve(connection, [*found.untold, *lost], now, resolved, limit=limit, skip=skip)
    return resolved, now


def _discard(connection: sqlite3.Connection, ids: Sequence[str]) -> tuple[int, list[Notification]]:
    """Discard jobs that weren't started in time, unless that has changed."""
    now, rows = one(connection, _STILL_LATE, {"ids": dump(ids)})
    late = load(rows)
    if not late:
        return 0, []
    error = expired(moment(now))
    entry = error.encode().decode()
    rows = [archived_row(job_id, StoredState.CANCELLED, error=entry) for job_id, *_ in late]
    deliveries = archive_ended(connection, rows, now)
    end = ChainEnd.CANCELLED
    ends = [
        End(chain, end, job_type, None, cause_of(end, job_type, id_of(chain), error))
        for _, job_type, chain, marked in late
        if marked
    ]
    resolved = Resolved()
    if ends:
        resolve_if_possible(connection, store_ends(connection, ends, now), now, resolved)
    own = Notification(finished=frozenset(id_of(chain) for _, _, chain, _ in late), deliveries=deliveries)
    others = resolved.notification(now)
    return len(late), [own] if others is None else [own, others]
