"""What a store may be able to do beyond `aioqueue.abc.Store`: one protocol for each ability. `aioqueue.abc` has them too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._answers import Pruned
    from aioqueue.vocabulary._event_log import EventPage
    from aioqueue.vocabulary._finding import Finding
    from aioqueue.vocabulary._job import NewJob, StoredState
    from aioqueue.vocabulary._listing import IdPage
    from aioqueue.vocabulary._webhooks import Delivery, DeliveryPage, DeliveryState, DeliveryTry

__all__ = [
    "SupportsDiagnosis",
    "SupportsEvents",
    "SupportsMigrate",
    "SupportsMigrationSQL",
    "SupportsPendingMigrations",
    "SupportsPrune",
    "SupportsReconnects",
    "SupportsRetention",
    "SupportsStatement",
    "SupportsWebhooks",
]


@runtime_checkable
class SupportsDiagnosis(Protocol):
    """A store that looks whether all around it is as it should be: what `aioqueue doctor` needs."""

    async def diagnose(self) -> Sequence[Finding]:
        """Look at the database, whether the store is open or not. Changes nothing, is bounded in time, and raises no
        `StoreError`: what can't be looked at is a finding too.
        """
        ...


@runtime_checkable
class SupportsEvents(Protocol):
    """A store that logs what happens to jobs while somebody reads it: what `Client.events` needs.

    The statement that changes a job writes its event, if a reader's row is valid then; nothing is written, and next to
    nothing is paid, while nobody reads. Of one job the events come in the order in which they happened. Rows are kept for
    `store_rules._events.KEPT_SECONDS`, and older ones are removed by `open_reader` and `keep_reader`. `Notification.events`
    says that there is something to read.

    A page with `reset` may lack events before those in it, and a cursor that isn't known gives one too. So does every page of
    a reader that isn't valid any more: events may not have been logged since, and another one has to be opened.
    """

    async def open_reader(self, duration: float) -> UUID:
        """Have events logged from now on, for `duration` seconds. Returns the reader's id."""
        ...

    async def keep_reader(self, reader: UUID, duration: float) -> bool:
        """Let it be valid for `duration` seconds from now; 0 ends it. Returns whether it still was valid: one that wasn't isn't
        made so again.
        """
        ...

    async def begin_events(self, reader: UUID, *, timeout: float = 5.0) -> EventPage:
        """Wait until each transaction that began before the reader has ended, since its events aren't logged. From then on all
        are. Returns an empty page with the cursor from which to go on; `reset` if the wait took longer than `timeout` seconds.
        """
        ...

    async def resume_events(self, reader: UUID, sequence: int, limit: int) -> EventPage:
        """Give what has happened since an event was seen, from the log: some that were seen before may come once more.

        `reset`, and no events, if that event isn't in the log, or there was a time since then in which no reader was valid.
        """
        ...

    async def read_events(self, reader: UUID, cursor: str, limit: int) -> EventPage:
        """Give what has become visible since the cursor was given, each once: about `limit` events at most, then go on."""
        ...


@runtime_checkable
class SupportsMigrate(Protocol):
    """A store whose schema is brought up to date on demand: what `Client.migrate` and `aioqueue migrate` need."""

    async def migrate(self) -> Sequence[str]:
        """Bring the schema up to date, whether the store is open or not. Several processes may do so at once.

        Returns:
            The names of the migrations that this call ran.
        """
        ...


@runtime_checkable
class SupportsPendingMigrations(Protocol):
    """A store that tells what `migrate` would do: what `aioqueue migrate --check` needs."""

    async def pending_migrations(self) -> Sequence[str]:
        """Names of the migrations that `migrate` would run, whether the store is open or not. Changes nothing."""
        ...


@runtime_checkable
class SupportsMigrationSQL(Protocol):
    """A store whose migrations can be run by hand: what `aioqueue migrate --sql` needs."""

    def migration_sql(self) -> str:
        """Everything that `migrate` would run on an empty database, as one script. Needs no connection."""
        ...


@runtime_checkable
class SupportsPrune(Protocol):
    """A store that removes what finished long ago by itself: what `Client.prune` and `aioqueue jobs prune` need."""

    async def prune(
        self, state: StoredState, older_than: float, types: Collection[str] | None, limit: int, cursor: str | None = None
    ) -> Pruned:
        """Remove finished jobs, those that finished first before the others: one portion, in one commit.

        State and age are looked at by the statement that removes a job, by the database's clock: one that is retried at that
        moment, or has failed again since, stays. So may one that somebody else has locked. Listeners are told as by `delete`.

        Arguments:
            state: One of those in the archive.
            older_than: Seconds: those that finished as long ago as this, or longer.
            types: Names; None means all.
            limit: Jobs that are looked at, at most: its cost is bounded, however few of them are of these types.
            cursor: Of the portion before.
        """
        ...


@runtime_checkable
class SupportsReconnects(Protocol):
    """A store that counts how often its lasting connections were lost: what the metric `aioqueue_reconnects_total` needs."""

    @property
    def reconnects(self) -> Mapping[str, int]:
        """How often each had to connect anew since the store was opened, by what it's for: `lease`, `notifications`.

        The same mapping all the while that the store is open; it may be read from any thread. Empty if it isn't open.
        """
        ...


@runtime_checkable
class SupportsRetention(Protocol):
    """A store that removes chains once they're old enough: what the retention of workers, and `purge_at`, need."""

    async def take_duty(self, name: str, holder: str, duration: float) -> bool:
        """Take what one process at a time does, or keep it: for `duration` seconds from the database's now, unless somebody
        else has it. Nothing is waited for.

        Arguments:
            name: Of the duty, such as `retention`.
            holder: Who asks, by a text of its own: whoever has it keeps it by asking again.
            duration: Seconds; 0 gives it up.

        Returns:
            Whether it's the holder's now.
        """
        ...

    async def find_old(self, ages: Mapping[StoredState, float], limit: int, cursor: str | None = None) -> IdPage:
        """Find chains that are old enough to be removed, one bounded portion: by the time from which they may be.

        A chain is old enough once `purge_at` of the step that ended it is over; where it has none, once the age for that step's
        state is. Continued steps whose chain's end is gone, and that have no live step, count by their own. A chain
        with a live step is never found. Looking is bounded, however few are found: a page may be empty and have a cursor.

        Arguments:
            ages: Seconds since the end by state; a state without one stays, unless `purge_at` says otherwise.
            limit: Rows that are looked at, at most.
            cursor: Of the page before.

        Returns:
            The chains' ids, each once.
        """
        ...

    async def purge(self, chain_ids: Sequence[UUID], ages: Mapping[StoredState, float]) -> Sequence[UUID]:
        """Remove whole chains, with all that is kept beside their jobs, in one commit: of a long chain the continued steps
        before its end may be left for another portion. Each is looked at again under its lock: what isn't old enough any
        more, or lives again, stays; so may what somebody has locked. What dependents still need of a chain's end is kept for
        them. Listeners are told as by `delete`.

        Arguments:
            chain_ids: As `find_old` gave them.
            ages: As of `find_old`.

        Returns:
            The ids of the chains that were removed.
        """
        ...


@runtime_checkable
class SupportsStatement(Protocol):
    """A store into which any driver can insert jobs with one statement: what `Client.statement` needs."""

    def statement(self, jobs: Sequence[NewJob], *, placeholder: Literal["%s", "$1"] = "%s") -> tuple[str, tuple[str, ...]]:
        """Give the SQL that stores jobs in the transaction of whoever runs it, and its parameters. Needs no connection.

        `placeholder` is how the driver writes a parameter.
        """
        ...


@runtime_checkable
class SupportsWebhooks(Protocol):
    """A store that keeps deliveries of webhooks: what `webhook=` needs.

    A delivery is written by the transaction that ends the chain, whoever ends it: a settlement, recovery, an operator, or the
    end of another chain. Its body is made then, by `store_rules._deliveries`. Listeners may hear of it in
    `Notification.deliveries`. One that is finished goes with its chain, and is removed by `Store.tend` thirty days later;
    one that is pending stays, though its chain is gone.
    """

    async def take_deliveries(self, limit: int, duration: float, *, without: Collection[str] = ()) -> Sequence[Delivery]:
        """Take due deliveries, in the order in which they became due: each counts one try more, and is nobody else's for
        `duration` seconds. Rows that somebody has locked are skipped.

        Arguments:
            limit: At most.
            duration: Seconds.
            without: Hosts (with the port, as in the URL's network location, in lower case) of which none is taken.
        """
        ...

    async def next_delivery(self) -> float | None:
        """Seconds until the first pending delivery is due, 0 if one is now; None without any."""
        ...

    async def write_tries(self, tries: Sequence[DeliveryTry]) -> None:
        """Keep what became of tries, each on its own, unless somebody else has taken the delivery since."""
        ...

    async def list_deliveries(
        self, *, chain_id: UUID | None = None, state: DeliveryState | None = None, limit: int = 100, cursor: str | None = None
    ) -> DeliveryPage:
        """One page of deliveries, the newest first. Bounded in cost."""
        ...

    async def replay_deliveries(self, ids: Sequence[UUID]) -> Sequence[bool]:
        """Make deliveries pending and due now, with their tries counted anew, whatever became of them. Their ids and bodies
        stay. Returns whether each was there.
        """
        ...
