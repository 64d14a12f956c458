"""What is wrong at gates: limits that let nobody in, shared ones that nobody has put, jobs without the field that tells them
apart, and sequences that a failed job keeps.
"""

from __future__ import annotations

import shlex
from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.vocabulary._finding import Finding, Verdict
from aioqueue.vocabulary._gates import FAIR, JOB_LIMIT, RATE, SEQUENCE, LimitKind

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioqueue.definitions._registry import Registry
    from aioqueue.vocabulary._gates import By, GateStatus, KeptSequence, StoredLimit

__all__ = ["FieldGate", "gates_of_fields", "judge_fields", "judge_limits", "judge_sequences"]

_MOST_NAMED = 10
_COUNTED_JOBS = 10_000


def judge_limits(limits: Sequence[StoredLimit], registry: Registry | None = None) -> list[Finding]:
    """Which limits let nobody in, and which shared ones are named, and nobody has put. Nothing is said where there are none.

    Arguments:
        limits: All that are stored.
        registry: Has the job types that name shared limits; None leaves that out.
    """
    closed = sorted((each for each in limits if each.places == 0), key=lambda each: -each.waiting)
    waited_for = [each for each in closed if each.waiting]
    findings = [
        Finding(
            "limits",
            Verdict.WARNING,
            f"{_what(each)} is 0: {_jobs(each.waiting)} for it to be raised",
            f"To let them in: `{_put(each)}`; for any number of them: `aioqueue limits remove {shlex.quote(each.name)}`.",
        )
        for each in waited_for[:_MOST_NAMED]
    ]
    if len(waited_for) > _MOST_NAMED:
        more = f"and {len(waited_for) - _MOST_NAMED:,} more limits of 0 that jobs wait at"
        findings.append(Finding("limits", Verdict.WARNING, more, "See them all: `aioqueue limits list`."))
    if idle := [each.name for each in closed if not each.waiting]:
        findings.append(Finding("limits", Verdict.OK, f"0, and no job waits: {_some(idle)}"))
    return findings + ([] if registry is None else _never_put({each.name for each in limits}, registry))


def _never_put(names: set[str], registry: Registry) -> list[Finding]:
    sharing: dict[str, set[str]] = {}
    for job_type in registry.types.values():
        rules = job_type.gate_rules
        if rules is not None and rules.shared is not None and rules.shared not in names:
            sharing.setdefault(rules.shared, set()).add(job_type.name)
    return [
        Finding(
            "limits",
            Verdict.WARNING,
            f"nobody has put the limit {name}, so that any number of jobs runs of {_some(sorted(types))}",
            f"Say how many: `aioqueue limits put {shlex.quote(name)} PLACES`.",
        )
        for name, types in sorted(sharing.items())[:_MOST_NAMED]
    ]


@dataclass(frozen=True, slots=True)
class FieldGate:
    """The gate of those jobs of a type that lack the field of the metadata by which they are told apart.

    Attributes:
        gate: Its text.
        type: The job type's name.
        option: Of the type, which names the field.
        field: The field's name.
    """

    gate: str
    type: str
    option: str
    field: str


def gates_of_fields(registry: Registry) -> list[FieldGate]:
    """Where jobs come that lack such a field, of those types that go by one."""
    names = {"limit=": JOB_LIMIT, "rate=": RATE, "sequence_by=": f"{SEQUENCE}=", "fairness_by=": FAIR}
    by_type: dict[str, dict[str, By]] = {}
    for job_type in registry.types.values():
        if job_type.gate_rules is not None:
            by_type[job_type.name] = job_type.gate_rules.told_apart_by
    return [
        FieldGate(names[option] + name, name, option, by.name)
        for name, told_apart in sorted(by_type.items())
        for option, by in told_apart.items()
        if by.metadata
    ]


def judge_fields(gates: Sequence[FieldGate], statuses: Sequence[GateStatus]) -> list[Finding]:
    """At which gates jobs run or wait together, since they lack the field that would tell them apart.

    Arguments:
        gates: As of `gates_of_fields`.
        statuses: As they are now, in the same order.
    """
    there = [(gate, status.count + status.waiting) for gate, status in zip(gates, statuses, strict=True)]
    return [
        Finding(
            "limits",
            Verdict.WARNING,
            f"{gate.option}{gate.field!r} of {gate.type} is a field of the metadata, and {_lacking(number)}: at {gate.gate} "
            "they count as one",
            "Give it at the call, metadata={...}, or by a middleware of the client; or name a parameter of the function.",
        )
        for gate, number in there
        if number
    ][:_MOST_NAMED]


def _lacking(number: int) -> str:
    more = " or more" if number >= _COUNTED_JOBS else ""
    return f"{number:,}{more} {'job that runs or waits has' if number == 1 else 'jobs that run or wait have'} none"


def judge_sequences(kept: Sequence[KeptSequence]) -> list[Finding]:
    """Which sequences a failed job keeps. Nothing is said where none is kept."""
    findings = [
        Finding(
            "sequences",
            Verdict.WARNING,
            f"the failed job {each.blocked_by} keeps the sequence {each.name}: "
            + (f"{_jobs(each.waiting)} behind it" if each.waiting else "no job waits behind it yet"),
            f"Retry or delete it: `aioqueue jobs retry {each.blocked_by}`; or go on without it: "
            f"`aioqueue sequences resume {shlex.quote(each.name)}`.",
        )
        for each in sorted(kept, key=lambda each: -each.waiting)[:_MOST_NAMED]
    ]
    if len(kept) > _MOST_NAMED:
        more = f"and {len(kept) - _MOST_NAMED:,} more sequences that failed jobs keep"
        findings.append(Finding("sequences", Verdict.WARNING, more, "See them all: `aioqueue sequences list`."))
    return findings


def _what(limit: StoredLimit) -> str:
    return f"the {'limit' if limit.kind is LimitKind.PLACES else 'rate'} {limit.name}"


def _put(limit: StoredLimit) -> str:
    per = "" if limit.kind is LimitKind.PLACES else " --per TIME"
    return f"aioqueue limits put {shlex.quote(limit.name)} PLACES{per}"


def _jobs(number: int) -> str:
    more = " or more" if number >= _COUNTED_JOBS else ""
    return f"{number:,}{more} due {'job waits' if number == 1 else 'jobs wait'}"


def _some(names: Iterable[str]) -> str:
    given = list(names)
    more = f" and {len(given) - _MOST_NAMED} more" if len(given) > _MOST_NAMED else ""
    return f"{', '.join(given[:_MOST_NAMED])}{more}"
