"""Opening leases, renewing them from their own thread, and giving back what they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeVar

from aioqueue.errors import SingletonHeld
from aioqueue.testing.memory._operate_cancel import asked_why, end_as_asked, tell_of_requested
from aioqueue.testing.memory._settle import holds, why_lost
from aioqueue.vocabulary._answers import Renewal
from aioqueue.vocabulary._job import LostReason, StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from datetime import datetime

    from aioqueue.runtime._home import Home
    from aioqueue.testing.memory._rows import Database
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import Claim

__all__ = ["MemoryLeaseSession", "make_way", "release", "renew"]

T = TypeVar("T")


class MemoryLeaseSession:
    """What the lease thread uses: see `LeaseSession`.

    Arguments:
        database: What its store has.
        home: Where the store is open.
        timeout: Seconds that each call may take, for those who override `perform`.
    """

    def __init__(self, database: Database, home: Home, timeout: float) -> None:
        self.database = database
        self._home = home
        self.timeout = timeout

    def perform(self, verb: str, work: Callable[[], T]) -> T:  # noqa: ARG002 - for those who override it
        """Do what was asked for. Every call but `close` comes here: what refuses or delays them overrides it."""
        with self.database.lock:
            return work()

    def _verb(self, verb: str, work: Callable[[], T]) -> T:
        self._home.check_from_thread("this lease session")
        return self.perform(verb, work)

    def connect(self) -> None:
        """There is nothing to connect to."""
        self._verb("connect", lambda: None)

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        """See `LeaseSession.renew`."""
        return self._verb("renew", lambda: renew(self.database, lease_id, duration, held))

    def close(self) -> None:
        """There is nothing to close."""


def make_way(database: Database, singleton: str | None) -> None:
    """Delete a lease that has a name that only one may have, and has run out.

    Raises:
        SingletonHeld: It's valid.
    """
    now = database.now()
    for lease_id, lease in list(database.leases.items()):
        if singleton is None or lease.singleton != singleton:
            continue
        if has_the_name(database, lease_id, now):
            raise SingletonHeld(
                f"{lease.worker} works as the only one of the name {singleton}",
                name=singleton,
                worker=lease.worker,
                ends_in=(lease.expires_at - now).total_seconds(),
            )
        database.take_lease(lease_id)
        database.tell(Notification(leases=frozenset({lease_id})))


def has_the_name(database: Database, lease_id: int, now: datetime) -> bool:
    """Whether a lease keeps others from the name that only one may have."""
    return database.valid(lease_id, now)


def renew(database: Database, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
    """Move the end of a lease, and compare what it holds."""
    if not may_renew(database, lease_id):
        return Renewal(valid=False)
    database.renew_lease(lease_id, duration)
    return Renewal(
        valid=True,
        lost=lost(database, lease_id, held),
        unheld=unheld(database, lease_id, held),
        asked_to_stop=asked_to_stop(database, lease_id),
    )


def may_renew(database: Database, lease_id: int) -> bool:
    """Whether a lease is still its worker's, though it may have run out: nobody has taken anything of it."""
    return lease_id in database.leases


def lost(database: Database, lease_id: int, held: Sequence[Claim]) -> dict[Claim, LostReason]:
    """What the worker thinks that it holds, and doesn't."""
    reasons: dict[Claim, LostReason] = {}
    for claim in held:
        reason = why_lost(database.rows.get(claim.id), claim.claims, lease_id)
        if reason is not None:
            reasons[claim] = reason
    return reasons


def unheld(database: Database, lease_id: int, held: Sequence[Claim]) -> tuple[Claim, ...]:
    """What the lease has, and its worker doesn't know of."""
    known = frozenset(held)
    return tuple(row.claim for row in _owned(database, lease_id) if row.claim not in known)


def asked_to_stop(database: Database, lease_id: int) -> dict[Claim, str]:
    """What the lease has, and whose chains were asked to end, with the reasons."""
    reasons = {row.claim: asked_why(database, row) for row in _owned(database, lease_id)}
    return {claim: reason for claim, reason in reasons.items() if reason is not None}


def _owned(database: Database, lease_id: int) -> list[Row]:
    return [row for row in database.rows.values() if row.state == StoredState.RUNNING and row.lease_id == lease_id]


def release(database: Database, lease_id: int, claims: Sequence[Claim], *, end: bool) -> None:
    """Give claims back unstarted. See `Store.release`."""
    now = database.now()
    named = list(claims)
    if end:
        named += [row.claim for row in _owned(database, lease_id) if row.claim not in claims]
    types: set[str] = set()
    ended: list[Row] = []
    for claim in named:
        row = database.rows.get(claim.id)
        if row is None or row.locked(now) or not may_give_back(database, row, claim, lease_id):
            continue
        reason = asked_when_given_back(database, row)
        database.give_back(row, now)
        if reason is None:
            types.add(row.new.type)
        else:
            end_as_asked(database, row, reason, now)
            ended.append(row)
    if end and lease_id in database.leases:
        database.end_lease(lease_id)
    if types:
        database.tell(Notification(types=frozenset(types)))
    tell_of_requested(database, ended, now)


def asked_when_given_back(database: Database, row: Row) -> str | None:
    """Why the chain of a job that is given back was asked to end; None if it wasn't."""
    return asked_why(database, row)


def may_give_back(database: Database, row: Row, claim: Claim, lease_id: int) -> bool:
    """Whether a claim is the lease's to give back."""
    return holds(row, claim.claims, lease_id) and lease_id in database.leases
