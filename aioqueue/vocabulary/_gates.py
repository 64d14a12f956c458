"""Gates: what due jobs wait at until they may run. A limit, a rate, a sequence, and fairness are gates. No I/O.

A gate is named by a text: a name, and `=` with the value that tells its own from others', as JSON, where it has one.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from datetime import datetime
    from uuid import UUID

__all__ = [
    "FAIR",
    "JOB_LIMIT",
    "RATE",
    "SEQUENCE",
    "By",
    "GateKind",
    "GateRules",
    "GateStatus",
    "KeptSequence",
    "LimitKind",
    "NewLimit",
    "SequenceMember",
    "StoredLimit",
    "kind_of",
    "name_of",
]

JOB_LIMIT = "job:"
"""Before a job type's name: the name of its own limit."""
RATE = "rate:"
"""Before a job type's name: the name of its rate."""
FAIR = "fair:"
"""Before a job type's name: the name of its lanes, one for each value, that take turns."""
SEQUENCE = "sequence"
"""The name of all sequences: `sequence=account:42` is the gate of one. Its value is plain text."""


class GateKind(StrEnum):
    """What a job waits for at a gate."""

    SEQUENCE = "sequence"
    """Those that were inserted before it in its sequence."""
    LIMIT = "limit"
    """One of so many places."""
    RATE = "rate"
    """The next start that the rate allows."""
    FAIR = "fair"
    """Its turn among the values of `fairness_by`. Nothing but the slots of workers keeps it."""


class LimitKind(StrEnum):
    """What a stored limit counts."""

    PLACES = "places"
    """Jobs that run at once."""
    STARTS = "starts"
    """Starts in a time."""


@dataclass(frozen=True, slots=True)
class By:
    """Where the value is found that tells the gates of one name apart.

    Attributes:
        name: Of a top-level argument, or of a field of the metadata.
        metadata: Whether it's the metadata's.
    """

    name: str
    metadata: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class GateRules:
    """At which gates the jobs of one type wait, as a worker's registry has it.

    Attributes:
        type: The type's present name, which the names of its own gates have, also for jobs that are stored under an alias.
        limit: Whether it has a limit of its own; `limit_by` tells its values apart, or is None.
        shared: The name of the limit that it shares with other types; None without one.
        rate: Whether its starts have a rate; `rate_by` tells its values apart, or is None.
        sequence_by: What tells its sequences apart; None where only calls say so.
        strict, block: Of those sequences, as of `SequenceMember`.
        fair_by: What takes turns; None where all are alike.
    """

    type: str
    limit: bool = False
    limit_by: By | None = None
    shared: str | None = None
    rate: bool = False
    rate_by: By | None = None
    sequence_by: By | None = None
    strict: bool = False
    block: bool = False
    fair_by: By | None = None

    @property
    def told_apart_by(self) -> dict[str, By]:
        """Where the values are that tell its jobs apart, by the option that says so."""
        given = {
            "limit=": self.limit_by,
            "rate=": self.rate_by,
            "sequence_by=": self.sequence_by,
            "fairness_by=": self.fair_by,
        }
        return {option: by for option, by in given.items() if by is not None}


@dataclass(frozen=True, slots=True, kw_only=True)
class SequenceMember:
    """That a job, and its chain after it, is one of a sequence, whose members run one at a time, in the order of their inserts.

    Attributes:
        name: The sequence's.
        strict: Whether those behind it wait, too, while it waits for its next try, its due time, or other chains.
        block: Whether those behind it wait once it has failed for good, until somebody lets them go on.
    """

    name: str
    strict: bool = False
    block: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class NewLimit:
    """A limit to be stored.

    Attributes:
        name: A shared limit's own; or `JOB_LIMIT` or `RATE` with the name of a job type.
        kind: What it counts.
        places: How many jobs may run at once, or start in `per` seconds; 0 for none.
        per: Seconds, for starts.
        burst: How many starts may come at once after a while without any, for starts.
    """

    name: str
    kind: LimitKind = LimitKind.PLACES
    places: int
    per: float | None = None
    burst: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredLimit:
    """A limit as it is stored.

    Attributes:
        name, kind, places, per, burst: As of `NewLimit`.
        defined: Whether a worker's code has stored it, or would.
        changed: Whether somebody has changed it at run time.
        running: How many jobs run at its gates, counted up to 10,000; 0 for starts.
        waiting: How many are held at its gates, counted up to 10,000.
    """

    name: str
    kind: LimitKind
    places: int
    per: float | None
    burst: int | None
    defined: bool
    changed: bool
    running: int
    waiting: int


@dataclass(frozen=True, slots=True, kw_only=True)
class GateStatus:
    """One gate as it is at a moment, for people who ask why a job waits.

    Attributes:
        gate: Its text.
        kind: What is waited for.
        places: Of a limit or a rate, as of `NewLimit`; None where it isn't limited (any more), and for others.
        per: Of a rate.
        running: Ids of jobs that run at it, ten at most.
        count: How many run at it.
        waiting: How many are held at it, counted up to 10,000.
        next_at: Of a rate, when the next start is allowed; None where one is now.
        head: Of a sequence, the id of the job whose turn it is; None for others.
        blocked_by: Of a sequence, the id of the failed member that keeps it; None where it goes on.
        awaited: Of a sequence, the id of the strict member that can't run yet, while those behind it wait for it; else None.
    """

    gate: str
    kind: GateKind
    places: int | None = None
    per: float | None = None
    running: tuple[UUID, ...] = ()
    count: int = 0
    waiting: int = 0
    next_at: datetime | None = None
    head: UUID | None = None
    blocked_by: UUID | None = None
    awaited: UUID | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class KeptSequence:
    """A sequence that a failed member keeps.

    Attributes:
        name: The sequence's.
        blocked_by: The id of the failed job; of several the first one's.
        waiting: How many are held behind it, counted up to 10,000.
    """

    name: str
    blocked_by: UUID
    waiting: int


def name_of(gate: str) -> str:
    """The name that a gate shares with those of other values: that of its limit, where it has one."""
    return gate.partition("=")[0]


def kind_of(gate: str) -> GateKind:
    """What is waited for at a gate."""
    if gate.startswith((JOB_LIMIT, RATE)):
        return GateKind.LIMIT if gate.startswith(JOB_LIMIT) else GateKind.RATE
    if name_of(gate) == SEQUENCE:
        return GateKind.SEQUENCE
    return GateKind.FAIR if gate.startswith(FAIR) else GateKind.LIMIT
