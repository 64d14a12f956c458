"""What the store in memory keeps: jobs, leases and a clock, and the few ways in which they change."""

from __future__ import annotations

import threading
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue.store_rules._cancelling import as_cancelled, gives_way
from aioqueue.store_rules._deliveries import delivery_of
from aioqueue.store_rules._events import KINDS, PHASES, body_of_end, body_of_pending, body_of_phase, body_of_progress
from aioqueue.store_rules._history import KEPT_ERRORS
from aioqueue.store_rules._lease_ids import new_lease_id
from aioqueue.store_rules._phases import KEPT_LOGS
from aioqueue.store_rules._turns import Turns
from aioqueue.testing.memory._rows_blockers import Blockers
from aioqueue.testing.memory._rows_events import EventLog
from aioqueue.testing.memory._rows_gates import Gates, first_of_held, leave_gate
from aioqueue.testing.memory._rows_jobs import as_dry_run, is_late, kept_hash
from aioqueue.testing.memory._rows_leases import Duties, Lease
from aioqueue.testing.memory._rows_pauses import Pauses
from aioqueue.testing.memory._rows_progress import Come
from aioqueue.testing.memory._rows_schedules import Schedules
from aioqueue.testing.memory._transaction_turn import Turn
from aioqueue.vocabulary._attempt_log import AttemptLog
from aioqueue.vocabulary._event_log import EventKind
from aioqueue.vocabulary._job import SettlementKind, StoredState
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence
    from uuid import UUID

    from aioqueue.store_rules._listeners import Listeners
    from aioqueue.testing.memory._rows_blockers import Edge, End
    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.testing.memory._rows_leases import Window
    from aioqueue.vocabulary._job import AttemptError, ClaimedJob, NewJob, Settlement
    from aioqueue.vocabulary._phases import PhaseWrite, ProgressWrite
    from aioqueue.vocabulary._webhooks import Delivery

__all__ = ["Database"]


class Database:
    """What all stores on the same jobs share. No method waits, and each is one step: what decides about several of them in a
    row holds `lock`, since a lease's thread comes in between otherwise.

    A test that wants to see every change derives from it.

    Attributes:
        rows: Committed jobs, live and finished.
        blockers: Who waits for what.
        come: How far jobs have come.
        duties: Who does what one process at a time does.
        windows: Who keeps unique keys beyond the end, by what stands for the keys.
        requests: Why chains were asked to end whose rows were locked, by their ids.
        deliveries: Of webhooks, by their ids.
        pauses: What isn't to be started for now.
        gates: What limits which jobs may run.
        turns: Of the job types, in claims.
        schedules: With their newest ticks.
        uncommitted: New jobs of the transaction that is open.
        holding: Jobs that whoever looks at it has locked; none but in a transaction's own view.
        workers: Names of the workers that had leases, by these, also after their ends.
        events: The log of them.
        listeners: Of each open store.
        lock: Held by each verb and rollback, from the event loop and from the threads of leases.
        turn: Held by the transaction that is open: there is one at a time.
    """

    def __init__(self) -> None:
        self.rows: dict[UUID, Row] = {}
        self.blockers = Blockers()
        self.come = Come()
        self.duties = Duties()
        self.windows: dict[UUID, Window] = {}
        self.requests: dict[UUID, str] = {}
        self.deliveries: dict[UUID, Delivery] = {}
        self.pauses = Pauses()
        self.gates = Gates()
        self.turns = Turns()
        self.schedules = Schedules()
        self.uncommitted: dict[UUID, Row] = {}
        self.holding: frozenset[UUID] = frozenset()
        self.leases: dict[int, Lease] = {}
        self.workers: dict[int, str] = {}
        self.events = EventLog()
        self.listeners: list[Listeners] = []
        self.lock = threading.RLock()
        self.turn = Turn()
        self._ahead = timedelta()

    # -- time -----------------------------------------------------------------------------------------------------

    def now(self) -> datetime:
        """The database's clock: every rule goes by it, and `advance` moves it."""
        return datetime.now(UTC) + self._ahead

    def advance(self, seconds: float) -> None:
        """Let time pass without waiting: move the clock forward."""
        self._ahead += timedelta(seconds=seconds)

    # -- notifications --------------------------------------------------------------------------------------------

    def tell(self, notification: Notification) -> None:
        """Tell everybody who has subscribed, in any store: each hears of it in the loop of its own."""
        for listeners in list(self.listeners):
            listeners.tell_from_thread(notification)

    def log(self, kind: EventKind, row: Row, body: bytes = b"{}") -> None:
        """Log what has happened to a job, if somebody reads that. A draft has no readers: it's logged when it's made."""
        if self.events.readers and self.events.watched(now := self.now()):
            new = row.new
            self.events.add(kind, now, new.id, row.chain, new.type, attempt=row.attempt, claims=row.claims, body=body)

    def tell_of_events(self) -> None:
        """Tell everybody that there are events to read, if there are new ones."""
        if self.events.news:
            self.events.news = False
            self.tell(Notification(events=True))

    # -- leases ---------------------------------------------------------------------------------------------------

    def new_lease_id(self) -> int:
        """A number that no lease has had."""
        return new_lease_id()

    def valid(self, lease_id: int, now: datetime) -> bool:
        """Whether a lease is there and hasn't run out."""
        lease = self.leases.get(lease_id)
        return lease is not None and lease.expires_at > now

    def add_lease(
        self,
        worker: str,
        duration: float,
        *,
        extra: bool,
        types: Sequence[str] | None = None,
        slots: int | None = None,
        singleton: str | None = None,
    ) -> int:
        """Make a lease; returns its id. Nobody else has its name."""
        lease_id, now = self.new_lease_id(), self.now()
        self.workers[lease_id] = worker
        named = None if types is None else tuple(types)
        self.leases[lease_id] = Lease(worker, now + timedelta(seconds=duration), extra, now, named, slots, singleton)
        return lease_id

    def renew_lease(self, lease_id: int, duration: float) -> None:
        """Move the end of a lease that is there."""
        self.leases[lease_id].expires_at = self.now() + timedelta(seconds=duration)

    def end_lease(self, lease_id: int) -> None:
        """Delete a lease for the worker that has it."""
        self.leases.pop(lease_id, None)

    def take_lease(self, lease_id: int) -> None:
        """Delete a lease that has run out: nothing that was claimed under it can be written by its worker any more."""
        self.leases.pop(lease_id, None)

    # -- jobs -----------------------------------------------------------------------------------------------------

    def add(self, row: Row) -> None:
        """Store a new job. The caller has looked whether its id or unique key is there."""
        self.rows[row.new.id] = row
        self.gates.enter(row, row.new.sequence)
        self.log(EventKind.BLOCKED if row.open_blockers else EventKind.ENQUEUED, row)

    def remove(self, row: Row) -> None:
        """Remove a job, whatever its state, with what it has waited for."""
        del self.rows[row.new.id]
        self.blockers.edges.pop(row.new.id, None)
        of_it = [each for each in self.deliveries.values() if each.job_id == row.new.id and each.finished_at is not None]
        for each in of_it:
            del self.deliveries[each.id]
        self.come.forget(row.new.id)
        if row.live:
            self.forget_request(row)
        self.log(EventKind.DELETED, row)

    def take(self, row: Row, lease_id: int, now: datetime) -> ClaimedJob:
        """Claim a job for a lease."""
        expired = is_late(row, now)
        row.state, row.started_at, row.lease_id, row.written = StoredState.RUNNING, now, lease_id, None
        row.attempt += 1
        row.claims += 1
        self.log(EventKind.STARTED, row)
        return row.claimed(self.blockers.ended(row.new.id), expired=expired)

    def make_dry(self, row: Row) -> None:
        """Note that a job is a dry run from now on, whoever goes on with it."""
        row.new = as_dry_run(row.new)

    def park(self, row: Row, held_by: str) -> None:
        """Keep a pending job from being looked at by claims."""
        row.state, row.held_by = StoredState.HELD, held_by

    def unpark(self, row: Row, now: datetime) -> None:
        """Let a parked job be pending again."""
        row.state, row.held_by, row.run_at = StoredState.PENDING, None, max(row.run_at, now)

    def recover(self, row: Row) -> ClaimedJob:
        """Hand the job of a lost worker to another, which will say what becomes of it. It was started: it doesn't expire."""
        return replace(row.claimed(()), worker=self.workers.get(row.lease_id or 0, ""))

    def hold(self, row: Row) -> None:
        """Lock a row, and do nothing to it: only a transaction does."""

    def give_back(self, row: Row, now: datetime) -> None:
        """Take a claim back, as if it hadn't been made, but for the number that fences it."""
        row.state, row.run_at = StoredState.PENDING, now
        row.attempt -= 1
        if not row.attempt and not row.reschedules:
            row.started_at = None
        self.log(EventKind.RESCHEDULED, row, body_of_pending(SettlementKind.RESCHEDULED, now, now))

    def replace(self, row: Row, new: NewJob, run_at: datetime, expires_at: datetime | None, open_blockers: int) -> None:
        """Let another job take the place of one that waits, which begins anew as that one, but for its claims and errors."""
        row.new, row.run_at, row.expires_at, row.open_blockers = new, run_at, expires_at, open_blockers
        row.state = StoredState.HELD if open_blockers else StoredState.PENDING
        row.marked = row.marked or open_blockers > 0
        row.attempt = row.reschedules = 0
        row.started_at = row.outcome = row.held_by = None
        self.come.begin_anew(row.new.id)
        self.gates.enter_instead(row, new.sequence)
        self.log(EventKind.BLOCKED if open_blockers else EventKind.ENQUEUED, row)

    def let_go(self, row: Row) -> None:
        """Take its unique key from a job."""
        row.unique_hash = None

    def keep_window(self, unique_hash: UUID, window: Window) -> None:
        """Note until when a chain keeps its unique key, though it may complete before."""
        self.windows[unique_hash] = window

    def drop_window(self, unique_hash: UUID) -> None:
        """Forget a window."""
        self.windows.pop(unique_hash, None)

    def request(self, row: Row, reason: str) -> None:
        """Note that a chain was asked to end while it was running."""
        row.cancel_reason = reason

    def request_beside(self, chain_id: UUID, reason: str) -> None:
        """Note that a chain was asked to end whose row is locked."""
        self.requests[chain_id] = reason

    def forget_request(self, row: Row) -> None:
        """Forget that a chain was asked to end: it has, or begins anew."""
        row.cancel_reason = None
        self.requests.pop(row.chain, None)

    def write(
        self, row: Row, each: Settlement, now: datetime, again_at: datetime, *, orphaned: bool, cancelled: str | None = None
    ) -> None:
        """Write how an attempt ended, or, if its chain was asked to end for a reason, what that makes of it."""
        row.written, row.written_about_orphan, row.outcome = each, orphaned, each.outcome
        row.written_cancelled = cancelled is not None
        if each.logs is not None:
            log = AttemptLog(attempt=each.attempt, claims=each.claims, lines_json=each.logs)
            self.come.keep_log(row.new.id, log, KEPT_LOGS)
        if cancelled is not None and gives_way(each):
            each = as_cancelled(each, cancelled, now)
        if orphaned:
            self.log(EventKind.REAPED, row)
        if each.error is not None:
            row.errors = (*row.errors, each.error)[-KEPT_ERRORS:]
        if each.kind.finishes:
            row.state, row.finished_at, row.output = int(each.kind), now, each.output
            row.unique_hash = kept_hash(row)
            self.forget_request(row)
            self.note_delivery(row)
            next_id = None if each.next is None else each.next.id
            self.log(KINDS[each.kind], row, body_of_end(each.kind, outcome=each.outcome, error=each.error, next_id=next_id))
            return
        row.state, row.run_at = StoredState.PENDING, again_at
        if each.kind is SettlementKind.RESCHEDULED:
            row.attempt -= 1
            row.reschedules += 1
        self.log(KINDS[each.kind], row, body_of_pending(each.kind, again_at, now, each.error))

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
        """End a job for somebody who isn't its worker: a late write of that worker isn't taken for a repetition of this."""
        row.state, row.finished_at, row.output, row.outcome = state, now, output, outcome
        row.lease_id, row.written, row.open_blockers, row.unique_hash = 0, None, 0, kept_hash(row)
        row.held_by = None
        self.forget_request(row)
        if error is not None:
            row.errors = (*row.errors, error)[-KEPT_ERRORS:]
        kind = SettlementKind(int(state))
        self.log(KINDS[kind], row, body_of_end(kind, outcome=outcome, error=error, next_id=next_id))
        self.note_delivery(row)

    def note_delivery(self, row: Row) -> None:
        """Store what is to be sent, if a job has ended its chain, and has a webhook."""
        made = delivery_of(row.ending)
        if made is not None:
            self.deliveries[made.id] = made
            self.tell(Notification(deliveries=True))

    def reopen(self, row: Row, now: datetime, open_blockers: int) -> None:
        """Let a finished job begin anew, as one that was never started, behind what it waits for."""
        row.state = StoredState.HELD if open_blockers else StoredState.PENDING
        row.run_at, row.attempt, row.reschedules, row.open_blockers = now, 0, 0, open_blockers
        row.expires_at = row.started_at = row.finished_at = row.outcome = row.output = row.written = None
        self.forget_request(row)
        self.gates.enter(row, row.new.sequence)
        if open_blockers:
            self.log(EventKind.BLOCKED, row)
        else:
            self.log(EventKind.RETRYING, row, body_of_pending(SettlementKind.RETRIED, now, now))

    def bring_forward(self, row: Row, now: datetime) -> None:
        """Let a pending job be due."""
        row.run_at = first_of_held(self.rows.values(), row, now)
        self.log(EventKind.RESCHEDULED, row, body_of_pending(SettlementKind.RESCHEDULED, row.run_at, now))

    def reschedule(self, row: Row, run_at: datetime) -> None:
        """Let a pending job be due at another time."""
        row.run_at = run_at
        leave_gate(row)
        self.log(EventKind.RESCHEDULED, row, body_of_pending(SettlementKind.RESCHEDULED, run_at, self.now()))

    # -- how far they have come -----------------------------------------------------------------------------------

    def write_phase(self, write: PhaseWrite, now: datetime) -> bool:
        """Note where a phase of a running job stands; whether so."""
        written = self.come.write_phase(write, now)
        if written and write.state in PHASES:
            self.log(PHASES[write.state], self.rows[write.id], body_of_phase(write))
        return written

    def write_progress(self, write: ProgressWrite, now: datetime) -> None:
        """Note how far a running job has come."""
        if self.come.write_progress(write, now):
            self.log(EventKind.PROGRESS, self.rows[write.id], body_of_progress(write))

    def forget_progress(self, row: Row) -> None:
        """Forget how far a job has come: it begins from its start."""
        self.come.begin_anew(row.new.id)

    # -- what waits for what --------------------------------------------------------------------------------------

    def mark(self, row: Row) -> None:
        """Note that somebody waits for the chain of a live job. A write, though it may be marked: it locks the row."""
        row.marked = True

    def add_edges(self, job_id: UUID, edges: Iterable[Edge]) -> None:
        """Store what a new job waits for."""
        self.blockers.edges[job_id] = list(edges)

    def drop_edges(self, job_id: UUID) -> None:
        """Forget what a job has waited for."""
        self.blockers.edges.pop(job_id, None)

    def resolve(self, job_id: UUID, ordinals: Collection[int], *, resolved: bool = True) -> None:
        """Note which of a job's chains were counted."""
        for edge in self.blockers.of(job_id):
            if edge.ordinal in ordinals:
                edge.resolved = resolved

    def count_down(self, row: Row, number: int, ready_at: datetime, expires_at: datetime | None) -> None:
        """Take chains off those that a job still waits for; after the last one it's pending."""
        row.open_blockers -= number
        if row.open_blockers <= 0:
            row.state, row.run_at, row.expires_at = StoredState.PENDING, ready_at, expires_at
            self.log(EventKind.UNBLOCKED, row)

    def remember(self, end: End) -> None:
        """Note how a chain has ended, or whether there is somebody left to be told."""
        self.blockers.ends[end.chain_id] = end

    def forget(self, chain_id: UUID) -> None:
        """Forget how a chain ended."""
        self.blockers.ends.pop(chain_id, None)

    def refusal(self, row: Row, each: Settlement) -> str:  # noqa: ARG002 - for those who override it
        """Why a row can't hold what is to be written; empty if it can. A test's database may have rows that can't."""
        return ""
