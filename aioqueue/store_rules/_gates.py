"""Which gates a job waits at, and which of several jobs may go through them: what all stores decide alike. No I/O."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.vocabulary._gate_values import sequence_of, value_of
from aioqueue.vocabulary._gates import FAIR, JOB_LIMIT, RATE, SEQUENCE

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.vocabulary._gates import GateRules

__all__ = [
    "Admission",
    "Candidate",
    "GateState",
    "admit",
    "fair_gate_of",
    "gates_behind_turns",
    "gates_of",
    "gates_of_all",
]


def gates_of(rules: GateRules | None, sequence: str | None, payload: bytes, metadata: bytes) -> tuple[str, ...]:
    """The gates that a job has to pass before it may run: its sequence's first, and a rate's last, for which a start is spent.

    Arguments:
        rules: Of its type; None where it has none.
        sequence: The sequence that is stored with it, if one is: it counts before its type's.
        payload, metadata: As stored. Where they can't be read there's no value.
    """
    name = sequence
    if name is None and rules is not None:
        name = sequence_of(rules, payload, metadata)
    gates = [] if name is None else [f"{SEQUENCE}={name}"]
    if rules is not None:
        if rules.limit:
            gates.append(JOB_LIMIT + rules.type + value_of(rules.limit_by, payload, metadata))
        if rules.shared is not None:
            gates.append(rules.shared)
        if rules.rate:
            gates.append(RATE + rules.type + value_of(rules.rate_by, payload, metadata))
    return tuple(gates)


def fair_gate_of(rules: GateRules, payload: bytes, metadata: bytes) -> str | None:
    """The lane in which a job waits for its turn; None where all of its type are alike."""
    return None if rules.fair_by is None else FAIR + rules.type + value_of(rules.fair_by, payload, metadata)


def gates_behind_turns(rules: GateRules) -> list[str]:
    """The gates that all jobs of a type have to pass whose values take turns, as of `gates_of_all`.

    While some are held there nobody else gets a turn: they go on in the order of their due times, in which those of whoever
    has a backlog would always come before the others.
    """
    return [] if rules.fair_by is None else gates_of_all(rules)


def gates_of_all(rules: GateRules) -> list[str]:
    """The gates that all jobs of a type have to pass. Not those that are told apart by values, nor that of jobs without one."""
    gates = [JOB_LIMIT + rules.type] if rules.limit and rules.limit_by is None else []
    gates += [] if rules.shared is None else [rules.shared]
    return [*gates, RATE + rules.type] if rules.rate and rules.rate_by is None else gates


@dataclass(frozen=True, slots=True)
class Candidate:
    """A due job that a claim has locked.

    Attributes:
        id: The job's.
        gates: As of `gates_of`.
    """

    id: UUID
    gates: tuple[str, ...]


@dataclass(slots=True)
class GateState:
    """What a gate lets through, as it's seen by whoever has locked it.

    Attributes:
        free: How many may go through it; None for any number.
        head: For a sequence, whose turn it is, if none of it runs; None for nobody.
        sequence: Whether it's a sequence.
    """

    free: int | None = None
    head: UUID | None = None
    sequence: bool = False


@dataclass(slots=True)
class Admission:
    """What becomes of candidates.

    Attributes:
        goes: Those that run, in their order.
        parked: Those that are held, and at which gate.
        used: How many go through each gate.
    """

    goes: list[UUID] = field(default_factory=list[UUID])
    parked: dict[UUID, str] = field(default_factory=dict[UUID, str])
    used: dict[str, int] = field(default_factory=dict[str, int])


def admit(candidates: Sequence[Candidate], states: Mapping[str, GateState], limit: int) -> Admission:
    """Decide who of the candidates may run. Whoever calls it has locked all of their gates, and looked at them after that.

    Arguments:
        candidates: In the order of the claim.
        states: Of all their gates.
        limit: How many may run at most. Those for whom there's no room, and that would pass, are in neither of the results.
    """
    result = Admission()
    for each in candidates:
        closed = next((gate for gate in each.gates if not _open(states[gate], each.id, result.used.get(gate, 0))), None)
        if closed is not None:
            result.parked[each.id] = closed
        elif len(result.goes) < limit:
            result.goes.append(each.id)
            for gate in each.gates:
                result.used[gate] = result.used.get(gate, 0) + 1
    return result


def _open(state: GateState, job: UUID, used: int) -> bool:
    if state.sequence:
        return state.head == job and not used
    return state.free is None or used < state.free
