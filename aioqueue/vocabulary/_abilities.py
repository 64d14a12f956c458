"""What a store may be able to do beyond `aioqueue.abc.Store`: one protocol for each ability. `aioqueue.abc` has them too."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._answers import Pruned
    from aioqueue.vocabulary._finding import Finding
    from aioqueue.vocabulary._gates import GateStatus, KeptSequence, NewLimit, StoredLimit
    from aioqueue.vocabulary._job import NewJob, StoredState
    from aioqueue.vocabulary._listing import IdPage
    from aioqueue.vocabulary._pauses import NewPause, Pause, PauseTarget
    from aioqueue.vocabulary._schedules import (
        DueSchedules,
        Generation,
        NewSchedule,
        Reconciled,
        ScheduleChange,
        SchedulePage,
        StoredSchedule,
        Tick,
        Ticked,
    )

__all__ = [
    "SupportsDiagnosis",
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
class SupportsGates(Protocol):
    """A store whose claims look at gates: what limits, rates, sequences and `fairness_by` need.

    Only claims admit, and only claims hold: enqueueing never looks at a gate, whatever the door. A claim works out at which
    gates a due job waits, locks them, looks at them after that, and lets through as many as may run; the others are held, with
    the gate in `Job.held_by`, outside what claims look at. A job counts at its gates while it's running, whatever its lease
    says, until it's settled, given back or recovered, or its row is gone, by whomever.

    Whatever leaves a gate leaves a mark there, in the same transaction. Claims begin with the marks: for each place that became
    free one held job of each type is due again, since some types may be paused, or served by nobody. The claim decides, and may
    hold it again. `Store.tend` finds what this has skipped.
    """

    async def put_limits(self, limits: Sequence[NewLimit], *, defined: bool = False) -> None:
        """Store limits, all or none. Where one lets more jobs run than before, those that wait are due again.

        Arguments:
            limits: Each name once.
            defined: Whether a worker's code says so. What somebody has changed at run time stays as it is then, unless the code
                says something else than the last time.
        """
        ...

    async def remove_limits(self, names: Sequence[str]) -> Sequence[bool]:
        """Remove limits: nothing is limited by them from now on, and those that wait are due again. Returns which were
        there.
        """
        ...

    async def list_limits(self) -> Sequence[StoredLimit]:
        """All limits, by name; 10,000 at most."""
        ...

    async def gate_statuses(self, gates: Sequence[str]) -> Sequence[GateStatus]:
        """How gates are at the moment, in their order."""
        ...

    async def kept_sequences(self) -> Sequence[KeptSequence]:
        """All sequences that a failed member keeps, by name; 1,000 at most."""
        ...

    async def resume_sequences(self, names: Sequence[str]) -> Sequence[bool]:
        """Let sequences go on that a failed member keeps. Returns which were kept."""
        ...


@runtime_checkable
class SupportsPauses(Protocol):
    """A store whose claims look at pauses: what `Client.pause` needs.

    From the moment at which a pause is committed no claim takes what it's about, in any worker, until it's lifted or its time
    is over by the database's clock. What runs goes on; recovery, releases and settlements do, too. `Store.next_due` doesn't
    count jobs of paused types, nor any while all are paused; it counts the end of a pause that has one.

    Jobs with a paused key are due like others until a claim comes to them, which parks them, several at a time: held, with
    `Job.held_by`, outside what claims look at. They come back in bounded portions: one by `resume`, the others by
    `Store.tend`, which also finds those whose pause has ended by itself. Meanwhile they expire, are cancelled, deleted,
    rescheduled and brought forward like pending ones. Enqueueing never looks at pauses.
    """

    async def pause(self, pauses: Sequence[NewPause]) -> None:
        """Store pauses, all or none; of one by the same person for the same target the later counts."""
        ...

    async def resume(self, target: PauseTarget, values: Collection[str], *, by: str | None = None) -> int:
        """Lift pauses. Listeners are told. Returns how many there were.

        Arguments:
            target: Of what kind.
            values: Names of types, or keys; `[""]` for all.
            by: Only those of this person; None means everybody's.
        """
        ...

    async def list_pauses(self) -> Sequence[Pause]:
        """All pauses that aren't over, by target, value and person; 10,000 at most."""
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
class SupportsSchedules(Protocol):
    """A store that keeps schedules: what `registry.schedule` and `Client.schedules` need.

    Times are the database's. The store knows nothing of expressions or intervals: workers work out when the ticks are, and
    each is decided by whoever is first. A schedule that is new, was resumed, or whose timing has changed has no next tick
    until a worker has worked it out, from `since`.
    """

    async def put_schedules(self, schedules: Sequence[NewSchedule]) -> Sequence[bool]:
        """Store schedules that have no owner, all or none: what is there with the same name is changed; if its timing is
        another one, its `since` and `anchor` are now and its next tick isn't known. Pauses, ticks and the rest stay. Listeners
        hear of it.

        Returns:
            Whether each was stored or changed by this.

        Raises:
            ScheduleOwned: One of the names is that of a registry's schedule. Nothing was stored.
        """
        ...

    async def reconcile_schedules(self, generation: Generation, schedules: Sequence[NewSchedule], live: float) -> Reconciled:
        """Make these the schedules of their owner, as `put_schedules` does, and remove those that aren't among them; unless a
        live newer generation is there: see `store_rules._generations`. This one is live from now on for `live` seconds.

        Called by each worker that serves the whole registry, at its start and every now and then. Schedules without an owner,
        and of other owners, aren't touched; one of them that has the name of one of these stays, and that one isn't stored, but
        named as taken.
        """
        ...

    async def due_schedules(self, limit: int, *, cron: bool = True, without: Collection[str] = ()) -> DueSchedules:
        """See which ticks are due, without a lock.

        Arguments:
            limit: Schedules at most.
            cron: Whether those with a cron expression count.
            without: Names of schedules that don't count.
        """
        ...

    async def tick(self, ticks: Sequence[Tick]) -> Sequence[Ticked]:
        """Decide ticks, all in one transaction: of each only if the schedule has still this version and this next tick, and
        isn't paused. Then the schedule's next tick is moved (one that is None is never due), its jobs are inserted as by
        `insert` (an `on_conflict="raise"` is a duplicate too; one that replaces another has enqueued that one), and what became
        of them is kept: the newest `store_rules._schedules.KEPT_TICKS` of each schedule. A nominal time that was enqueued
        before, such as by a clock that had jumped, isn't enqueued again (`ENQUEUED_BEFORE`). Listeners are told of the jobs.

        One by hand needs the version, and moves neither the next tick nor the newest one; its chain counts for the overlap.

        May be repeated after an unclear commit: what was decided by it says so by `decided=False`.

        Raises:
            RowRejected: One of the jobs is at fault, and nothing was decided.
            StoreContended: Somebody's open transaction holds one of the unique keys, or one of the schedules. As of
                RowRejected.
        """
        ...

    async def recompute_schedules(self, names: Collection[str] | None = None) -> int:
        """Forget the next ticks, so that they're worked out again. Of schedules whose newest tick lies in the future, as the
        clock has jumped back, `last_at` is now: what lies before may have been enqueued before. Returns of how many. `None`
        means of all; those that are due are left alone.
        """
        ...

    async def list_schedules(self, limit: int, cursor: str | None = None) -> SchedulePage:
        """One page of schedules with their newest ticks, by name."""
        ...

    async def fetch_schedules(self, names: Sequence[str]) -> Sequence[StoredSchedule | None]:
        """Schedules with their newest ticks, in the order of the names."""
        ...

    async def pause_schedules(self, names: Sequence[str], reason: str, by: str) -> Sequence[bool]:
        """Decide no ticks of these any more. Returns whether each is there."""
        ...

    async def resume_schedules(self, names: Sequence[str]) -> Sequence[bool]:
        """Decide ticks again, but none that was due before now. Listeners hear of it. One that isn't paused is left as it is.
        Returns whether each is there.
        """
        ...

    async def delete_schedules(self, names: Sequence[str]) -> Sequence[ScheduleChange]:
        """Remove schedules with what became of their ticks; their jobs stay. Those of a live generation are left (`OWNED`)."""
        ...


@runtime_checkable
class SupportsStatement(Protocol):
    """A store into which any driver can insert jobs with one statement: what `Client.statement` needs."""

    def statement(self, jobs: Sequence[NewJob], *, placeholder: Literal["%s", "$1"] = "%s") -> tuple[str, tuple[str, ...]]:
        """Give the SQL that stores jobs in the transaction of whoever runs it, and its parameters. Needs no connection.

        `placeholder` is how the driver writes a parameter.
        """
        ...
