"""A job that is to be stored, and what became of it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

    from aioqueue.errors import AioqueueError
    from aioqueue.vocabulary._blockers import NewBlocker
    from aioqueue.vocabulary._gates import SequenceMember
    from aioqueue.vocabulary._origin import Origin
    from aioqueue.vocabulary._unique import Unique

__all__ = ["Inserted", "NewJob"]


@dataclass(frozen=True, slots=True, kw_only=True)
class NewJob:
    """One row to insert.

    Attributes:
        id: The job's id, made with its call.
        type: The full name of its type.
        payload: A JSON object: the arguments that were passed, by name.
        priority: 1 to 4.
        delay: Seconds from the database's now until it is due. Not together with `run_at`.
        run_at: When it is due, in UTC. A time in the past means now.
        expires: Seconds after it is due within which it must have been started, or it is discarded.
        max_attempts: How often it may be started; None for no limit. It counts where `retry` is given.
        retry: The retry policy as JSON (`Retry.encode`); None leaves it to the worker, its number of attempts too; `{}`
            only the waits.
        timeout: Seconds for one attempt; None leaves it to the job type.
        key: A label to find it by.
        unique: How the key is kept from other jobs of this type; None for a key that is only a label. Its `by` is of no
            concern to a store.
        max_delay: Where the job's conflict replaces a waiting one that was created earlier: seconds from then after which it is
            due at the latest, whatever its delay says.
        chosen_id: Whether the caller has chosen the id: then a job that is there with it, live or finished, is this one.
        implied: Whether it's only stored since others of the batch wait for it: not, if none of these is stored or replaces
            one.
        aliases: Older names of the type, the oldest first: a unique key counts under all of them.
        tags: Short labels.
        metadata: A JSON object for middlewares.
        trace: The trace context of whoever enqueues it, as JSON text. What `vocabulary._trace` doesn't take isn't stored.
        blockers: Chains for whose ends it waits; each once.
        keep: Seconds that its chain is kept after its end; None leaves it to whoever removes old ones. A chain's next job that
            has none of its own takes over that of the job before.
        webhook: The URL that is told when its chain has ended; None for nobody. A chain's next job that has none of its own
            takes it over, too; one for which it's empty has nobody told, nor have those behind it.
        origin: The tick or the dry run that it's of; None for most. A chain's next job takes over that of the job before.
        sequence: The sequence in which it runs; None leaves that to its type. A chain's next job takes over that of the job
            before, and its place.
    """

    id: UUID
    type: str
    payload: bytes = b"{}"
    priority: int = 2
    delay: float | None = None
    run_at: datetime | None = None
    expires: float | None = None
    max_attempts: int | None = 10
    retry: bytes | None = None
    timeout: float | None = None
    key: str | None = None
    unique: Unique | None = None
    max_delay: float | None = None
    chosen_id: bool = False
    implied: bool = False
    aliases: tuple[str, ...] = ()
    tags: tuple[str, ...] = ()
    metadata: bytes = b"{}"
    trace: str | None = None
    blockers: tuple[NewBlocker, ...] = ()
    keep: float | None = None
    webhook: str | None = None
    origin: Origin | None = None
    sequence: SequenceMember | None = None

    @property
    def unique_names(self) -> tuple[str, ...]:
        """The names under which a unique key counts. It's stored under the first, which code from before a renaming uses."""
        return (*self.aliases, self.type)

    @property
    def size(self) -> int:
        """Bytes of JSON in the arguments and the metadata: batches are cut by it."""
        size = len(self.payload) + len(self.metadata)
        return size + sum(len(each.places) for each in self.blockers) if self.blockers else size


@dataclass(frozen=True, slots=True)
class Inserted:
    """What became of one row of an insert.

    Attributes:
        id: The id of the job that is stored now: the one given, or that of the chain that holds the same unique key, which is
            its first job's. Of an implied job that wasn't needed, the one given: nothing has that id.
        created: Whether it was stored by this call. A row whose id was there already says False, and is unchanged.
        replaced: Whether the job that is there has got what was given for this one (`on_conflict="replace"`).
        refused: Why it wasn't stored, where each job stands for itself: `DuplicateJob`, or `WrongJobType` for a chosen id.
    """

    id: UUID
    created: bool
    replaced: bool = False
    refused: AioqueueError | None = None
