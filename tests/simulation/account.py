"""The checker's own account of a history: it believes neither store nor worker."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from aioqueue.vocabulary._job import SettlementKind
from tests.simulation.promises import Promise, Violation

if TYPE_CHECKING:
    from collections.abc import Callable
    from collections.abc import Set as AbstractSet
    from uuid import UUID

    from aioqueue.vocabulary._job import NewJob
    from tests.simulation.expectations import Run
    from tests.simulation.plan import Refusal
    from tests.simulation.process import Process

Fence = tuple[int, int]
"""A lease and a claim's number."""

Writing = tuple[int, int, SettlementKind, bool]
"""Lease, claim's number and kind of a settlement, and whether it was written about an orphan."""


@dataclass
class Lease:
    """One lease.

    Attributes:
        process: Whose worker has been told that it holds it.
        taken: Whether something of it was taken.
        known_until: Until when its worker knows that it's valid: counted from before it asked.
        lapsed_at: When its worker heard that it's valid after that time was over.
    """

    worker: str
    duration: float
    expires: float
    process: Process | None = None
    taken: bool = False
    known_until: float = 0.0
    lapsed_at: float | None = None


@dataclass
class Truth:
    """One job.

    Attributes:
        refuses: What its row can't hold.
        holder: Lease and claim that have the job at the moment.
        claimant: The process that claimed it last.
        orphaned: Claims that were lost because their lease ran out.
        written: Settlements that were carried out.
        locked_until: Until when somebody else has its row locked.
        runs: The newest of each claim.
        all_runs: All of them.
        rewound: Whether the database has forgotten something of it: what was counted doesn't count any more.
        chain: The id of its chain's first job; itself, if it is that.
        position: Its place in the chain.
        next: What it has continued with.
        output: What it has completed with.
        outside: Whether somebody other than a worker has ended it.
        ended_at: When it ended.
        removed: Whether it was removed since it was old enough.
    """

    new: NewJob
    due: float
    expires: float | None
    refuses: Refusal = ""
    claims: int = 0
    attempt: int = 0
    reschedules: int = 0
    releases: int = 0
    holder: Fence | None = None
    claimant: Process | None = None
    ended: SettlementKind | None = None
    expired: bool = False
    orphaned: set[int] = field(default_factory=set[int])
    written: set[Writing] = field(default_factory=set[Writing])
    locked_until: float = 0.0
    runs: dict[Fence, Run] = field(default_factory=dict["Fence", "Run"])
    all_runs: list[Run] = field(default_factory=list["Run"])
    rewound: bool = False
    chain: UUID | None = None
    position: int = 0
    next: UUID | None = None
    output: bytes | None = None
    outside: bool = False
    ended_at: float = 0.0
    removed: bool = False

    def copy(self) -> Truth:
        """As it is now."""
        return replace(self, orphaned=set(self.orphaned), written=set(self.written), runs=dict(self.runs))


@dataclass(frozen=True)
class SavedBook:
    """An account at some moment."""

    jobs: dict[UUID, Truth]
    leases: dict[int, Lease]


class Book:
    """The account, and the first violation, which ends the history.

    Arguments:
        now: The time.
        note: Writes a line of the history.
        name: How a job is called in it.
    """

    def __init__(self, now: Callable[[], float], note: Callable[[str], None], name: Callable[[UUID], str]) -> None:
        self.now = now
        self.note = note
        self.name = name
        self.jobs: dict[UUID, Truth] = {}
        self.leases: dict[int, Lease] = {}
        self.runs: list[Run] = []
        self.forgotten: AbstractSet[UUID] = frozenset()
        """Jobs that the database has forgotten: a standby that lagged took over."""
        self.violation: Violation | None = None

    def violated(self, promise: Promise, text: str) -> None:
        """A promise is broken."""
        if self.violation is None:
            self.violation = Violation(promise, text)
            self.note(f"VIOLATED: {self.violation}")

    def require(self, promise: Promise, holds: bool, text: str) -> None:
        """A promise is broken unless this holds."""
        if not holds:
            self.violated(promise, text)

    def valid(self, lease_id: int) -> bool:
        """Whether a lease is."""
        lease = self.leases.get(lease_id)
        return lease is not None and lease.expires > self.now()

    @property
    def unfinished(self) -> int:
        """How many jobs haven't ended."""
        return sum(truth.ended is None for truth in self.jobs.values())

    def running_in(self, process: Process) -> list[Run]:
        """The handlers that run in a process."""
        return [run for run in self.runs if run.process is process and run.ended_at is None and not process.exited]

    def busy_in(self, process: Process) -> set[UUID]:
        """The jobs for which a process has slots in use: those that it has claimed, and those that run there."""
        held = {job_id for job_id, truth in self.jobs.items() if truth.holder is not None and truth.claimant is process}
        return held | {run.job.id for run in self.running_in(process)}

    # -- going back in time -------------------------------------------------------------------------------------------

    def saved(self) -> SavedBook:
        """The account as it is now."""
        return SavedBook(
            {job_id: truth.copy() for job_id, truth in self.jobs.items()},
            {lease_id: replace(lease) for lease_id, lease in self.leases.items()},
        )

    def restore(self, saved: SavedBook) -> None:
        """The database is what it was then. What ran has run all the same."""
        gone, self.jobs = self.jobs, {job_id: truth.copy() for job_id, truth in saved.jobs.items()}
        known, self.leases = self.leases, {lease_id: replace(lease) for lease_id, lease in saved.leases.items()}
        for lease_id, lease in self.leases.items():
            newer = known.get(lease_id)
            lease.process, lease.known_until = (newer.process, newer.known_until) if newer is not None else (None, 0.0)
        self.forgotten = gone.keys() - self.jobs.keys()
        for job_id, truth in self.jobs.items():
            newer = gone[job_id]
            truth.all_runs, truth.runs, truth.locked_until = newer.all_runs, dict(newer.runs), newer.locked_until
            truth.rewound = bool(newer.claims)
            truth.orphaned |= {run.job.claims for run in truth.all_runs}
