"""What outcomes come to, and writing that: ended, continued or pending again, and told to those that wait.

All of it runs inside an open write transaction, which has seen that the jobs are still as whoever ends them takes them for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.errors import RowRejected
from aioqueue.sqlite._insert import store_jobs
from aioqueue.sqlite._insert_blockers import Waiting, add_blockers
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._resolve import Resolved, resolve_if_possible
from aioqueue.sqlite._resolve_ends import End, store_ends
from aioqueue.sqlite._rows import dump
from aioqueue.sqlite._rows_ids import id_of
from aioqueue.sqlite._rows_times import due_after, due_at, moment
from aioqueue.sqlite._settle_archive import ERRORS_OF_ROW, archive, archive_ended, archived_row, remove
from aioqueue.sqlite._settle_chain import NextStep, check_cycle, insert_steps
from aioqueue.sqlite._webhooks_write import write_deliveries
from aioqueue.store_rules._cancelling import asked_to_end
from aioqueue.store_rules._causes import cause_of
from aioqueue.vocabulary._blockers import ChainEnd
from aioqueue.vocabulary._job import Settlement, SettlementKind
from aioqueue.vocabulary._notification import Notification

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import AttemptError, Ending, NewJob

__all__ = ["Batch"]

_RETURN = f"""
UPDATE job SET state = 1, lease_id = NULL, run_at = s.value ->> 4, errors = {ERRORS_OF_ROW},
    attempt = job.attempt - (s.value ->> 3 = 9), reschedules = job.reschedules + (s.value ->> 3 = 9),
    settled_claims = job.claims, settled_lease = s.value ->> 2, settled_kind = (s.value ->> 3) + :orphaned
FROM json_each(:rows) AS s WHERE job.id = s.value ->> 0
"""

_FORGET = "DELETE FROM blocker WHERE job_id IN (SELECT value FROM json_each(:ids))"


class Batch:
    """Outcomes that are written together.

    Arguments:
        now: The database's time.
    """

    def __init__(self, now: int) -> None:
        self._now = now
        self._finished: list[list[object]] = []
        self._pending: list[list[object]] = []
        self._steps: list[NextStep] = []
        self._types: set[str] = set()
        self._due: int | None = None
        self._ended_chains: set[UUID] = set()
        # Of marked jobs, and of those that bring others along; there are none of it for plain ones.
        self._ends: list[End] = []
        self._needless: list[str] = []
        self._told: list[str] = []
        self._deliveries = False
        self._children: list[NewJob] = []
        self._waiting: list[NextStep] = []
        self._unstarted: list[list[object]] = []
        self._resolved: Resolved | None = None
        self._inserted: Notification | None = None

    def add(
        self,
        outcome: Settlement | Ending,
        fence: tuple[int, int] | None,
        job_id: str,
        job_type: str,
        chain_id: str | None,
        marked: int,
        reason: str | None = None,
    ) -> None:
        """Sort one in.

        Arguments:
            outcome: What is said of the job.
            fence: The claim and the lease of whoever says it, if it's the owner.
            job_id, job_type, chain_id, marked: As they're stored.
            reason: Why its chain was asked to end, if it was: the next step is cancelled.

        Raises:
            RowRejected: It can't be written as it is.
        """
        if outcome.children:
            self._children += outcome.children
        if isinstance(outcome, Settlement) and not outcome.kind.finishes:
            due = _due(outcome, self._now)
            self._pending.append(_values(outcome, fence, job_id, due))
            self._wake(job_type, due)
            return
        self._finished.append(_values(outcome, fence, job_id, None))
        if outcome.kind.ends_chain:
            self._ended_chains.add(outcome.id if chain_id is None else id_of(chain_id))
        else:
            step = NextStep.of(outcome, job_id, job_id if chain_id is None else chain_id, self._now)
            self._steps.append(step)
            if step.blockers:
                self._waiting.append(step)
            elif reason is None:
                self._wake(step.type, step.due)
            if reason is not None:
                self._end_unstarted(step, reason)
        if marked:
            self._add_marked(outcome, job_id, job_type, job_id if chain_id is None else chain_id)

    def _add_marked(self, outcome: Settlement | Ending, job_id: str, job_type: str, chain: str) -> None:
        if outcome.kind.ends_chain:
            self._ends.append(_end(outcome, job_type, chain))
            self._told.append(job_id)
        if outcome.kind in _NEVER_RETRIED:
            self._needless.append(job_id)

    def _end_unstarted(self, step: NextStep, reason: str) -> None:
        error, end = asked_to_end(reason, moment(self._now)), ChainEnd.CANCELLED
        self._unstarted.append(archived_row(str(step.id), SettlementKind.CANCELLED, error=_encoded(error)))
        chain = id_of(step.chain_id)
        self._ends.append(End(step.chain_id, end, step.type, None, cause_of(end, step.type, chain, error)))
        self._ended_chains.add(chain)

    def _wake(self, job_type: str, due: int) -> None:
        self._types.add(job_type)
        self._due = due if self._due is None else min(self._due, due)

    def write(self, connection: Statements, *, orphaned: int = 0) -> bool:
        """Write all of it. Returns whether some who wait for the chains that ended weren't told yet.

        Arguments:
            connection: In a write transaction.
            orphaned: What is added to the stored kind of a settlement, if it's about jobs of dead workers.

        Raises:
            RowRejected: A row is at fault.
            BlockerNotFound, BlockerCycle: Of a next step or a child.
        """
        if self._finished:
            rows = dump(self._finished)
            archive(connection, rows, self._now, orphaned=orphaned)
            if self._steps:
                insert_steps(connection, self._steps, self._now)
            remove(connection, rows)
        if self._pending:
            connection.execute(_RETURN, {"rows": dump(self._pending), "orphaned": orphaned})
        if self._ends or self._needless or self._children or self._waiting:
            return self._write_rest(connection)
        return False

    def _write_rest(self, connection: Statements) -> bool:
        if self._needless:
            connection.execute(_FORGET, {"ids": dump(self._needless)})
        known: dict[UUID, UUID] = {}
        created: set[UUID] = set()
        ended: list[str] = []
        if self._children:
            waited_for = {each.chain_id for step in self._waiting for each in step.blockers}
            stored = store_jobs(connection, self._children, self._now, waited_for=waited_for)
            self._inserted, known, created = stored.result.notification, stored.known, stored.created
            ended += stored.ended
        if self._waiting:
            waiting = [Waiting(str(step.id), step.blockers) for step in self._waiting]
            ended += add_blockers(connection, waiting, known, created, self._now)
        self._deliveries = write_deliveries(connection, self._told, self._now)
        if self._unstarted:
            self._deliveries = archive_ended(connection, self._unstarted, self._now) or self._deliveries
        # Only now, when it's known who waits for what fails with it.
        self._resolved = Resolved()
        own = store_ends(connection, self._ends, self._now) if self._ends else []
        resolve_if_possible(connection, list(dict.fromkeys([*own, *ended])), self._now, self._resolved)
        # A child that has failed with what it waits for is in nobody's way.
        for step in self._waiting:
            check_cycle(connection, step)
        return bool(own) and self._resolved.more

    def notification(self, leases: frozenset[int]) -> Notification:
        """What listeners are told of it; the leases have ended with it."""
        own = Notification(
            types=frozenset(self._types),
            delay=0.0 if self._due is None else (self._due - self._now) / 1e6,
            finished=frozenset(self._ended_chains),
            leases=leases,
            deliveries=self._deliveries,
        )
        if self._resolved is None:
            return own
        others = [each for each in (self._inserted, self._resolved.notification(self._now)) if each is not None]
        return merged([own, *others]) or own


_NO_FENCE = (None, None)
_NEVER_RETRIED = frozenset({SettlementKind.COMPLETED, SettlementKind.CONTINUED})
_CHAIN_ENDS = {
    SettlementKind.COMPLETED: ChainEnd.COMPLETED,
    SettlementKind.FAILED: ChainEnd.FAILED,
    SettlementKind.CANCELLED: ChainEnd.CANCELLED,
}


def _due(settlement: Settlement, now: int) -> int:
    if settlement.run_at is not None:
        return due_at(now, settlement.run_at, "the due time")
    return due_after(now, settlement.delay, "the delay") if settlement.delay else now


def _values(outcome: Settlement | Ending, fence: tuple[int, int] | None, job_id: str, due: int | None) -> list[object]:
    return [
        job_id,
        *(fence or _NO_FENCE),
        int(outcome.kind),
        due,
        None if outcome.error is None else _encoded(outcome.error),
        outcome.outcome,
        None if outcome.output is None else outcome.output.decode(),
    ]


def _encoded(error: AttemptError) -> str:
    try:
        return error.encode().decode()
    except TypeError as refused:
        raise RowRejected(f"an error can't be stored: {refused}") from refused


def _end(outcome: Settlement | Ending, job_type: str, chain: str) -> End:
    end = _CHAIN_ENDS[outcome.kind]
    output = outcome.output.decode() if end is ChainEnd.COMPLETED and outcome.output is not None else None
    return End(chain, end, job_type, output, cause_of(end, job_type, id_of(chain), outcome.error))
