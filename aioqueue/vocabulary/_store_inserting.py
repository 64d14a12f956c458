"""What every store offers to producers: storing jobs. `aioqueue.abc` has it too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import Inserted, NewJob

__all__ = ["Insertable"]


@runtime_checkable
class Insertable(Protocol):
    """The part of a `Store` that stores jobs. What `Store` says of all its methods holds here."""

    async def insert(
        self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False, apart: bool = False
    ) -> Sequence[Inserted]:
        """Store jobs, all or none.

        Without `tx` it commits before it returns, and tells listeners. With `tx` it writes on that connection and leaves
        the commit to its owner. An id that exists already, live or finished, stays as it is, so repeating an insert is
        safe; `repeated` says that this is one, and that finished jobs must be looked at too, as they are for a chosen id. One
        of those that is there is of the same type, also by an alias, or it's `WrongJobType`.

        A unique key is held by an unfinished chain (`until="started"`: while its first job has never been claimed). For a job
        that has a window, it's also held by a chain that was inserted with one and has completed, until the end of that chain's
        window, counted from when it was inserted or last replaced; one that has failed, was cancelled, deleted or pruned holds
        nothing. Of a job whose key is held, what its `on_conflict` says comes about, in the order of the batch:

        - `return`: the holder's id, `created=False`.
        - `replace`: a holder that is its chain's first job and blocked or pending, also between attempts, gets the new one's
          type, arguments, priority, due time (at most `max_delay` after the holder's creation), expiry, attempts, retry policy,
          timeout, tags, metadata, trace, uniqueness, blockers, `keep` and `webhook`. It begins anew: no attempts, no
          reschedules, no start, no phases, no progress, as one never started; its id, time of creation, errors and claims stay,
          and so does what it waits for since it took a key over. The holder's id, `created=False, replaced=True`. From any
          other unfinished holder the new job takes the key over for good, and waits for the end of that one's chain, however it
          ends, besides what it waits for anyway: `created=True`. A holder that has finished: as `return`.
        - `raise`: `DuplicateJob`.

        Whether a job's key is held is decided before what it waits for is stored: of one that isn't stored and replaces
        nothing, the implied jobs for which nobody else waits aren't stored. Keys are taken in sorted order, so that concurrent
        batches don't deadlock.

        A job with blockers is stored as blocked (held), with as many open blockers, and the live steps of the chains that it
        waits for are marked, by a write, in the same transaction: whoever ends a marked one tells those that wait. A chain that
        has ended already counts at once, for or against; so the job may be pending, or failed, when this returns. Where a
        blocker of the batch wasn't created, since another chain holds its unique key, that chain is waited for.

        Arguments:
            jobs: In the order of the results; a job comes after those that it waits for.
            tx: A connection or session of the user's with an open transaction, of a library that the store knows.
            repeated: Whether an earlier try may have stored them.
            apart: Whether each job stands for itself: none waits for another of the batch, one that can't be stored since its
                key is held, or its chosen id is another type's, is told by its result (`Inserted.refused`), and after an error
                some may be stored. Without `tx`.

        Raises:
            DuplicateJob: A job's key is held, and its `on_conflict` is `raise`. Nothing was stored; with `tx` the transaction
                is as it was before the call.
            WrongJobType: A chosen id is that of another type's job. As of DuplicateJob.
            RowRejected: One of the rows is at fault.
            StoreContended: Somebody's open transaction holds one of the unique keys (without `tx`), or the row of a job that is
                to be waited for. Nothing was stored, and nothing was waited for longer than a fraction of a second: try again
                later. With `tx` the transaction is as it was before the call.
            BlockerNotFound: A blocker isn't there. Nothing was stored; with `tx` the transaction is as it was before the call.
            BlockerCycle: A job waits for itself, or for one that comes after it; or one that replaces a waiting one would wait
                for it, through whatever chains. As of BlockerNotFound.
            NotInTransaction: `tx` is in autocommit mode.
            TypeError: `tx` isn't of a known library.
        """
        ...
