"""What a store may be able to do beyond `aioqueue.abc.Store`: one protocol for each ability. `aioqueue.abc` has them too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aioqueue.vocabulary._answers import Pruned
    from aioqueue.vocabulary._finding import Finding
    from aioqueue.vocabulary._job import NewJob, StoredState

__all__ = [
    "SupportsDiagnosis",
    "SupportsMigrate",
    "SupportsMigrationSQL",
    "SupportsPendingMigrations",
    "SupportsPrune",
    "SupportsReconnects",
    "SupportsStatement",
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
class SupportsStatement(Protocol):
    """A store into which any driver can insert jobs with one statement: what `Client.statement` needs."""

    def statement(self, jobs: Sequence[NewJob], *, placeholder: Literal["%s", "$1"] = "%s") -> tuple[str, tuple[str, ...]]:
        """Give the SQL that stores jobs in the transaction of whoever runs it, and its parameters. Needs no connection.

        `placeholder` is how the driver writes a parameter.
        """
        ...
