"""What a conformance case is, and what it needs from the store's author."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from contextlib import AbstractAsyncContextManager
    from datetime import timedelta
    from uuid import UUID

    from aioqueue.abc import Store

__all__ = ["Capability", "Case", "Fault", "Harness", "Subject"]


class Capability(StrEnum):
    """What not every store can do. A case that needs more than a harness offers is to be skipped."""

    NAMES_TYPES = "names types"
    """Notifications to the same store name the types that became pending and their delay, instead of None."""
    NAMES_FINISHED = "names finished"
    """Notifications to the same store name the jobs that have finished, instead of None."""
    TELLS_LEASES = "tells leases"
    """The owner of a lease that was taken hears of it in `Notification.leases`, from other connections too."""
    LOCKS_ROWS = "locks rows"
    """Others may lock single jobs (`Harness.locked`), rather than the whole database at once."""
    TELLS_DELIVERIES = "tells deliveries"
    """Listeners of the same store hear in `Notification.deliveries` that there is something to be sent."""
    TELLS_SCHEDULES = "tells schedules"
    """Listeners of the same store hear in `Notification.schedules` that schedules were changed."""
    KNOWS_GIVEN = "knows what was given"
    """It keeps what a settlement said that gave way to a request to end: it takes no other one for a repetition."""


class Fault(StrEnum):
    """How `Harness.spoil` damages a stored job, as far as the tables allow it; it stays pending if it can."""

    PAYLOAD = "payload"
    """The payload isn't JSON (where the column can hold that), or isn't an object."""
    STATE = "state"
    """A state that this code doesn't know."""
    ERRORS = "errors"
    """The history's entries aren't what `AttemptError.encode` writes."""
    TAGS = "tags"
    """Tags that aren't a list of texts."""
    DUE = "due"
    """A due time that never comes: infinite."""
    TIMEOUT = "timeout"
    """A timeout that isn't finite."""
    CREATION = "creation"
    """A time of creation that can't be one."""
    COUNTERS = "counters"
    """Attempts and claims that can't be counted on: the largest numbers that fit into their columns."""


class Harness(Protocol):
    """One fresh database with a store on it. A case gets its own."""

    @property
    def capabilities(self) -> frozenset[Capability]:
        """What the store can do."""
        ...

    @property
    def resolution(self) -> timedelta:
        """How exactly the store keeps a time that it's given."""
        ...

    @property
    def store(self) -> Store:
        """The store, open."""
        ...

    async def second_store(self) -> Store:
        """Another open store on the same database, with connections of its own, as another process has it.

        The same one at each call. The harness closes it.
        """
        ...

    def new_store(self) -> Store:
        """One more store on the same database, new at each call and never opened. The case closes what it opens."""
        ...

    async def age(self, seconds: float) -> None:
        """Let time pass without waiting: move all stored times of live jobs, leases and windows back by so many seconds.

        These are the due, creation and start times (of finished jobs those of creation), the end of jobs (`expires`), of
        leases, of the windows of unique keys, of pauses, and of generations of schedules, those of rates that were used, and
        all times of deliveries, by plain UPDATEs. Schedules' own times stay, since ticks are known by theirs. What a store
        remembers of due times outside the database is forgotten.
        """
        ...

    async def spoil(self, job_id: UUID, fault: Fault) -> bool:
        """Damage a stored live job, as an operator at the database's prompt might; False if the tables refuse it."""
        ...

    async def delete_lease(self, lease_id: int) -> None:
        """Delete a lease's row, if it's there, and nothing else."""
        ...

    async def erase(self, job_id: UUID) -> None:
        """Delete a job's row, live or archived, and nothing else, as an operator at the database's prompt might."""
        ...

    def locked(self, job_id: UUID) -> AbstractAsyncContextManager[None]:
        """For the length of a block, lock a job's row from another connection. Only with `Capability.LOCKS_ROWS`."""
        ...


@dataclass(frozen=True, slots=True)
class Case:
    """One thing that every store must do.

    Attributes:
        name: `subject/what_is_expected`: unique, fit for a test's id.
        run: Raises AssertionError, with what was expected and what came, if the store doesn't do it.
        needs: The harness's capabilities without which the case makes no sense.
        description: One sentence for people.
    """

    name: str
    run: Callable[[Harness], Awaitable[None]]
    needs: frozenset[Capability] = frozenset()
    description: str = ""


class Subject:
    """Collects the cases of one method: `@subject()` above each.

    Arguments:
        name: The first part of the cases' names.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.cases: list[Case] = []

    def __call__(
        self, *needs: Capability
    ) -> Callable[[Callable[[Harness], Awaitable[None]]], Callable[[Harness], Awaitable[None]]]:
        """Register a function as a case.

        Arguments:
            needs: See `Case.needs`.
        """

        def register(run: Callable[[Harness], Awaitable[None]]) -> Callable[[Harness], Awaitable[None]]:
            description = (run.__doc__ or "").strip().partition("\n")[0]
            self.cases.append(Case(f"{self.name}/{getattr(run, '__name__', 'case')}", run, frozenset(needs), description))
            return run

        return register
