"""A database in memory with the rules of `aioqueue.abc`, without faults. Its methods are atomic: none of them awaits."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from aioqueue.abc import Due, Renewal
from aioqueue.errors import LeaseLost, RowRejected
from aioqueue.store_rules._history import KEPT_ERRORS
from aioqueue.vocabulary._job import (
    Claim,
    ClaimedJob,
    Inserted,
    Job,
    LostReason,
    SettlementKind,
    SettleResult,
    StoredState,
)
from tests.simulation.rows import REFUSED, Row, Rules, Saved, accepts
from tests.simulation.scheduler import START

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.vocabulary._job import NewJob, Settlement
    from tests.simulation.checker import Checker
    from tests.simulation.plan import Refusal

EPOCH = datetime.fromtimestamp(START, UTC)


def _at(moment: float) -> datetime:
    return EPOCH + timedelta(seconds=moment)


@dataclass
class Database:
    """All rows. The checker is told of everything that is done here, whatever the rules say."""

    now: Callable[[], float]
    checker: Checker
    rules: Rules = field(default_factory=Rules)
    rows: dict[UUID, Row] = field(default_factory=dict)
    leases: dict[int, tuple[str, float]] = field(default_factory=dict)
    last_lease: int = 0
    names_refused: bool = True
    """Whether it can tell which row of a batch it refuses."""
    refusals: dict[UUID, Refusal] = field(default_factory=dict)
    """Which of the jobs that are inserted refuse what."""

    def insert(self, jobs: Sequence[NewJob]) -> list[Inserted]:
        results: list[Inserted] = []
        for job in jobs:
            if job.id in self.rows:
                results.append(Inserted(job.id, created=False))
                continue
            now = self.now()
            run_at = now + (job.delay or 0.0)
            if job.run_at is not None:
                run_at = max(now, (job.run_at - EPOCH).total_seconds())
            expires = None if job.expires is None else run_at + job.expires
            refuses = self.refusals.get(job.id, "")
            self.rows[job.id] = Row(job, created_at=now, run_at=run_at, expires_at=expires, refuses=refuses)
            self.checker.inserted(job, run_at, refuses)
            results.append(Inserted(job.id, created=True))
        return results

    def open_lease(self, worker: str, duration: float) -> int:
        self.last_lease += 1
        self.leases[self.last_lease] = (worker, self.now() + duration)
        self.checker.lease_opened(self.last_lease, worker, duration)
        return self.last_lease

    def valid(self, lease_id: int | None) -> bool:
        lease = self.leases.get(lease_id) if lease_id is not None else None
        return lease is not None and lease[1] > self.now()

    def claim(self, lease_id: int, types: Sequence[str], limit: int, leases: Mapping[str, int]) -> list[ClaimedJob]:
        for each in (lease_id, *leases.values()):
            if self.rules.claim_checks_lease and not self.valid(each):
                raise LeaseLost(f"lease {each} isn't valid")
        now = self.now()
        wanted = [StoredState.PENDING] if self.rules.claim_checks_state else [StoredState.PENDING, StoredState.RUNNING]
        due = [
            row
            for row in self.rows.values()
            if row.state in wanted and row.new.type in types and row.locked_until <= now
            if row.run_at <= now or not self.rules.due_check
        ]
        due.sort(key=lambda row: (row.new.priority, row.run_at, row.new.id))
        claimed: list[ClaimedJob] = []
        for row in due[:limit]:
            row.state, row.started_at = StoredState.RUNNING, now
            row.lease_id = leases.get(row.new.type, lease_id)
            row.claims += 1
            row.attempt += 1 if self.rules.claim_counts else 0
            row.written = None
            late = row.expires_at is not None and row.expires_at <= now
            claimed.append(self._claimed(row, expired=late and row.attempt == 1 and not row.reschedules))
            self.checker.claimed(claimed[-1])
        return claimed

    def _claimed(self, row: Row, *, expired: bool = False) -> ClaimedJob:
        assert row.lease_id is not None
        assert row.started_at is not None
        new = row.new
        return ClaimedJob(
            id=new.id,
            type=new.type,
            payload=new.payload,
            priority=new.priority,
            attempt=row.attempt,
            claims=row.claims,
            lease_id=row.lease_id,
            created_at=_at(row.created_at),
            run_at=_at(row.run_at),
            started_at=_at(row.started_at),
            max_attempts=new.max_attempts,
            retry=new.retry,
            timeout=new.timeout,
            expired=expired,
            reschedules=row.reschedules,
            key=new.key,
            tags=new.tags,
            metadata=new.metadata,
        )

    def ownerless(self, settlements: Sequence[Settlement]) -> set[UUID]:
        """Which of them could be written about orphans at this moment."""
        return {each.id for each in settlements if self._settle_lost(each, orphaned=True) is None}

    def settle(
        self, settlements: Sequence[Settlement], *, orphaned: bool, believed: Collection[UUID] = ()
    ) -> list[SettleResult]:
        """See `Store.settle`. What is `believed` to be an orphan was seen to be one a little earlier."""
        locked = {each.id for each in settlements if self.locked(each.id)}
        refused = [each for each in settlements if each.id not in locked and self._refused(each, orphaned=orphaned)]
        if refused and not self.names_refused:
            raise RowRejected(REFUSED)
        busy, error = SettleResult(busy=True), SettleResult(LostReason.ERROR, REFUSED)
        return [
            busy if each.id in locked else error if each in refused else self._settle(each, believed, orphaned=orphaned)
            for each in settlements
        ]

    def locked(self, job_id: UUID) -> bool:
        """Whether somebody has locked a row."""
        row = self.rows.get(job_id)
        return row is not None and row.locked_until > self.now()

    def _refused(self, each: Settlement, *, orphaned: bool) -> bool:
        row = self.rows.get(each.id)
        if row is None or accepts(row.refuses, each) or self._repeated(row, each, orphaned=orphaned):
            return False
        return self._settle_lost(each, orphaned=orphaned) is None

    def _repeated(self, row: Row, each: Settlement, *, orphaned: bool) -> bool:
        if row.written is None or not self.rules.settle_recognises_repeats:
            return False
        if self.rules.repeats_have_a_writer and (row.written_about_orphan != orphaned or row.written.kind != each.kind):
            return False
        return (row.written.lease_id, row.written.claims) == (each.lease_id, each.claims)

    def _lost(self, claim: Claim, lease_id: int) -> LostReason | None:
        row = self.rows.get(claim.id)
        if row is None:
            return LostReason.NOT_FOUND
        if row.state is StoredState.CANCELLED:
            return LostReason.CANCELLED
        if row.state is not StoredState.RUNNING:
            return LostReason.TAKEN if row.state is StoredState.PENDING else LostReason.COMPLETED
        if (self.rules.fence_claims and row.claims != claim.claims) or (self.rules.fence_lease and row.lease_id != lease_id):
            return LostReason.TAKEN
        return None

    def _settle_lost(self, each: Settlement, *, orphaned: bool) -> LostReason | None:
        lost = self._lost(Claim(each.id, each.claims), each.lease_id)
        if lost is None and self.rules.settle_checks_lease and not orphaned and each.lease_id not in self.leases:
            return LostReason.TAKEN
        if lost is None and self.rules.orphans_need_no_lease and orphaned and self.valid(each.lease_id):
            return LostReason.TAKEN
        return lost

    def _settle(self, each: Settlement, believed: Collection[UUID], *, orphaned: bool) -> SettleResult:
        row = self.rows.get(each.id)
        if row is not None and self._repeated(row, each, orphaned=orphaned):
            result, wrote = SettleResult(), False
        else:
            if each.id in believed:
                lost = self._lost(Claim(each.id, each.claims), each.lease_id)
            else:
                lost = self._settle_lost(each, orphaned=orphaned)
            if lost is None and row is not None:
                self._write(row, each, orphaned=orphaned)
            result, wrote = SettleResult(lost), lost is None
            if wrote and orphaned and self.rules.orphans_end_lease and not self.valid(each.lease_id):
                self._end_lease(each.lease_id)
        self.checker.settled(each, result, orphaned=orphaned, wrote=wrote)
        return result

    def _end_lease(self, lease_id: int) -> None:
        if self.leases.pop(lease_id, None) is not None:
            self.checker.lease_taken(lease_id)

    def _write(self, row: Row, each: Settlement, *, orphaned: bool) -> None:
        now = self.now()
        if each.error is not None:
            row.errors = (*row.errors, each.error)[-KEPT_ERRORS:]
        row.outcome = each.outcome
        row.written, row.written_about_orphan = each, orphaned
        if each.kind in {SettlementKind.RETRIED, SettlementKind.RESCHEDULED}:
            row.state = StoredState.PENDING
            delay = (each.delay or 0.0) if self.rules.retry_waits else 0.0
            row.run_at = now + delay if each.run_at is None else max(now, (each.run_at - EPOCH).total_seconds())
            if each.kind is SettlementKind.RESCHEDULED:
                row.attempt -= 1
                row.reschedules += 1
            return
        row.state, row.finished_at, row.output = StoredState(each.kind.value), now, each.output
        if not self.rules.archive_keeps:
            del self.rows[row.new.id]

    def release(self, lease_id: int, claims: Sequence[Claim], *, end: bool) -> None:
        if end:
            owned = [row for row in self.rows.values() if row.state is StoredState.RUNNING and row.lease_id == lease_id]
            claims = [*claims, *(Claim(row.new.id, row.claims) for row in owned)]
        for claim in claims:
            row = self.rows.get(claim.id)
            if row is None or row.state is not StoredState.RUNNING or self.locked(claim.id):
                continue
            fenced = row.claims != claim.claims or row.lease_id != lease_id or lease_id not in self.leases
            if self.rules.release_checks_fence and fenced:
                continue
            row.state = StoredState.PENDING
            row.run_at = self.now()
            row.attempt -= 1 if self.rules.release_gives_attempt_back else 0
            self.checker.released(lease_id, claim)
        if end and self.leases.pop(lease_id, None) is not None:
            self.checker.lease_ended(lease_id)

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        if lease_id not in self.leases:
            return Renewal(valid=False)
        if self.rules.renewal_moves_expiry:
            self.leases[lease_id] = (self.leases[lease_id][0], self.now() + duration)
        self.checker.renewed(lease_id, duration)
        lost = {claim: reason for claim in held if (reason := self._lost(claim, lease_id)) is not None}
        known = set(held)
        owned = [
            Claim(row.new.id, row.claims)
            for row in self.rows.values()
            if row.state is StoredState.RUNNING and row.lease_id == lease_id
        ]
        unheld = tuple(claim for claim in owned if claim not in known)
        return Renewal(
            valid=True,
            lost=lost if self.rules.renewal_tells_lost else {},
            unheld=unheld if self.rules.renewal_tells_unheld else (),
        )

    def take_expired(self, limit: int, own: Collection[int]) -> list[ClaimedJob]:
        own = own if self.rules.take_leaves_own else ()
        now = self.now()
        expired = [
            lease_id
            for lease_id, (_, expires_at) in self.leases.items()
            if lease_id not in own and (expires_at <= now or not self.rules.take_respects_expiry)
        ]
        for lease_id in expired[:1]:
            self._end_lease(lease_id)
        orphans = self._orphans(own)
        orphans.sort(key=lambda row: row.new.id)
        return [self._recovered(row) for row in orphans[:limit]]

    def _recovered(self, row: Row) -> ClaimedJob:
        late = row.expires_at is not None and row.expires_at <= self.now()
        job = self._claimed(row, expired=late and not self.rules.recovered_never_expire)
        self.checker.recovered(job)
        return job

    def _orphans(self, own: Collection[int]) -> list[Row]:
        return [
            row
            for row in self.rows.values()
            if row.state is StoredState.RUNNING and row.lease_id not in own and not self.valid(row.lease_id)
        ]

    def next_due(self, types: Sequence[str], own: Collection[int]) -> Due:
        now = self.now()
        waiting = [row.run_at for row in self.rows.values() if row.state is StoredState.PENDING and row.new.type in types]
        ends = [expires_at for lease_id, (_, expires_at) in self.leases.items() if lease_id not in own]
        if any(row.lease_id not in self.leases for row in self._orphans(own)):
            ends.append(now)
        return Due(
            job=max(0.0, min(waiting) - now) if waiting else None,
            lease=max(0.0, min(ends) - now) if ends else None,
        )

    # -- what strangers do --------------------------------------------------------------------------------------------

    def forget_leases(self) -> None:
        """Somebody deletes them all, in order to tidy up."""
        for lease_id in list(self.leases):
            del self.leases[lease_id]
            self.checker.lease_ended(lease_id)

    # -- going back in time -------------------------------------------------------------------------------------------

    def saved(self) -> Saved:
        """All of it, as it is now."""
        return Saved({job_id: replace(row) for job_id, row in self.rows.items()}, dict(self.leases), self.last_lease)

    def restore(self, saved: Saved) -> None:
        """Be what it was: a standby that lagged has taken over, or a backup was restored."""
        self.rows = {job_id: replace(row) for job_id, row in saved.rows.items()}
        self.leases = dict(saved.leases)
        if not self.rules.lease_ids_are_new:
            self.last_lease = saved.last_lease

    def fetch(self, ids: Sequence[UUID]) -> list[Job | None]:
        return [self._job(row) if (row := self.rows.get(each)) is not None else None for each in ids]

    def _job(self, row: Row) -> Job:
        def when(moment: float | None) -> datetime | None:
            return None if moment is None else _at(moment)

        return Job(
            id=row.new.id,
            type=row.new.type,
            state=row.state.shown(due=row.run_at <= self.now()),
            priority=row.new.priority,
            payload=row.new.payload,
            created_at=_at(row.created_at),
            run_at=_at(row.run_at),
            started_at=when(row.started_at),
            finished_at=when(row.finished_at),
            attempt=row.attempt,
            max_attempts=row.new.max_attempts,
            output_json=row.output,
            outcome=row.outcome,
            errors=row.errors,
            reschedules=row.reschedules,
        )
