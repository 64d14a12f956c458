"""What a store hands out, or is given: protocols that `aioqueue.abc.Store` speaks of. `aioqueue.abc` has them too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Sequence
    from contextlib import AbstractAsyncContextManager

    from aioqueue.vocabulary._answers import Renewal
    from aioqueue.vocabulary._job import Claim, Ending, Inserted, LostReason, NewJob, Settlement, SettleResult
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._store_operating import Operable

__all__ = ["LeaseSession", "Listener", "StoreTransaction"]


class Listener(Protocol):
    """Called in the event loop in which the store was opened. Must not block or raise."""

    def __call__(self, notification: Notification, /) -> None: ...


class LeaseSession(Protocol):
    """Renews leases from a thread of its own, whatever the event loop does. All methods block; one thread uses it.

    It has its own connection, opened by `connect` or at first use, and a new one after an error. Each call ends within the
    session's timeout, connecting included: a connection that has fallen silent is given up in time for another try. It
    may raise `StoreError`; and `ClientClosed`, for good, once its store was closed, and in a fork.
    """

    def connect(self) -> None:
        """Open the connection if none is open: a worker does so before its first claim, to see that it can.

        Raises:
            StoreUnavailable: The database can't be reached at the moment.
            ConfigurationError: The way in which this thread connects can't work, such as a `connect=` that only works in
                the event loop of the caller.
        """
        ...

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        """Move the lease's end to now + `duration` seconds, unless its row is gone, and compare what it holds.

        A late renewal is granted: as long as the row exists, nobody has taken anything of it. Takes no lock on jobs.
        """
        ...

    def close(self) -> None:
        """Close the connection. May be called twice."""
        ...


class StoreTransaction(Protocol):
    """An open transaction of the store's own, given by `Store.transaction`."""

    @property
    def connection(self) -> Any:
        """The driver's connection."""
        ...

    async def execute(self, sql: str, *arguments: Any) -> int:
        """Run one statement of the user's; returns the number of rows that it changed."""
        ...

    async def fetch(self, sql: str, *arguments: Any) -> Sequence[Any]:
        """Run one query of the user's; the rows are the driver's, readable by position and by name."""
        ...

    @property
    def operations(self) -> Operable:
        """The verbs for looking and operating, within this transaction."""
        ...

    async def insert(self, jobs: Sequence[NewJob]) -> Sequence[Inserted]:
        """As `Store.insert`; listeners hear of it after the commit."""
        ...

    async def hold(self, claim: Claim, lease_id: int) -> LostReason | None:
        """Lock a running job by its claim until the transaction ends: see `Store.hold`."""
        ...

    async def settle(self, settlements: Sequence[Settlement]) -> Sequence[SettleResult]:
        """As `Store.settle`, about claims that this transaction holds; listeners hear of it after the commit."""
        ...

    def savepoint(self) -> AbstractAsyncContextManager[None]:
        """Open a nested block: rolled back alone when it raises or is cancelled. Blocks end in the reverse of their order.

        Raises:
            TransactionError: On leaving: a block that was opened later hasn't ended. What was done in both is rolled back.
        """
        ...

    async def end(self, endings: Sequence[Ending]) -> Sequence[bool]:
        """As `Store.end`; listeners hear of it after the commit."""
        ...
