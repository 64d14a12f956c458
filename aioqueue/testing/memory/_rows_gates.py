"""The rows of gates: limits, rates that were used, sequences, and the marks of what has left a gate.

Who is at which gate isn't kept beside the jobs: it's read from their rows.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING

from aioqueue.vocabulary._gates import FAIR, SEQUENCE, GateKind, kind_of
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from datetime import datetime
    from uuid import UUID

    from aioqueue.testing.memory._rows_jobs import Row
    from aioqueue.vocabulary._gates import NewLimit, SequenceMember

__all__ = ["Gates", "Limit", "Member", "UsedRate", "first_of_held", "gate_held_at", "is_in_fair_lane", "leave_gate"]


@dataclass(slots=True)
class Limit:
    """A stored limit.

    Attributes:
        limit: What counts.
        defined: What code said last; None for one that no code has.
        changed: Whether somebody has changed it since at run time.
    """

    limit: NewLimit
    defined: NewLimit | None = None
    changed: bool = False


@dataclass(slots=True)
class UsedRate:
    """A rate that has been used.

    Attributes:
        arrival: When the next start is due, were they evenly spread.
        wake_at: When those that wait are let come; None while nobody waits.
    """

    arrival: datetime
    wake_at: datetime | None = None


@dataclass(slots=True)
class Member:
    """A chain that is in a sequence.

    Attributes:
        ended: How it has ended, if it may be retried; None while it's live.
    """

    sequence: str
    strict: bool
    block: bool
    ended: int | None = None

    @property
    def gate(self) -> str:
        """The sequence's."""
        return f"{SEQUENCE}={self.sequence}"

    @property
    def keeps_others(self) -> bool:
        """Whether those behind it wait since it has failed."""
        return self.block and self.ended == StoredState.FAILED


@dataclass(frozen=True, slots=True)
class _Seen:
    state: int
    run_at: datetime
    gates: tuple[str, ...]
    chain: UUID


class Gates:
    """All of these tables.

    Attributes:
        limits: By their names.
        rates: By their gates.
        members: By their chains, in the order of the sequences.
        marks: How often each gate was left since somebody was let come.
        cursors: The fair lane of each type that had its turn last.
        news: Whether there are marks that nobody was told of.
    """

    def __init__(self) -> None:
        self.limits: dict[str, Limit] = {}
        self.rates: dict[str, UsedRate] = {}
        self.members: dict[UUID, Member] = {}
        self.marks: Counter[str] = Counter()
        self.cursors: dict[str, str] = {}
        self.news = False
        self._seen: dict[UUID, _Seen] = {}

    def mark(self, gate: str, freed: int = 1) -> None:
        """Leave a mark: somebody else may be let come."""
        if freed > 0:
            self.marks[gate] += freed
            self.news = True

    def mark_sequences(self, rows: Iterable[Row]) -> None:
        """Leave marks at all sequences in which somebody waits: who may run there has changed, as with a pause."""
        for gate in dict.fromkeys(gate_held_at(row) for row in rows):
            if gate is not None and kind_of(gate) is GateKind.SEQUENCE:
                self.mark(gate)

    def enter(self, row: Row, sequence: SequenceMember | None) -> None:
        """Put a live job's chain into a sequence, unless it's in one; a chain's next job has the place of the one before."""
        if sequence is not None and row.chain not in self.members:
            self.members[row.chain] = Member(sequence.name, sequence.strict, sequence.block)
        if row.chain in self.members:
            self.members[row.chain].ended = None
            row.gates = row.gates or ()
            self.watch(row)

    def enter_instead(self, row: Row, sequence: SequenceMember | None) -> None:
        """Let a job's chain be in this sequence, where it keeps its place, since another has taken its first job's."""
        there = self.members.get(row.chain)
        if there is not None and sequence is not None and there.sequence == sequence.name:
            there.strict, there.block = sequence.strict, sequence.block
        elif there is not None:
            del self.members[row.chain]
            self.mark(there.gate)
        self.enter(row, sequence)

    def hold(self, row: Row, gate: str) -> None:
        """Hold a job at a gate."""
        self.watch(row)
        row.state, row.held_by, row.let_come = StoredState.HELD, gate, None
        row.gates = () if row.chain in self.members else None
        self.watch(row)

    def let_come(self, row: Row) -> None:
        """Let a job be due that is held at a gate: a claim decides."""
        self.watch(row)
        row.state, row.let_come, row.held_by = StoredState.PENDING, row.held_by, None
        row.gates = () if row.let_come is None else (row.let_come,)
        self.watch(row)

    def let_through(self, row: Row, gates: tuple[str, ...]) -> None:
        """Let a job through its gates: it's taken next."""
        if is_in_fair_lane(row):
            self.cursors[row.new.type] = row.held_by or ""
        row.held_by = row.let_come = None
        row.gates = gates or None
        self.watch(row)

    def watch(self, row: Row) -> None:
        """See from now on whether a job with gates leaves them."""
        if row.gates is not None:
            self._seen.setdefault(row.new.id, _Seen(row.state, row.run_at, row.gates, row.chain))

    def look(self, rows: Mapping[UUID, Row]) -> None:
        """Leave marks for whatever jobs at gates have done since the last look but begin to run, whoever had them do so."""
        for job_id, before in list(self._seen.items()):
            row = rows.get(job_id)
            del self._seen[job_id]
            if row is None or not row.live:
                left_for_good(self, before, row)
            else:
                if has_left(before, row):
                    left(self, before, gate_held_at(row))
                self.watch(row)
        self._look_at_failed(rows)

    def _look_at_failed(self, rows: Mapping[UUID, Row]) -> None:
        """Those of which nothing is left keep nobody any more."""
        ended = {chain: member for chain, member in self.members.items() if member.ended is not None}
        if ended:
            for chain in sorted(ended.keys() - {row.chain for row in rows.values()}):
                del self.members[chain]
                if ended[chain].keeps_others:
                    self.mark(ended[chain].gate)


def has_left(before: _Seen, row: Row) -> bool:
    """Whether a job that is still there isn't any more where it was."""
    return row.state != StoredState.RUNNING and (row.state != before.state or row.run_at > before.run_at)


def left(gates: Gates, before: _Seen, held_at: str | None) -> None:
    """Leave marks where a job was let come or let through, and at its sequence, but not where it's held now."""
    at = set(before.gates) if before.state in (StoredState.PENDING, StoredState.RUNNING) else set[str]()
    if before.chain in gates.members:
        at.add(gates.members[before.chain].gate)
    for gate in sorted(at - {held_at}):
        gates.mark(gate)


def left_for_good(gates: Gates, before: _Seen, row: Row | None) -> None:
    """Leave marks where a job was that has finished, or is gone. One that may be retried keeps its chain's place."""
    left(gates, before, None)
    member = gates.members.get(before.chain)
    if member is None or (row is not None and row.state == StoredState.CONTINUED):
        return
    if row is not None and row.state in (StoredState.FAILED, StoredState.CANCELLED):
        member.ended = row.state
    else:
        del gates.members[before.chain]


def gate_held_at(row: Row) -> str | None:
    """The gate at which a job is held; None if it isn't. A pause isn't one."""
    is_held = row.state == StoredState.HELD and row.held_by is not None and not row.held_by.startswith("pause:")
    return row.held_by if is_held else None


def is_in_fair_lane(row: Row) -> bool:
    """Whether a job waits for its turn, and for nothing else."""
    return (gate_held_at(row) or "").startswith(FAIR)


def leave_gate(row: Row) -> None:
    """Let a job that is held at a gate wait for its time instead: it stands at none until it's due."""
    if gate_held_at(row) is not None:
        row.state, row.held_by = StoredState.PENDING, None


def first_of_held(rows: Iterable[Row], row: Row, now: datetime) -> datetime:
    """When a job is due that is brought forward: at once, and before those of its priority that are held where it is."""
    gate = gate_held_at(row)
    others = [each.run_at for each in rows if gate is not None and gate_held_at(each) == gate and each is not row]
    return min(row.run_at, now, *(each - timedelta(microseconds=1) for each in others))
