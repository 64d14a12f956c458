"""Watches limits, rates and sequences: by an account of its own who runs there, whose turn it is, and who may run at once."""

from __future__ import annotations

import json
import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from aioqueue.vocabulary._gates import LimitKind, NewLimit, SequenceMember
from aioqueue.vocabulary._job import SettlementKind
from tests.simulation.jobs import gates_of
from tests.simulation.promises import Promise

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._job import NewJob
    from tests.simulation.account import Book, Truth
    from tests.simulation.pauses import PauseChecker
    from tests.simulation.requests import RequestChecker

__all__ = ["GateChecker"]

_AT_ONCE = 1.5
"""Seconds within which who may run does, if nothing goes wrong at all: some claims one after the other, and no sweep."""
_SOON = 15.0
"""Seconds within which it does, once nothing goes wrong any more."""
_MOMENT = 1e-3


@dataclass
class _Limit:
    """A limit that is stored: what counts, what code said last, and whether somebody has changed it since."""

    counts: NewLimit
    defined: NewLimit | None
    changed: bool


@dataclass
class _Starts:
    """Starts at a rate since it was last changed, and when the next one would be due, were they evenly spread."""

    at: list[float] = field(default_factory=list[float])
    arrival: float = -math.inf


class GateChecker:
    """See the module.

    Arguments:
        book: The account.
        pauses: Says what is paused.
        requests: Told of jobs that begin anew.
        last: Gives the live or last step of a chain.

    Attributes:
        deleting: Chains that somebody has begun to delete.
        idle: Says whether a worker that is well has a free slot.
        calm_since: Gives the time from which nothing has gone wrong any more; infinite before.
    """

    def __init__(
        self, book: Book, pauses: PauseChecker, requests: RequestChecker, last: Callable[[UUID], Truth | None]
    ) -> None:
        self._book = book
        self._require = book.require
        self._pauses = pauses
        self._requests = requests
        self._last = last
        self._limits: dict[str, _Limit] = {}
        self._starts: dict[str, _Starts] = {}
        self._gates_of: dict[UUID, tuple[str, ...]] = {}
        self._members: dict[UUID, SequenceMember] = {}
        self._resumed: set[UUID] = set()
        self._could_since: dict[UUID, float] = {}
        self.deleting: set[UUID] = set()
        self.idle: Callable[[], bool] = lambda: False
        self.calm_since: Callable[[], float] = lambda: math.inf

    # -- what there is ------------------------------------------------------------------------------------------------

    def put(self, limits: Sequence[NewLimit], *, defined: bool) -> None:
        """Limits are stored, by code or by people: theirs stay until code says something else than before."""
        for each in limits:
            known = self._limits.get(each.name)
            if defined and known is not None and known.defined == each:
                continue
            self._book.note(f"limit {each.name} is {each.places}{', by code' if defined else ''}")
            by_code = each if defined else None if known is None else known.defined
            self._limits[each.name] = _Limit(each, by_code, changed=not defined)
            self._begin_to_count(each.name)

    def removed(self, names: Sequence[str]) -> None:
        """Somebody has removed limits."""
        for name in names:
            self._book.note(f"limit {name} is removed")
            self._limits.pop(name, None)
            self._begin_to_count(name)

    def _begin_to_count(self, rate: str) -> None:
        """Starts under another rate than before: those from before count for when the next one is due, and for nothing else."""
        if rate in self._starts:
            self._starts[rate] = _Starts(arrival=self._starts[rate].arrival)

    def resumed(self, names: Sequence[str]) -> None:
        """Somebody lets sequences go on: those that have failed keep nobody any more."""
        for chain, member in self._members.items():
            if member.name in names and self._has_failed(chain):
                self._book.note(f"sequence {member.name} goes on in spite of {self._book.name(chain)}")
                self._resumed.add(chain)

    def inserted(self, new: NewJob) -> None:
        """A job is stored."""
        if new.sequence is not None:
            self._members.setdefault(new.id, new.sequence)

    def moved(self, row: Row, due: float) -> None:
        """An operator has changed when a job is due."""
        self._book.note(f"{self._book.name(row.new.id)} is put to {due:.3f}")
        self._book.jobs[row.new.id].due = due

    def reopened(self, row: Row) -> None:
        """An operator lets a job begin anew."""
        truth = self._book.jobs[row.new.id]
        self._book.note(f"{self._book.name(row.new.id)} begins anew")
        truth.releases += truth.attempt + truth.reschedules
        truth.attempt = truth.reschedules = 0
        truth.ended, truth.output, truth.expires, truth.due = None, None, None, self._book.now()
        truth.outside = True
        self._requests.forget(row.chain)

    def deleted(self, job_id: UUID) -> bool:
        """A job's row is removed; whether an operator wanted that."""
        truth = self._book.jobs[job_id]
        if truth.chain not in self.deleting:
            return False
        truth.removed, truth.holder, truth.ended = True, None, truth.ended or SettlementKind.CANCELLED
        return True

    def lives(self, job_id: UUID) -> bool:
        """Whether a job's chain hasn't ended."""
        last = self._last(job_id)
        return last is not None and last.ended is None

    # -- who may run --------------------------------------------------------------------------------------------------

    def _gates(self, truth: Truth) -> list[tuple[str, NewLimit]]:
        """The gates of a job that have a limit, with that."""
        gates = self._gates_of.get(truth.new.id)
        if gates is None:
            gates = gates_of(truth.new.type, json.loads(truth.new.payload).get("tenant", ""))
            self._gates_of[truth.new.id] = gates
        stored = [(gate, self._limits.get(gate.partition("=")[0])) for gate in gates]
        return [(gate, limit.counts) for gate, limit in stored if limit is not None]

    def _running_at(self, gate: str) -> int:
        holding = [truth for truth in self._book.jobs.values() if truth.holder is not None]
        return sum(gate in self._gates_of.get(truth.new.id, ()) for truth in holding)

    def _has_failed(self, chain: UUID) -> bool:
        last = self._last(chain)
        return last is not None and not last.removed and last.ended is SettlementKind.FAILED

    def _keeps(self, chain: UUID) -> bool:
        """Whether a member that comes before others keeps them from running, if nobody of the sequence runs."""
        last, member = self._last(chain), self._members[chain]
        if last is None or last.removed:
            return False
        if last.ended is not None:
            return member.block and self._has_failed(chain) and chain not in self._resumed
        return member.strict or (last.due < self._book.now() - _MOMENT and not self._pauses.keeps(last.new))

    def _in_its_sequence(self, truth: Truth) -> tuple[str, str]:
        """Who of its sequence runs beside a job, and who should run before it; empty for nobody."""
        member = None if truth.chain is None else self._members.get(truth.chain)
        if member is None:
            return "", ""
        chains = [chain for chain, each in self._members.items() if each.name == member.name]
        before = chains[: chains.index(truth.chain)] if truth.chain in chains else []
        others = [each for each in self._book.jobs.values() if each.chain in chains and each is not truth]
        beside = [self._book.name(each.new.id) for each in others if each.holder is not None]
        return ", ".join(beside), ", ".join(self._book.name(chain) for chain in before if self._keeps(chain))

    @staticmethod
    def _each(limit: NewLimit) -> float:
        return (limit.per or 0.0) / limit.places if limit.places else math.inf

    def _arrival(self, gate: str, limit: NewLimit) -> float:
        full = self._book.now() - self._each(limit) * (limit.burst or limit.places)
        return max(full, self._starts[gate].arrival if gate in self._starts else -math.inf)

    def _has_token(self, gate: str, limit: NewLimit) -> bool:
        late = self._book.now() - self._arrival(gate, limit) if limit.places else -math.inf
        return late >= self._each(limit) + _MOMENT

    # -- what is looked at --------------------------------------------------------------------------------------------

    def claimed(self, truth: Truth) -> None:
        """A worker gets a job: it must have been its turn, with a place and a token for it."""
        name = self._book.name(truth.new.id)
        for gate, limit in self._gates(truth):
            if limit.kind is LimitKind.STARTS:
                self._started(name, gate, limit)
                continue
            running = self._running_at(gate)
            self._require(Promise.NEVER_OVER, running <= limit.places, f"{running} run at {gate} with {name}: {limit.places}")
        beside, before = self._in_its_sequence(truth)
        self._require(Promise.ONE_IN_SEQUENCE, not beside, f"{name} was claimed beside {beside}, in the same sequence")
        self._require(Promise.IN_SEQUENCE, not before, f"{name} was claimed before {before}, in the same sequence")

    def _started(self, name: str, gate: str, limit: NewLimit) -> None:
        now, each = self._book.now(), self._each(limit)
        arrival = self._arrival(gate, limit) + each
        starts = self._starts.setdefault(gate, _Starts())
        starts.at.append(now)
        starts.arrival = arrival if limit.places else now
        for number, at in enumerate(reversed(starts.at), 1):
            granted = (limit.burst or limit.places) + (now - at) / each + _MOMENT
            right = limit.places > 0 and number <= granted
            self._require(Promise.NEVER_FASTER, right, f"{name} is start {number} at {gate} in {now - at:.3f} s")

    def _may_run(self, truth: Truth) -> bool:
        now = self._book.now()
        waits = truth.ended is None and truth.holder is None and truth.due <= now and truth.locked_until <= now
        # What waits for other chains is the business of other promises: it's told of their ends when somebody has time.
        if not waits or truth.new.blockers or self._pauses.keeps(truth.new):
            return False
        for gate, limit in self._gates(truth):
            if limit.kind is LimitKind.PLACES and self._running_at(gate) >= limit.places:
                return False
            if limit.kind is LimitKind.STARTS and not self._has_token(gate, limit):
                return False
        return self._in_its_sequence(truth) == ("", "")

    def look(self, *, quiet: bool) -> None:
        """After each change: who may run, while a worker has a free slot, does so soon."""
        now, calm = self._book.now(), self.calm_since()
        could = [job_id for job_id, truth in self._book.jobs.items() if self._may_run(truth)] if self.idle() else []
        self._could_since = {job_id: self._could_since.get(job_id, now) for job_id in could}
        for job_id, since in self._could_since.items():
            waited = now - max(since, calm)
            right = waited <= (_AT_ONCE if quiet else _SOON)
            self._require(Promise.NOT_KEPT, right, f"{self._book.name(job_id)} could have run for {waited:.1f} s, and waits")
