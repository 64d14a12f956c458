"""Why a job waits at a gate: what is before it there, and when it may go on."""

from __future__ import annotations

import shlex
from typing import TYPE_CHECKING

from aioqueue.client._reasons import Reason, ReasonCode
from aioqueue.vocabulary._abilities import SupportsGates
from aioqueue.vocabulary._gates import FAIR, SEQUENCE, GateKind, kind_of, name_of
from aioqueue.vocabulary._pauses import HELD_BY_PAUSE
from aioqueue.vocabulary._time import duration_text

if TYPE_CHECKING:
    from aioqueue.abc import Store
    from aioqueue.vocabulary._gates import GateStatus
    from aioqueue.vocabulary._job import Job

__all__ = ["gate_reason", "status_of_gate"]

_COUNTED_JOBS = 10_000


async def status_of_gate(store: Store, job: Job | None) -> GateStatus | None:
    """Look at the gate at which a job is held; None where it isn't held at one.

    Arguments:
        store: Open.
        job: As it is stored; None if it isn't there.
    """
    gate = None if job is None else job.held_by
    if gate is None or gate.startswith(HELD_BY_PAUSE) or not isinstance(store, SupportsGates):
        return None
    (status,) = await store.gate_statuses([gate])
    return status


def gate_reason(job: Job, gate: GateStatus) -> Reason:
    """Say what a job waits for that is held at a gate.

    Arguments:
        job: As it is stored.
        gate: As it is now.
    """
    match kind_of(gate.gate):
        case GateKind.LIMIT:
            return _limit(gate)
        case GateKind.RATE:
            return _rate(gate)
        case GateKind.FAIR:
            return _fair(gate)
        case GateKind.SEQUENCE:
            return _sequence(job, gate)


def _limit(gate: GateStatus) -> Reason:
    name = name_of(gate.gate)
    if gate.places is None:
        return _soon(ReasonCode.AT_LIMIT, f"nothing is limited at {gate.gate} any more")
    put = f"`aioqueue limits put {shlex.quote(name)} PLACES`"
    if gate.places == 0:
        return Reason(
            ReasonCode.AT_LIMIT,
            f"the limit {name} is 0: none that waits at {gate.gate} is started",
            f"To have some started: {put}.",
        )
    if gate.count < gate.places:
        return _soon(ReasonCode.AT_LIMIT, f"{gate.places - gate.count:,} of {gate.places:,} places at {gate.gate} are free")
    which = "the one place" if gate.places == 1 else f"one of {gate.places:,} places"
    return Reason(
        ReasonCode.AT_LIMIT,
        f"it waits for {which} at {gate.gate}{_others(gate)}: {_running(gate)}",
        f"It comes when one of them has ended. To see how far it is: `aioqueue jobs show {gate.running[0]}`. For more at once: "
        f"{put}."
        if gate.running
        else f"For more at once: {put}.",
    )


def _rate(gate: GateStatus) -> Reason:
    name = name_of(gate.gate)
    if gate.places is None:
        return _soon(ReasonCode.AT_RATE, f"starts aren't limited at {gate.gate} any more")
    if gate.places == 0:
        return Reason(
            ReasonCode.AT_RATE,
            f"the rate {name} is 0: nothing is started that waits at {gate.gate}",
            f"To have some started: `aioqueue limits put {shlex.quote(name)} STARTS --per TIME`.",
        )
    if gate.next_at is None:
        return _soon(ReasonCode.AT_RATE, f"a start is allowed at {gate.gate} now")
    of = "" if gate.per is None else f" ({gate.places:,} in {duration_text(gate.per)})"
    return Reason(
        ReasonCode.AT_RATE,
        f"the next start at {gate.gate}{of} is allowed at {gate.next_at:%Y-%m-%d %H:%M:%S} UTC{_others(gate)}",
    )


def _sequence(job: Job, gate: GateStatus) -> Reason:
    name = gate.gate.removeprefix(f"{SEQUENCE}=")
    if gate.running:
        running = gate.running[0]
        without = ", that of all without a value of sequence_by" if name == job.type else ""
        return Reason(
            ReasonCode.IN_SEQUENCE,
            f"it's the turn of job {running} in sequence {name}{without}, which runs{_others(gate)}",
            f"To see how far that one is: `aioqueue jobs show {running}`.",
        )
    if gate.blocked_by is not None:
        return Reason(
            ReasonCode.IN_SEQUENCE,
            f"sequence {name} is kept by the failed job {gate.blocked_by}{_others(gate)}",
            f"Retry or delete it: `aioqueue jobs retry {gate.blocked_by}`; or go on without it: "
            f"`aioqueue sequences resume {shlex.quote(name)}`.",
        )
    if gate.head == job.id:
        return _soon(ReasonCode.IN_SEQUENCE, f"it's its turn in sequence {name}")
    if gate.head is None:
        before = "a job" if gate.awaited is None else f"job {gate.awaited}"
        return Reason(
            ReasonCode.IN_SEQUENCE,
            f"it's nobody's turn in sequence {name}{_others(gate)}: {before} before it waits for its next try, its "
            "due time or other jobs, and as that one is strict, those behind it wait, too",
            f"To see for what that one waits: `aioqueue jobs why {gate.awaited}`." if gate.awaited else "",
        )
    return Reason(
        ReasonCode.IN_SEQUENCE,
        f"it's the turn of job {gate.head} in sequence {name}{_others(gate)}",
        f"To see why that one doesn't run: `aioqueue jobs why {gate.head}`.",
    )


def _fair(gate: GateStatus) -> Reason:
    name = name_of(gate.gate).removeprefix(FAIR)
    value = gate.gate.partition("=")[2]
    its = f", of which its own is {value}" if value else ", of which it has none: it takes turns with all that have none"
    return Reason(
        ReasonCode.WAITS_FOR_TURN,
        f"it waits for its turn among the values of fairness_by of {name}{its}{_others(gate)}: whenever workers have free "
        "slots, each value has one job before any has a second",
        "Start more workers, if all of them wait for too long.",
    )


def _soon(code: ReasonCode, text: str) -> Reason:
    return Reason(
        code,
        f"{text}: workers let it come at their next claim",
        "If this stays so, no worker is alive that runs its type, or they can't reach the database: see their logs.",
    )


def _running(gate: GateStatus) -> str:
    named = ", ".join(str(each) for each in gate.running)
    more = f" and {gate.count - len(gate.running):,} more" if gate.count > len(gate.running) else ""
    return f"these run: {named}{more}"


def _others(gate: GateStatus) -> str:
    """How many wait there, itself among them."""
    if gate.waiting < 2:
        return ""
    return f" ({gate.waiting:,}{' or more' if gate.waiting >= _COUNTED_JOBS else ''} wait there)"
