"""What a store has to offer. Locking and ordering contracts stand here, not on the adapters.

Everything is batched: one call serves many jobs, and a store on a server needs one round trip for it in the ordinary
case. "Now" is always the database's clock. A call that raises has changed nothing, except that after
`StoreUnavailable` its commit may be unclear: each write says what repeating it does.

The values that it speaks of are in `vocabulary`, where the package's own modules take them from; users find them here.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from aioqueue.vocabulary._abilities import (
    SupportsDiagnosis,
    SupportsGates,
    SupportsMigrate,
    SupportsMigrationSQL,
    SupportsPauses,
    SupportsPendingMigrations,
    SupportsPrune,
    SupportsReconnects,
    SupportsRetention,
    SupportsSchedules,
    SupportsStatement,
)
from aioqueue.vocabulary._abilities_telling import SupportsEvents, SupportsWebhooks
from aioqueue.vocabulary._answers import Cancellation, Changed, Due, Pruned, Renewal
from aioqueue.vocabulary._blockers import Blocker, ChainEnd, EndedBlocker, NewBlocker, Tended
from aioqueue.vocabulary._finding import Finding, Verdict
from aioqueue.vocabulary._listing import IdPage, JobFilter, ListOrder, Page
from aioqueue.vocabulary._notification import Notification
from aioqueue.vocabulary._quota import Quota
from aioqueue.vocabulary._stats import Stats, TypeStats
from aioqueue.vocabulary._store_inserting import Insertable
from aioqueue.vocabulary._store_leasing import Leasable
from aioqueue.vocabulary._store_operating import Operable
from aioqueue.vocabulary._store_parts import LeaseSession, Listener, StoreTransaction
from aioqueue.vocabulary._store_recording import Recordable
from aioqueue.vocabulary._workers import LeaseFacts, Standing

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from contextlib import AbstractAsyncContextManager, AbstractContextManager

    from aioqueue.vocabulary._gates import GateRules
    from aioqueue.vocabulary._job import Claim, ClaimedJob, Ending, LostReason, Settlement, SettleResult

__all__ = [
    "Blocker",
    "Cancellation",
    "ChainEnd",
    "Changed",
    "Due",
    "EndedBlocker",
    "Finding",
    "IdPage",
    "Insertable",
    "JobFilter",
    "Leasable",
    "LeaseFacts",
    "LeaseSession",
    "ListOrder",
    "Listener",
    "NewBlocker",
    "Notification",
    "Operable",
    "Page",
    "Pruned",
    "Quota",
    "Recordable",
    "Renewal",
    "Standing",
    "Stats",
    "Store",
    "StoreFactory",
    "StoreTransaction",
    "SupportsDiagnosis",
    "SupportsEvents",
    "SupportsGates",
    "SupportsMigrate",
    "SupportsMigrationSQL",
    "SupportsPauses",
    "SupportsPendingMigrations",
    "SupportsPrune",
    "SupportsReconnects",
    "SupportsRetention",
    "SupportsSchedules",
    "SupportsStatement",
    "SupportsWebhooks",
    "Tended",
    "TypeStats",
    "Verdict",
]


@runtime_checkable
class Store(Insertable, Operable, Recordable, Leasable, Protocol):
    """Where jobs live. `Insertable` has its verb for producers, `Operable` those for looking and operating, `Recordable` those
    for what running jobs say of themselves, `Leasable` those that make leases; what not every store can do has protocols of its
    own: `SupportsMigrate` and its like.

    Every method is safe to call from several tasks at once, and to cancel at any await: a cancelled call leaves no lock,
    transaction, thread or connection behind, and its write has either happened whole or not at all.

    From `open` to `close` an instance belongs to the event loop, and so to the thread, and to the process in which it was
    opened. What its methods give, by where they are called and how far its life is:

    | The store is | `open` | `close` | any other method |
    |---|---|---|---|
    | never opened, or closed | opens it | does nothing | `ClientClosed` |
    | being opened | `ConfigurationError` | lets that `open` end with `ClientClosed` | `ClientClosed` |
    | open, here | `ConfigurationError` | closes it | works |
    | open in another event loop | `ConfigurationError` | `ClientClosed` | `ClientClosed` |
    | open in an event loop that was closed | opens it anew | gives up what is left | `ClientClosed` |
    | open in the process from which this one was forked | opens it anew | forgets it | `ClientClosed` |

    `transaction`, `lease_session` and `subscribe` raise when they are called, or when their block is entered; a thread without
    an event loop is told as another event loop is. A fork never touches the connections of its parent, whatever it calls.
    A transaction that is open when the store is closed is rolled back: its methods, and the end of its block, raise
    `ClientClosed`. Lease sessions of the store raise it too, and are closed by whoever has them. A subscription may be left
    anywhere.

    `description`, `troubles` (none, unless it's open) and the abilities that say so work in each of these places.
    `ClientClosed` means that trying again won't help: a worker ends with it.
    """

    @property
    def description(self) -> str:
        """What it is connected to, without a password: for logs and errors."""
        ...

    @property
    def troubles(self) -> Mapping[str, str]:
        """What the store itself knows to be wrong at the moment, as text for people by part of it; empty when all is well.

        Such as `{"notifications": "they don't arrive: jobs are found by polling"}`. Looking costs nothing.
        """
        ...

    # -- life ---------------------------------------------------------------------------------------------------

    async def open(self) -> None:
        """Connect, and check that the schema fits this code. SQLite migrates by itself. What fails leaves nothing open.

        Raises:
            StoreIncompatible: The schema doesn't fit.
            StoreUnavailable: No connection.
            ConfigurationError: It's open, or being opened, in this process.
            ClientClosed: It was closed before this had ended.
        """
        ...

    async def close(self) -> None:
        """Disconnect; bounded in time. May be called twice.

        Raises:
            ClientClosed: It's open in another event loop, and stays open.
        """
        ...

    # -- producers ------------------------------------------------------------------------------------------------

    def within(self, tx: object) -> Operable:
        """The verbs for looking and operating, in the transaction that is open on a connection or session of the user's.

        Arguments:
            tx: As of `insert`; used only by the verbs, each of which raises what `insert` raises for it.
        """
        ...

    def transaction(self) -> AbstractAsyncContextManager[StoreTransaction]:
        """Open a transaction: committed when the block ends, rolled back when it raises or is cancelled.

        If the store is closed meanwhile it's rolled back for certain, and the end of its block raises ClientClosed.
        """
        ...

    # -- workers --------------------------------------------------------------------------------------------------

    async def claim(
        self,
        lease_id: int,
        types: Sequence[str],
        limit: int,
        *,
        leases: Mapping[str, int] | None = None,
        dry_run: bool = False,
        quotas: Sequence[Quota] = (),
        gates: Mapping[str, GateRules] | None = None,
    ) -> Sequence[ClaimedJob]:
        """Take due jobs of the given types: state running, attempt and claims one more, owned by the lease.

        By priority. Within one the types take turns: the first due job of each comes before the second of any; with less room
        than that, those types come first that this store's claims haven't served for longest. Of one type and priority the
        order is (due time, id), as the answer's is with the priority. The same statement checks state and due time; rows that
        somebody else has locked are skipped. Expired jobs come too, marked. The leases must be valid at that moment.

        A row that can't be claimed, counted or read (an odd value that somebody wrote with SQL) fails alone: it's moved to
        the archive as failed, with a reason in its history, as far as it can be, and its neighbours are claimed. After an
        unclear commit don't repeat it: the lease thread finds what was taken (`Renewal.unheld`).

        Arguments:
            lease_id: Owns what is taken.
            types: Names.
            limit: Jobs at most.
            leases: Types whose jobs are taken for another lease of the same worker, with its id.
            dry_run: Whether they're dry runs from now on, to their chains' ends (`Origin.dry_run`), whoever goes on with them.
            quotas: Of some of the types fewer jobs than `limit`; the others have what that leaves.
            gates: Of those of the types that have any: at which gates their jobs wait. Jobs with a sequence of their own wait
                at it, whatever their type. Only for stores with `SupportsGates`.

        Raises:
            LeaseLost: One of the leases isn't valid; nothing was taken.
        """
        ...

    async def settle(
        self, settlements: Sequence[Settlement], *, orphaned: bool = False, tx: object | None = None
    ) -> Sequence[SettleResult]:
        """Write how attempts ended, each on its own: one that is lost doesn't stop its neighbours.

        A settlement counts only if the job is running with exactly its (id, lease_id, claims) and, in the same
        statement, the lease's row exists (expired or not). With `orphaned` the condition on the lease is the
        opposite: no valid lease with that id exists: so that recovered jobs are written by whoever recovers them. The
        lease's row, if there is one, is then deleted or locked in the same transaction: a renewal at that moment is either
        seen, and the settlement is refused, or it finds no lease.
        Finished jobs move to the archive. Every change to pending sets the due time to at least now.
        A continued one is replaced by its `next` in the same transaction, and as one change: nobody can take its chain's unique
        key in between. Listeners are told of the next one's type and due time, and of chains that have ended, by the chain's
        id; of a continued job they aren't. A settlement whose `next` has an id that is there already is refused.
        Repeating a settlement that was written answers as the first time did.

        Of a chain that was asked to end (`cancel`) none becomes pending: what would be is written as cancelled, with its error
        (without one, with an entry of the type `Cancelled` and the request's reason), and so is a failed one that yields. Of a
        continued one the `next` is archived as cancelled, unstarted. What is completed, or failed on purpose, stands.
        `SettleResult.cancelled` says so. The request ends with the chain.

        Of a chain that has ended, those that wait for it are told in the same transaction, a bounded number of them; the rest
        is stored as something that is still to be done, which `tend` goes on with. A continued job passes on that it has
        dependents. Outcomes without `children`, whose `next` has no blockers and whose job is neither waited for nor has
        waited, are written as if there were no such thing. A `next` with blockers is stored as blocked; one that would wait for
        its own chain, through whatever other chains, is refused (`SettleResult.refused`), also where two that would wait for
        each other are settled at the same moment.

        With `tx` they are written on that connection, where `hold` has locked the jobs: they are so once its owner has
        committed.

        It doesn't wait for a row that somebody else has locked: its result says `busy`, nothing of it was written, and its
        neighbours are written all the same. It may be repeated a little later.

        Returns:
            One result each, in order.

        Raises:
            RowRejected: One of the rows is at fault, and the store can't tell which; nothing was written.
            TransactionError: With `tx`: as of `end`.
        """
        ...

    async def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool = False) -> None:
        """Give claims back unstarted: pending at once, the attempt not counted. Those not owned are left alone.

        A row that somebody else has locked isn't waited for, and may be left as it is: the lease's renewals go on to tell of
        it (`Renewal.unheld`). Of a chain that was asked to end it's archived as cancelled.

        With `end` the lease ends too, and everything that it still holds is given back. A row that stays locked for seconds
        is left to recovery.
        """
        ...

    async def take_expired(self, limit: int, *, own: Collection[int] = ()) -> Sequence[ClaimedJob]:
        """Recover jobs of dead workers: delete at most one lease that has expired, which fences all its jobs at once, and
        return up to `limit` jobs that are running without a valid lease, oldest first, whatever became of their lease
        rows. They stay running until `settle(orphaned=True)`; two workers may get the same ones, and the fence lets one of
        them win. They are never marked as expired: they have been started. What they have waited for isn't looked up
        (`ClaimedJob.blockers` is empty): none of them is run by this.

        A row that can't be read fails alone, as in `claim`. One that somebody else has locked may be left out, so that it
        doesn't stand before the others.

        Arguments:
            limit: Jobs at most.
            own: Leases of the worker that asks: neither they nor their jobs are taken, even if they have expired.
        """
        ...

    async def hold(self, claim: Claim, lease_id: int, *, tx: object) -> LostReason | None:
        """Lock a running job by its claim, on a connection or session of the user's with an open transaction (see `insert`),
        until that ends: from then on nobody else ends it or takes it, whatever becomes of its lease. The lease's row is looked
        at, and not locked. The lock is waited for, for a fraction of a second.

        Returns:
            Why the claim isn't the lease's own any more; None if it's held.

        Raises:
            StoreContended: Somebody's open transaction has locked the row.
            NotInTransaction, TypeError: As of `insert`.
        """
        ...

    async def end(self, endings: Sequence[Ending], *, tx: object | None = None) -> Sequence[bool]:
        """End jobs that aren't finished, each on its own, as `settle` does: but whoever holds them, and without an attempt.

        A blocked, scheduled, ready or running job is ended; nothing remains of what it waited for, unless it has failed and may
        be retried. It's archived without a lease, so that a late write of the worker that ran it isn't taken for a repetition
        of this one; that worker's lease is told of (`Notification.leases`), and its next renewal says `already_completed`. Rows
        that somebody has locked are waited for, for a fraction of a second.

        Arguments:
            endings: In the order of the results.
            tx: As of `insert`: what is ended is so once the owner has committed.

        Returns:
            Whether it was ended with this, for each. False means that no job with that id is live: look what became of it. A
            repetition after an unclear commit says False as well.

        Raises:
            StoreContended: Somebody's open transaction holds one of the rows. Nothing was written.
            BlockerNotFound, BlockerCycle: For a `next` or a child. Nothing was written.
            RowRejected: One of the rows is at fault. Nothing was written.
            TransactionError: A `next` waits for chains that are there already, and the isolation of `tx` hides what others have
                written meanwhile, so that a circle might be closed unseen. Nothing was written.
        """
        ...

    async def tend(self, limit: int) -> Tended:
        """See to what no worker's claim leads to, one bounded portion. All workers call it now and then.

        It goes on telling of chains that have ended, one level at a time: those that took the end either way (`settled`) and
        those whose last open blocker has completed become pending, due now or later, with their time to expire counted from
        there; those that need an output which there won't be fail, with a history entry of the type `BlockerFailed` whose
        message names the first cause, and theirs are told next. It finds blockers whose chain has ended or is gone without
        anybody having told, such as after a deletion by SQL. It discards jobs that are blocked or pending and haven't been
        started in time, as a claim would (cancelled, with an entry of the type `Expired`). And it forgets how chains ended for
        which nobody waits any more, and windows of unique keys that are over.

        Rows that somebody has locked are left for the next time. Listeners are told as by `settle`.

        Arguments:
            limit: Jobs at most that are changed by it, of each kind.
        """
        ...

    async def next_due(
        self, types: Sequence[str], *, own: Collection[int] = (), gates: Mapping[str, GateRules] | None = None
    ) -> Due:
        """When there is something to do for jobs of these types, in one statement; the leases in `own` don't count.

        Arguments:
            types, gates: As of `claim`: what it would find counts, and when it would find more. Marks at gates are due at once,
                and so is the next start that a rate allows where somebody waits for it.
            own: Leases of the worker that asks.
        """
        ...

    # -- notifications --------------------------------------------------------------------------------------------

    def subscribe(self, listener: Listener, *, finished: bool = False) -> AbstractContextManager[None]:
        """Call the listener with every notification, from this process and others, until the context is left.

        Arguments:
            listener: See `Listener`.
            finished: Whether somebody waits for finished jobs: a store may spare itself telling of them otherwise.
        """
        ...


class StoreFactory(Protocol):
    """What an entry point of the group `aioqueue.stores` names; its name is the URL's scheme."""

    def __call__(self, url: str, **options: Any) -> Store:
        """Make a store that isn't open yet.

        Raises:
            ConfigurationError: The URL or an option can't be used.
        """
        ...
