"""The database of a history: the store in memory, in virtual time, whose every change the checker sees, whatever its rules."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected
from aioqueue.testing.memory._rows import Database
from aioqueue.vocabulary._job import LostReason, SettlementKind, SettleResult
from tests.simulation.scheduler import START

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.testing.memory._rows_blockers import Blockers
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.testing.memory._rows_leases import Lease
    from aioqueue.vocabulary._job import AttemptError, ClaimedJob, Settlement, StoredState
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite
    from tests.simulation.network import Network
    from tests.simulation.plan import Refusal

_EPOCH = datetime.fromtimestamp(START, UTC)
_REFUSED_KINDS: dict[Refusal, SettlementKind] = {"outcome": SettlementKind.COMPLETED, "next": SettlementKind.CONTINUED}
_REFUSED = "the row is too good for this"


@dataclass(frozen=True)
class Saved:
    """A database at some moment."""

    rows: dict[UUID, Row]
    blockers: Blockers
    leases: dict[int, Lease]
    last_lease: int


class WatchedDatabase(Database):
    """See the module.

    Arguments:
        network: Brings its notifications to the processes, and knows whose request it's carrying out.
        names_refused: Whether it can tell which row of a batch it refuses.
        retention: Seconds after which chains may be removed.
        quiet: Whether nothing goes wrong in this history.

    Attributes:
        refusals: Which of the jobs refuse what.
        last_lease: The number of its newest lease.
    """

    def __init__(self, network: Network, *, names_refused: bool = True, retention: float = 0.0, quiet: bool = False) -> None:
        super().__init__()
        self.network = network
        self.checker = network.checker
        self.retention = retention
        self.quiet = quiet
        self.refusals: dict[UUID, Refusal] = {}
        self.last_lease = 0
        self._names_refused = names_refused
        self._scheduler = network.scheduler
        self._written: list[tuple[Settlement, int]] = []
        self._held: set[UUID] = set()
        self._ended: list[tuple[Row, StoredState, AttemptError | None]] = []

    def now(self) -> datetime:
        """Virtual time, as time of day."""
        return _EPOCH + timedelta(seconds=self._scheduler.now)

    def tell(self, notification: Notification) -> None:
        """Send it on its way."""
        self.network.notify(notification)

    # -- leases -------------------------------------------------------------------------------------------------------

    def new_lease_id(self) -> int:
        """The next number: the same in each run of a history."""
        self.last_lease += 1
        return self.last_lease

    def add_lease(self, worker: str, duration: float, **told: Any) -> int:
        """As it says."""
        lease_id = super().add_lease(worker, duration, **told)
        self.checker.lease_opened(lease_id, worker, duration)
        return lease_id

    def renew_lease(self, lease_id: int, duration: float) -> None:
        """As it says."""
        super().renew_lease(lease_id, duration)
        self.checker.renewed(lease_id, duration)

    def end_lease(self, lease_id: int) -> None:
        """As it says."""
        super().end_lease(lease_id)
        self.checker.lease_ended(lease_id)

    def take_lease(self, lease_id: int) -> None:
        """As it says."""
        super().take_lease(lease_id)
        self.checker.lease_taken(lease_id)

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def add(self, row: Row) -> None:
        """As it says."""
        super().add(row)
        self.checker.inserted(row.new, (row.run_at - _EPOCH).total_seconds(), self.refusals.get(row.new.id, ""))

    def remove(self, row: Row) -> None:
        """As it says. Nobody but retention and operators removes anything."""
        super().remove(row)
        self.checker.removed(row.new.id, self.retention)

    def take(self, row: Row, lease_id: int, now: datetime) -> ClaimedJob:
        """As it says."""
        job = super().take(row, lease_id, now)
        self.checker.claimed(job)
        return job

    def recover(self, row: Row) -> ClaimedJob:
        """As it says."""
        job = super().recover(row)
        self.checker.recovered(job)
        return job

    def give_back(self, row: Row, now: datetime) -> None:
        """As it says."""
        super().give_back(row, now)
        self.checker.released(row.lease_id, row.claim)

    def write(
        self, row: Row, each: Settlement, now: datetime, again_at: datetime, *, orphaned: bool, cancelled: str | None = None
    ) -> None:
        """As it says."""
        super().write(row, each, now, again_at, orphaned=orphaned, cancelled=cancelled)
        self._written.append((each, row.state))

    def reopen(self, row: Row, now: datetime, open_blockers: int) -> None:
        """As it says."""
        super().reopen(row, now, open_blockers)
        self.checker.gates.reopened(row)

    def bring_forward(self, row: Row, now: datetime) -> None:
        """As it says."""
        super().bring_forward(row, now)
        self.checker.gates.moved(row, (row.run_at - _EPOCH).total_seconds())

    def reschedule(self, row: Row, run_at: datetime) -> None:
        """As it says."""
        super().reschedule(row, run_at)
        self.checker.gates.moved(row, (row.run_at - _EPOCH).total_seconds())

    def request(self, row: Row, reason: str) -> None:
        """As it says."""
        super().request(row, reason)
        self.checker.requests.stored(row.chain, beside=False)

    def request_beside(self, chain_id: UUID, reason: str) -> None:
        """As it says."""
        super().request_beside(chain_id, reason)
        self.checker.requests.stored(chain_id, beside=True)

    def end(
        self,
        row: Row,
        state: StoredState,
        now: datetime,
        *,
        error: AttemptError | None = None,
        output: bytes | None = None,
        outcome: str | None = None,
        next_id: UUID | None = None,
    ) -> None:
        """As it says."""
        super().end(row, state, now, error=error, output=output, outcome=outcome, next_id=next_id)
        self._ended.append((row, state, error))

    def write_phase(self, write: PhaseWrite, now: datetime) -> bool:
        """As it says. What comes late changes nothing, and isn't looked at."""
        before = self.come.copy().phases
        written = super().write_phase(write, now)
        if self.come.phases != before:
            self.checker.phases.phase_written(write)
        return written

    def write_progress(self, write: ProgressWrite, now: datetime) -> None:
        """As it says."""
        super().write_progress(write, now)
        self.checker.phases.progress_written(write)

    def changed(self) -> None:
        """A request was carried out: look what it meant for those that wait."""
        written, self._written = self._written, []
        for each, state in written:  # by a transaction's commit
            self.checker.settled(each, SettleResult(), orphaned=False, state=state)
        self._look_at_ended()
        self.checker.waiting.look(self)
        self.checker.requests.look()
        self.checker.schedules.look()
        self.checker.pauses.look(self)
        self.checker.gates.look(quiet=self.quiet)
        held = {job_id for job_id, row in self.rows.items() if row.held}
        free = {job_id: self.rows[job_id].locked_until for job_id in self._held - held if job_id in self.rows}
        self.checker.waiting.locked_by_transaction(held, free=free)
        self._held = held

    def _look_at_ended(self) -> None:
        ended, self._ended = self._ended, []
        for row, state, error in ended:
            self.checker.waiting.ended(row, state, error)

    def count_down(self, row: Row, number: int, ready_at: datetime, expires_at: datetime | None) -> None:
        """As it says."""
        super().count_down(row, number, ready_at, expires_at)
        self.checker.waiting.unblocked(row)

    def settled(self, settlements: Sequence[Settlement], results: Sequence[SettleResult], *, orphaned: bool) -> None:
        """A batch was carried out. What was busy or refused wasn't tried."""
        written, self._written = self._written, []
        for each, result in zip(settlements, results, strict=True):
            if not result.busy and result.lost is not LostReason.ERROR:
                state = next((state for one, state in written if one is each), None)
                self.checker.settled(each, result, orphaned=orphaned, state=state)
        self._look_at_ended()
        for each, _ in written:
            self.checker.chains.look(self, each.id)

    def refusal(self, row: Row, each: Settlement) -> str:
        """Some rows can't hold everything. The least that can be written is a failure of a few words."""
        refuses = self.refusals.get(row.new.id, "")
        least = each.kind is SettlementKind.FAILED and each.error is None
        only = _REFUSED_KINDS.get(refuses)
        if not refuses or least or (only is not None and each.kind is not only):
            return ""
        if not self._names_refused:
            raise RowRejected(_REFUSED)
        return _REFUSED

    # -- what strangers do --------------------------------------------------------------------------------------------

    def lock_row(self, job_id: UUID, seconds: float) -> None:
        """Somebody locks a row, or goes on to."""
        row, until = self.rows[job_id], self.now() + timedelta(seconds=seconds)
        row.locked_until = until if row.locked_until is None else max(until, row.locked_until)

    def unlock_rows(self) -> None:
        """Nobody locks anything any more."""
        for row in self.rows.values():
            row.locked_until = None

    def forget_leases(self) -> None:
        """Somebody deletes them all, in order to tidy up."""
        for lease_id in list(self.leases):
            self.end_lease(lease_id)

    # -- going back in time -------------------------------------------------------------------------------------------

    def saved(self) -> Saved:
        """All of it, as it is now."""
        rows = {job_id: replace(row) for job_id, row in self.rows.items()}
        leases = {lease_id: replace(lease) for lease_id, lease in self.leases.items()}
        return Saved(rows, self.blockers.copy(), leases, self.last_lease)

    def restore(self, saved: Saved) -> None:
        """Be what it was: a standby that lagged has taken over, or a backup was restored. Its lease ids don't come again."""
        self.rows = {job_id: replace(row) for job_id, row in saved.rows.items()}
        self.blockers = saved.blockers.copy()
        self.leases = {lease_id: replace(lease) for lease_id, lease in saved.leases.items()}
