"""Leases: opened for a worker, and ended; and claims that a worker gives back.

The functions run in the writer's thread, `open_lease` and `_release` inside an open write transaction.
"""

from __future__ import annotations

import functools
import logging
from typing import TYPE_CHECKING

from aioqueue.errors import AioqueueError, StoreError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections import Connection, begin, in_transaction
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._errors import concerns_a_row
from aioqueue.sqlite._lease_clock import clock_parameters
from aioqueue.sqlite._lease_odd import held_one_by_one
from aioqueue.sqlite._lease_singleton import make_way
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import NOW, moment
from aioqueue.sqlite._settle_end import end as end_jobs
from aioqueue.sqlite._settle_requests import REASON, reason_of
from aioqueue.store_rules._cancelling import asked_to_end
from aioqueue.store_rules._lease_ids import new_lease_id
from aioqueue.vocabulary._job import Ending, SettlementKind
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Sequence

    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.sqlite._rows_odd import OddRows
    from aioqueue.vocabulary._job import Claim

__all__ = ["DELETE_LEASE", "Leases", "open_lease"]

logger = logging.getLogger("aioqueue.sqlite")

_OPEN = f"""
INSERT INTO lease (id, worker, opened_at, expires_at, clock, boot, extra, types, slots, singleton)
VALUES (:lease, :worker, {NOW}, {NOW} + :duration, :clock, :boot, :extra, :types, :slots, :singleton)
"""

_REMEMBER = f"""
INSERT OR REPLACE INTO past_lease (id, worker, opened_at) VALUES (:lease, :worker, {NOW})
"""
"""Who it was, for as long as finished jobs show that."""

DELETE_LEASE = "DELETE FROM lease WHERE id = :lease"

_RELEASED_OWNED = f"""
SELECT {NOW}, (SELECT json_group_array(json_array(job.id, CAST(job.type AS TEXT), {REASON}))
FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
WHERE job.state = 2 AND job.claims = s.value ->> 1 AND job.lease_id = :lease
  AND EXISTS (SELECT 1 FROM lease WHERE lease.id = :lease))
"""

_RELEASED_ALL = f"""
SELECT {NOW}, (SELECT json_group_array(json_array(CAST(id AS TEXT), CAST(type AS TEXT), {REASON}))
FROM job INDEXED BY job_running WHERE state = 2 AND lease_id = :lease)
"""

_RELEASE = """
UPDATE job SET state = 1, lease_id = NULL, attempt = attempt - 1, run_at = :now,
    started_at = iif(attempt <= 1 AND reschedules = 0, NULL, started_at)
WHERE id IN (SELECT value ->> 0 FROM json_each(:rows))
"""


class Leases:
    """Leases of one open store.

    Arguments:
        writer: Where they're written.
        odd_rows: What is done with rows that can't be given back.
    """

    def __init__(self, writer: Writer, odd_rows: OddRows) -> None:
        self._writer = writer
        self._odd_rows = odd_rows

    async def open(
        self,
        worker: str,
        duration: float,
        *,
        extra: bool,
        types: Sequence[str] | None,
        slots: int | None,
        singleton: str | None,
    ) -> int:
        """Make a lease, as `aioqueue.abc.Store.open_lease` promises."""
        make = functools.partial(open_lease, worker=worker, duration=duration, extra=extra, types=types, slots=slots)
        if singleton is None:
            return await self._writer.write(lambda connection: (make(connection), None))

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[int, Notification | None]:
            waited = begin(connection, self._writer.timeout, abandoned)

            def body(each: sqlite3.Connection) -> tuple[int, Notification | None]:
                ended = make_way(each, singleton, waited)
                return make(each, singleton=singleton), Notification(leases=ended) if ended else None

            return in_transaction(connection, self._writer.timeout, body, abandoned, begun=True)

        return await self._writer.hop(run)

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool) -> None:
        """Give claims back, as `aioqueue.abc.Store.release` promises.

        A lease's end doesn't depend on that: what can't be given back is logged.
        """
        whole = functools.partial(_release, lease_id=lease_id, claims=claims, end=end)

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[None, Notification | None]:
            try:
                return None, in_transaction(connection, self._writer.timeout, whole, abandoned)
            except StoreError as error:
                if not end or not concerns_a_row(error):
                    raise
            return None, _end_one_by_one(connection, self._odd_rows, lease_id)

        await self._writer.hop(run)


def open_lease(
    connection: sqlite3.Connection,
    worker: str,
    duration: float,
    *,
    extra: bool = False,
    types: Sequence[str] | None = None,
    slots: int | None = None,
    singleton: str | None = None,
) -> int:
    """Make a lease, and give its id."""
    lease_id = new_lease_id()
    parameters = {"lease": lease_id, "worker": worker, "duration": round(duration * 1e6), "extra": int(extra)}
    told = {"types": None if types is None else dump(list(types)), "slots": slots, "singleton": singleton}
    connection.execute(_OPEN, {**parameters, **told, **clock_parameters()})
    connection.execute(_REMEMBER, {"lease": lease_id, "worker": worker})
    return lease_id


def _release(connection: sqlite3.Connection, lease_id: int, claims: Sequence[Claim], *, end: bool) -> Notification | None:
    """Give claims back, and with `end` the lease and all that it holds."""
    if end:
        now, rows = one(connection, _RELEASED_ALL, {"lease": lease_id})
        connection.execute(DELETE_LEASE, {"lease": lease_id})
    else:
        asked = dump([[str(each.id), each.claims] for each in claims])
        now, rows = one(connection, _RELEASED_OWNED, {"rows": asked, "lease": lease_id})
    given = load(rows)
    if given:
        connection.execute(_RELEASE, {"rows": rows, "now": now})
    if not given and not end:
        return None
    types = frozenset(entry[1] for entry in given if entry[2] is None)
    own = Notification(types=types, leases=frozenset({lease_id}) if end else frozenset())
    to_end = [entry for entry in given if entry[2] is not None]
    return merged([own, *_end_asked(connection, to_end, now)]) if to_end else own


def _end_asked(connection: sqlite3.Connection, given: Sequence[list[str]], now: int) -> list[Notification]:
    """End jobs that were given back, and whose chains were asked to end."""
    errors = [(job_id, asked_to_end(reason_of(digits), moment(now))) for job_id, _, digits in given]
    endings = [Ending(id=id_of(job_id), kind=SettlementKind.CANCELLED, error=error) for job_id, error in errors]
    notification = end_jobs(connection, endings)[1]
    return [] if notification is None else [notification]


def _end_one_by_one(connection: Connection, odd_rows: OddRows, lease_id: int) -> Notification | None:
    """End a lease, and give back what it holds, as far as that can be written: the rest become jobs of a dead worker."""
    claims = sorted(held_one_by_one(connection, odd_rows, lease_id)[0], key=lambda claim: claim.id)
    notifications: list[Notification] = []
    give = functools.partial(_release, lease_id=lease_id, end=False)
    for part, outcome in halved(connection, odd_rows.timeout, claims, lambda each, some: give(each, claims=some)):
        if isinstance(outcome, AioqueueError):
            logger.error(
                "job %s can't be given back: %s",
                part[0].id,
                outcome,
                extra=event("store.job_not_returned", job_id=str(part[0].id)),
            )
        elif outcome is not None:
            notifications.append(outcome)
    in_transaction(connection, odd_rows.timeout, lambda each: each.execute(DELETE_LEASE, {"lease": lease_id}))
    return merged([*notifications, Notification(leases=frozenset({lease_id}))])
