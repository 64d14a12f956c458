"""How gates are at a moment, and letting sequences go on. See `SupportsGates`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.memory._gates import count_at, held_at, next_token_at, runs_at, tokens_of, turn_of
from aioqueue.vocabulary._gates import SEQUENCE, GateKind, GateStatus, KeptSequence, kind_of, name_of
from aioqueue.vocabulary._job import StoredState

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    from aioqueue.testing.memory._rows import Database

__all__ = ["gate_statuses", "kept_sequences", "resume_sequences"]

NAMED = 10
"""How many of those that run at a gate are named."""
LISTED = 1_000
"""How many kept sequences are listed."""


def gate_statuses(database: Database, gates: Sequence[str]) -> list[GateStatus]:
    """How gates are. See `SupportsGates.gate_statuses`."""
    return [_status(database, gate) for gate in gates]


def _status(database: Database, gate: str) -> GateStatus:
    now, kind = database.now(), kind_of(gate)
    limit = database.gates.limits.get(name_of(gate))
    head, blocked_by = turn_of(database, gate, now) if kind is GateKind.SEQUENCE else (None, None)
    is_rate = kind is GateKind.RATE
    running = [] if is_rate else [row.new.id for row in database.rows.values() if runs_at(row, gate)]
    count = 0 if is_rate else count_at(database, gate)
    return GateStatus(
        gate=gate,
        kind=kind,
        places=None if limit is None else limit.limit.places,
        per=None if limit is None else limit.limit.per,
        running=tuple(sorted(running)[:NAMED]),
        count=count,
        waiting=len(held_at(database, gate)),
        next_at=next_token_at(database, gate, now) if is_rate and tokens_of(database, gate, now) == 0 else None,
        head=head,
        blocked_by=blocked_by,
        awaited=None if head or blocked_by or count else _awaited(database, gate),
    )


def _awaited(database: Database, gate: str) -> UUID | None:
    """The first strict member of a sequence in which nobody runs and it's nobody's turn."""
    live = {row.chain: row.new.id for row in database.rows.values() if row.live}
    strict = (chain for chain, member in database.gates.members.items() if member.gate == gate and member.strict)
    return next((live[chain] for chain in strict if chain in live), None)


def kept_sequences(database: Database) -> list[KeptSequence]:
    """Sequences that a failed member keeps. See `SupportsGates.kept_sequences`."""
    first: dict[str, UUID] = {}
    for chain, member in database.gates.members.items():
        if member.keeps_others:
            first.setdefault(member.sequence, chain)
    return [
        KeptSequence(
            name=name, blocked_by=_failed_of(database, first[name]), waiting=len(held_at(database, f"{SEQUENCE}={name}"))
        )
        for name in sorted(first)[:LISTED]
    ]


def _failed_of(database: Database, chain: UUID) -> UUID:
    failed = [row.new.id for row in database.rows.values() if row.chain == chain and row.state == StoredState.FAILED]
    return failed[-1] if failed else chain


def resume_sequences(database: Database, names: Sequence[str]) -> list[bool]:
    """Let sequences go on. See `SupportsGates.resume_sequences`."""
    return [_resume(database, name) for name in names]


def _resume(database: Database, name: str) -> bool:
    keeping = [member for member in database.gates.members.values() if member.sequence == name and member.keeps_others]
    for member in keeping:
        member.block = False
        database.gates.mark(member.gate)
    return bool(keeping)
