"""What a worker's lease thread uses: a blocking connection of its own."""

from __future__ import annotations

import functools
import logging
import sqlite3
import time
import warnings
from typing import TYPE_CHECKING, TypeVar

from aioqueue.errors import StoreError
from aioqueue.runtime._log import event
from aioqueue.sqlite._connections import Connection, connect, in_transaction
from aioqueue.sqlite._connections_turns import NotOurTurn
from aioqueue.sqlite._lease_clock import clock_parameters
from aioqueue.sqlite._lease_odd import asked_one_by_one, fail_held, held_one_by_one
from aioqueue.sqlite._rows import Unreadable, one
from aioqueue.sqlite._rows_claimed import asked_claims, held_claims
from aioqueue.sqlite._rows_times import NOW
from aioqueue.sqlite._settle import lost_reasons
from aioqueue.vocabulary._answers import Renewal
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioqueue.runtime._home import Home
    from aioqueue.sqlite._connections_file import FileWatch
    from aioqueue.sqlite._options import Options
    from aioqueue.sqlite._rows_ids import RowId
    from aioqueue.sqlite._rows_odd import OddRows
    from aioqueue.vocabulary._job import Claim

__all__ = ["SQLiteLeaseSession", "renew_owed"]

logger = logging.getLogger("aioqueue.sqlite")

T = TypeVar("T")

_RENEW = f"UPDATE lease SET expires_at = {NOW} + :duration, clock = :clock, boot = :boot WHERE id = :lease"

_HOLDS = """
SELECT json_group_array(json_array(id, claims)),
    json_group_array(json_array(id, claims, hex(cancel_reason))) FILTER (WHERE cancel_reason IS NOT NULL)
FROM job INDEXED BY job_running WHERE state = 2 AND lease_id = :lease
"""


def renew_owed(connection: Connection) -> None:
    """Renew the leases that had to wait for this transaction, as its last statements."""
    for lease_id, duration in connection.turns.owed.items():
        connection.execute(_RENEW, {"lease": lease_id, "duration": duration, **clock_parameters()})


class SQLiteLeaseSession:
    """Renews leases from a thread of its own.

    A renewal needs the file's one write lock. While a long transaction keeps it nobody can take the lease away either,
    and the first renewal afterwards is granted as any late one. If that transaction is of this process, the lease isn't judged:
    the answer is that it's valid, it's renewed with a block's commit, and its holder hears when the transaction has ended.

    Arguments:
        options: The file.
        home: Where the store is open.
        timeout: Seconds that each call may take.
        watch: Refuses the file when it isn't the one that was opened.
        odd: What is done with rows that can't be read.
        tell: Called, in the lease thread, with what listeners should hear.
    """

    def __init__(
        self,
        options: Options,
        home: Home,
        timeout: float,
        watch: FileWatch,
        odd: OddRows,
        tell: Callable[[Notification], None],
    ) -> None:
        self._options = options
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
            asked: dict[Claim, str] = {}
            if valid:
                try:
                    holds, asked_to_end = one(connection, _HOLDS, {"lease": lease_id})
                    owned, asked = held_claims(holds), asked_claims(asked_to_end)
                except Unreadable:
                    owned, strange = held_one_by_one(connection, self._odd, lease_id)
                    odd.update(strange)
                    asked = asked_one_by_one(connection, lease_id, owned)
            lost = lost_reasons(connection, [each for each in held if each not in owned])
            return Renewal(valid=valid, lost=lost, unheld=tuple(owned - set(held)), asked_to_stop=asked)

        try:
            renewal = self._run(body)
        except NotOurTurn:
            # While this process has the file's lock nobody can take the lease.
            over = functools.partial(self._tell, Notification(leases=frozenset({lease_id})))
            if self._connection is None or not self._connection.turns.put_off(lease_id, round(duration * 1e6), over):
                raise
            return Renewal(valid=True)
        if odd:
            self._fail(lease_id, odd)
        return renewal

    def _fail(self, lease_id: int, odd: dict[RowId, str]) -> None:
        # What a lease holds and can't be told of would stay running for as long as it's renewed.
        try:
            failed = fail_held(self._open(time.monotonic() + self._timeout), self._odd, lease_id, odd)
        except StoreError as error:
            logger.warning(
                "what lease %d holds and can't be read is looked at later: %s",
                lease_id,
                error,
                extra=event("store.rows_not_read", lease_id=lease_id),
            )
            self.close()
        else:
            self._tell(Notification(finished=frozenset(failed)))

    def __del__(self) -> None:
        if self._connection is not None and not self._home.inherited:
            what = f"a lease session on {self._options.path}"
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
            self._connection = connect(self._options, tolerant=True, timeout=self._left(deadline))
        return self._connection

    def _left(self, deadline: float) -> float:
        return min(self._options.busy_timeout, max(0.0, deadline - time.monotonic()))

    def _run(self, body: Callable[[sqlite3.Connection], T]) -> T:
        deadline = time.monotonic() + self._timeout
        connection = self._open(deadline)
        try:
            return in_transaction(connection, self._left(deadline), body)
        except NotOurTurn:
            raise
        except (StoreError, sqlite3.Error):
            self.close()
            raise
