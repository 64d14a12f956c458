"""What every store offers to people and their tools: looking at jobs, and changing them by hand. `aioqueue.abc` has it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

from aioqueue.vocabulary._listing import ListOrder

if TYPE_CHECKING:
    from collections.abc import Collection, Sequence
    from datetime import datetime
    from uuid import UUID

    from aioqueue.vocabulary._answers import Cancellation, Changed
    from aioqueue.vocabulary._attempt_log import AttemptLog
    from aioqueue.vocabulary._blockers import Blocker
    from aioqueue.vocabulary._job import Job
    from aioqueue.vocabulary._listing import IdPage, JobFilter, Page
    from aioqueue.vocabulary._phases import Phase
    from aioqueue.vocabulary._stats import Stats
    from aioqueue.vocabulary._workers import LeaseFacts, Standing

__all__ = ["Operable"]


@runtime_checkable
class Operable(Protocol):
    """The part of a `Store` that shows jobs, and changes them by hand. What `Store` says of all its methods holds here.

    A transaction has the same verbs (`Store.within`, `StoreTransaction.operations`): they see what was written in it, and what
    they change is so once it's committed; listeners hear of it then. Rows that somebody else has locked are waited for as its
    owner's other statements do on a user's connection, and for a fraction of a second on one of the store's own. There a verb
    that raises leaves the transaction as it was before the call.

    `retry`, `run_now` and `delete` wait briefly for what somebody's open transaction holds, such as a job's row or its unique
    key, try again for a few seconds, and then leave that job as it is: `CONTENDED`. It stops none of the others. Not so on a
    user's connection, where it's an error, as of other statements there; nor where the whole database or a table is locked.
    """

    async def fetch(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """Snapshots in the order of the ids, live and archived in one snapshot of the database. With those of `fetch_ends`
        they're the ones that have phases and progress.
        """
        ...

    async def fetch_ends(self, ids: Sequence[UUID]) -> Sequence[Job | None]:
        """Snapshots of the live or last step of each id's chain, in the order of the ids, in one snapshot of the database.

        Any step's id stands for its chain. Earlier steps may have been deleted: the chain's own id, which is its first
        step's, finds it all the same.
        """
        ...

    async def fetch_phases(self, job_id: UUID) -> Sequence[Phase]:
        """What is stored of this very job's phases, by the times at which they began; none where there is no such job.

        Their states are as a worker wrote them. A snapshot's are derived: of a job that has failed one that runs is `failed`,
        and of one that was cancelled all that aren't completed are `cancelled`.
        """
        ...

    async def fetch_logs(self, job_id: UUID) -> Sequence[AttemptLog]:
        """What was kept of the logs of this very job's attempts, by claims, the newest few of them."""
        ...

    async def list_chain(self, chain_id: UUID, limit: int, cursor: str | None = None) -> Page:
        """One page of a chain's steps, live and archived, by their positions from the first.

        Raises:
            ValueError: The cursor isn't one of ours.
        """
        ...

    async def list_blockers(self, job_id: UUID, limit: int, *, after: int = -1) -> Sequence[Blocker]:
        """The chains that this very job waits for, or has waited for, by their ordinals, from the one after `after`."""
        ...

    async def list_dependents(self, chain_id: UUID, limit: int) -> Sequence[Blocker]:
        """Unfinished jobs that wait for the end of this chain (by its own id), by their ids; without those that were told."""
        ...

    async def list(
        self, where: JobFilter, limit: int, cursor: str | None = None, *, order: ListOrder = ListOrder.NEWEST
    ) -> Page:
        """One page of jobs, live and archived. Bounded in cost whatever the filter: a page may have fewer jobs than asked for,
        or none, and still a cursor, where many rows had to be looked at that don't pass.

        What is there all the time is shown once while pages are turned, whatever comes and goes meanwhile. In the order of due
        times or of finish times, a job whose time has changed meanwhile may be shown twice, or not at all.

        A strange row (not JSON, an unknown state) is shown as well as it can be, and doesn't break its page. A live one in an
        unknown state is shown as blocked; a filter by states leaves it out, since no index leads to it.

        Raises:
            ValueError: The cursor isn't one of ours, or is of another order.
        """
        ...

    async def list_ids(self, where: JobFilter, limit: int, cursor: str | None = None) -> IdPage:
        """As `list`, newest id first, but only the ids: for changes to many."""
        ...

    async def find(self, types: Collection[str], key: str) -> Job | None:
        """The live or last step of the chain with this key, of a first job with one of these types: of the unfinished one that
        holds it as its unique key, otherwise of the newest unfinished one, otherwise of the newest finished one.

        Steps of later types than the first are found by it too, since a chain keeps its key; a chain whose first step was
        purged is found by the type of the step that is left.
        """
        ...

    async def stats(self) -> Stats:
        """Numbers by type and state, exact up to 10,000 each. Rows in an unknown state aren't counted."""
        ...

    async def leases(self) -> Sequence[LeaseFacts]:
        """All leases, run out or not, by the worker's name and then by id; 10,000 at most."""
        ...

    async def standing(self, job_id: UUID, types: Collection[str]) -> Standing | None:
        """Where a live job stands: who holds it, and how many due jobs of these types are claimed before it if it's pending.

        Returns:
            None if there is no such live job.
        """
        ...

    async def retry(self, ids: Sequence[UUID], *, cascade: bool = False, from_start: bool = False) -> Sequence[Changed]:
        """Make failed or cancelled jobs pending again, due now, and tell listeners of their types. Any step's id stands for
        its chain's last step.

        Such a job begins anew, as one that was never started: no attempts, no reschedules, no time to expire, start or end,
        no outcome, no output and no request to end. It keeps what it was inserted with, its history of errors, and the number
        of its claims, so that older ones stay fenced. A job whose unique key is held by another unfinished one by now is
        `KEY_HELD`. Jobs of one call that wait for each other do so again, in whatever order they're given.

        The results of its phases are kept, and its next attempt goes on behind them; with `from_start` they're forgotten, and
        its progress too (of those given, not of a cascade's).

        With `cascade`, those that failed since one of these had failed live again too, level by level. Where one of them is
        contended the job that was given is, and nothing of its own cascade is changed. All of it is one
        transaction, however many there are: unlike with `delete`, nothing of it is left to `tend`.
        """
        ...

    async def run_now(self, ids: Sequence[UUID]) -> Sequence[Changed]:
        """Make pending jobs due now, and tell listeners of their types. Any step's id stands for its chain's live step."""
        ...

    async def reschedule(
        self, ids: Sequence[UUID], *, delay: float | None = None, run_at: datetime | None = None
    ) -> Sequence[Changed]:
        """Change when pending jobs are due, and tell listeners of their types: as `run_now`, but at another time.

        Arguments:
            ids: Any steps' ids.
            delay: Seconds from the database's now.
            run_at: In UTC, in place of `delay`. A time in the past means now. A time to expire isn't changed with it.
        """
        ...

    async def cancel(self, ids: Sequence[UUID], reason: str) -> Sequence[Cancellation]:
        """Ask chains to end. Any step's id stands for its chain; the first reason that a chain was given counts.

        What is blocked or pending is archived as cancelled, with an entry of the type `Cancelled` whose message is the reason;
        those who wait for it are told as by `settle`. Of what is running the request is stored, and its worker's lease is told
        of (`Notification.leases`): its next renewal says so (`Renewal.asked_to_stop`). `settle`, `release` and recovery look
        at it, `retry` forgets it, and so does the chain's end.

        A row that somebody has locked is waited for, for a fraction of a second, but only once the request and its notice are
        committed beside it; if it stays locked, `tend` goes on with it. (Within somebody's transaction there's no such order:
        it's `StoreContended`.)

        Arguments:
            ids: Any steps' ids.
            reason: For people; at most 1,000 characters are kept.

        Returns:
            One answer each, in order.
        """
        ...

    async def delete(self, ids: Sequence[UUID], *, cascade: bool = False) -> Sequence[Changed]:
        """Remove jobs, live or archived. Any step's id stands for its chain: all of its steps are removed. A running one's
        unique key is free at once; its worker's lease is told of, and its next renewal says `not_found`. One for which
        unfinished jobs wait that this call doesn't remove is left as it is (`BLOCKS`), unless with `cascade`: then those are
        removed too, and those that wait for them, in portions that `tend` goes on with. A job that has only taken the unique
        key of such a chain over is none of them: it goes on, as at any end. Of a long one the end goes first, and
        continued steps may follow in transactions of their own: if those don't come about, another delete by the chain's id
        removes them.

        Listeners of this store are told of them as of finished ones, so that whoever waits for a result looks, and finds
        none. Other processes need not be told: they find out when they look.
        """
        ...
