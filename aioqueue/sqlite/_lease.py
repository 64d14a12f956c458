"""Leases: opened, renewed from a thread of their own over a blocking connection, and given back.

`open_lease` and `release` run inside an open write transaction, in a thread of the store's.
"""

from __future__ import annotations

import functools
import logging
import secrets
import sqlite3
import time
import warnings
from typing import TYPE_CHECKING, TypeVar

from aioqueue.abc import Notification, Renewal
from aioqueue.errors import StoreError
from aioqueue.sqlite._connections import Connection, connect, in_transaction
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._lease_clock import clock_parameters
from aioqueue.sqlite._lease_odd import fail_held, held_one_by_one
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._rows import Unreadable, dump, load, one
from aioqueue.sqlite._rows_claimed import held_claims
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._settle import lost_reasons

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.sqlite._connections_file import FileWatch
    from aioqueue.sqlite._options import Settings
    from aioqueue.sqlite._rows_ids import RowId
    from aioqueue.sqlite._rows_odd import OddRows
    from aioqueue.store_rules._life import Home
    from aioqueue.vocabulary._job import Claim

__all__ = ["DELETE_LEASE", "SQLiteLeaseSession", "end_one_by_one", "open_lease", "release"]

logger = logging.getLogger("aioqueue.sqlite")

T = TypeVar("T")

_OPEN = f"""
INSERT INTO lease (id, worker, expires_at, clock, boot, extra)
VALUES (:lease, :worker, {NOW} + :duration, :clock, :boot, :extra)
"""

_LARGEST_LEASE = 2**62

_RENEW = f"UPDATE lease SET expires_at = {NOW} + :duration, clock = :clock, boot = :boot WHERE id = :lease"

_HOLDS = """
SELECT json_group_array(json_array(id, claims)) FROM job INDEXED BY job_running WHERE state = 2 AND lease_id = :lease
"""

DELETE_LEASE = "DELETE FROM lease WHERE id = :lease"

_RELEASED_OWNED = f"""
SELECT {NOW}, (SELECT json_group_array(json_array(job.id, CAST(job.type AS TEXT)))
FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
WHERE job.state = 2 AND job.claims = s.value ->> 1 AND job.lease_id = :lease
  AND EXISTS (SELECT 1 FROM lease WHERE lease.id = :lease))
"""

_RELEASED_ALL = f"""
SELECT {NOW}, (SELECT json_group_array(json_array(CAST(id AS TEXT), CAST(type AS TEXT))) FROM job INDEXED BY job_running
WHERE state = 2 AND lease_id = :lease)
"""

_RELEASE = """
UPDATE job SET state = 1, lease_id = NULL, attempt = attempt - 1, run_at = :now,
    started_at = iif(attempt <= 1 AND reschedules = 0, NULL, started_at)
WHERE id IN (SELECT value ->> 0 FROM json_each(:rows))
"""


def open_lease(connection: sqlite3.Connection, worker: str, duration: float, *, extra: bool = False) -> int:
    """Make a lease. Its id is all random: one that was counted would come again after a restore from a backup."""
    lease_id = 1 + secrets.randbelow(_LARGEST_LEASE)
    parameters = {"lease": lease_id, "worker": worker, "duration": round(duration * 1e6), "extra": int(extra)}
    connection.execute(_OPEN, {**parameters, **clock_parameters()})
    return lease_id


def release(connection: sqlite3.Connection, lease_id: int, claims: Sequence[Claim], *, end: bool) -> Notification | None:
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
    return Notification(types=frozenset(entry[1] for entry in given), leases=frozenset({lease_id}) if end else frozenset())


def end_one_by_one(connection: sqlite3.Connection, odd_rows: OddRows, lease_id: int) -> Notification | None:
    """End a lease, and give back what it holds, as far as that can be written: the rest become jobs of a dead worker."""
    claims = sorted(held_one_by_one(connection, odd_rows, lease_id)[0], key=lambda claim: claim.id)
    notifications: list[Notification] = []
    give = functools.partial(release, lease_id=lease_id, end=False)
    for part, outcome in halved(connection, odd_rows.timeout, claims, lambda each, some: give(each, claims=some)):
        if isinstance(outcome, StoreError):
            logger.error("job %s can't be given back: %s", part[0].id, outcome)
        elif outcome is not None:
            notifications.append(outcome)
    in_transaction(connection, odd_rows.timeout, lambda each: each.execute(DELETE_LEASE, {"lease": lease_id}))
    return merged([*notifications, Notification(leases=frozenset({lease_id}))])


class SQLiteLeaseSession:
    """Renews leases from a thread of its own.

    A renewal needs the file's one write lock. While a long transaction keeps it nobody can take the lease away either,
    and the first renewal afterwards is granted as any late one.

    Arguments:
        settings: The file.
        home: Where the store is open.
        timeout: Seconds that each call may take.
        watch: Refuses the file when it isn't the one that was opened.
        odd: What is done with rows that can't be read.
        tell: Called, in the lease thread, with what listeners should hear.
    """

    def __init__(
        self,
        settings: Settings,
        home: Home,
        timeout: float,
        watch: FileWatch,
        odd: OddRows,
        tell: Callable[[Notification], None],
    ) -> None:
        self._settings = settings
        self._timeout = timeout
        self._watch = watch
        self._odd = odd
        self._tell = tell
        self._connection: Connection | None = None
        self._home = home

    def connect(self) -> None:
        """Open the connection if none is open."""
        self._open(time.monotonic() + self._timeout)

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        """Move the lease's end to now + `duration` seconds, unless its row is gone, and compare what it holds."""
        odd: dict[RowId, str] = {}

        def body(connection: sqlite3.Connection) -> Renewal:
            parameters = {"lease": lease_id, "duration": round(duration * 1e6), **clock_parameters()}
            valid = connection.execute(_RENEW, parameters).rowcount == 1
            owned: set[Claim] = set()
            if valid:
                try:
                    owned = held_claims(one(connection, _HOLDS, {"lease": lease_id})[0])
                except Unreadable:
                    owned, strange = held_one_by_one(connection, self._odd, lease_id)
                    odd.update(strange)
            lost = lost_reasons(connection, [each for each in held if each not in owned])
            return Renewal(valid=valid, lost=lost, unheld=tuple(owned - set(held)))

        renewal = self._run(body)
        if odd:
            self._fail(lease_id, odd)
        return renewal

    def _fail(self, lease_id: int, odd: dict[RowId, str]) -> None:
        # What a lease holds and can't be told of would stay running for as long as it's renewed.
        try:
            failed = fail_held(self._open(time.monotonic() + self._timeout), self._odd, lease_id, odd)
        except StoreError as error:
            logger.warning("what lease %d holds and can't be read is looked at later: %s", lease_id, error)
            self.close()
        else:
            self._tell(Notification(finished=frozenset(failed)))

    def __del__(self) -> None:
        if self._connection is not None and not self._home.inherited:
            what = f"a lease session on {self._settings.path}"
            warnings.warn(f"{what} was never closed", ResourceWarning, stacklevel=2, source=self)
            self.close()

    def close(self) -> None:
        """Close the connection. May be called twice."""
        connection, self._connection = self._connection, None
        if connection is not None and not self._home.inherited:
            connection.close()

    def _open(self, deadline: float) -> Connection:
        self._home.check_from_thread("this lease session")
        self._watch.check()
        if self._connection is None:
            self._connection = connect(self._settings, tolerant=True, timeout=self._left(deadline))
        return self._connection

    def _left(self, deadline: float) -> float:
        return min(self._settings.busy_timeout, max(0.0, deadline - time.monotonic()))

    def _run(self, body: Callable[[sqlite3.Connection], T]) -> T:
        deadline = time.monotonic() + self._timeout
        connection = self._open(deadline)
        try:
            return in_transaction(connection, self._left(deadline), body)
        except (StoreError, sqlite3.Error):
            self.close()
            raise
