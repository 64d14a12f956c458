"""What a seed stands for: jobs, processes, what their handlers do, and what goes wrong when. Values only; see `themes`."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from aioqueue import InSequence, Retry
    from aioqueue.vocabulary._schedules import CatchUp, Overlap
    from tests.simulation.network import Faults

Deed = Literal[
    "return",
    "at_once",
    "raise",
    "fail",
    "retry",
    "reschedule",
    "reschedule_at",
    "block",
    "stubborn",
    "unwilling",
    "cancel",
    "hard_of_hearing",
    "deaf",
    "raise_hostile",
    "fail_hostile",
    "complete",
    "gives_up",
]
"""`stubborn` and `unwilling` go on for some time after they're cancelled, and then end as cancelled, or return; one who is
`hard_of_hearing` takes no notice of the first cancellation, one who is `deaf` of none.
`gives_up`: fails for good when it's cancelled.
`complete`: as `return`, and then in a transaction of the handler's own for `extra` seconds."""

Kind = Literal[
    "in_loop",
    "in_thread",
    "rude",
    "short",
    "link",
    "link_in_thread",
    "short_link",
    "waits",
    "asked",
    "child",
    "phased",
    "limited",
    "twice_limited",
    "rated",
    "fair",
    "gated_link",
]
"""The job's type: a coroutine function, a plain one, one whose retry policy raises, one with a short lease of its own; and the
like that may continue; one that waits for others; one that nobody runs, which is ended from outside; one that
others enqueue; one with phases; and those with limits, rates and turns."""

PLAIN_CHAIN_KINDS: tuple[Kind, ...] = ("link", "link_in_thread", "short_link")
"""Those that may continue, and wait at no gates."""
CHAIN_KINDS: tuple[Kind, ...] = (*PLAIN_CHAIN_KINDS, "gated_link")
"""Those that may continue."""

Refusal = Literal["", "outcome", "next", "all"]
"""What the row of a job can't hold: a completed job's outcome; a continuation; anything but the least that can be written."""

Blow = Literal[
    "kill",
    "freeze",
    "freeze_all",
    "cut",
    "cut_all",
    "stop",
    "stop_twice",
    "force",
    "cancel",
    "clock",
    "lock",
    "failover",
    "silence",
    "silence_all",
    "sick",
    "forget",
]
"""`lock`: somebody locks a job's row. `forget`: somebody deletes all leases. `failover`: a standby takes over that lagged.
`silence`: nothing comes any more through the connections that lease threads have at that moment; `silence_all`: nor through the
ones they open then. `sick`: one kind of statement fails."""

SICK_VERBS = ("next_due", "claim", "release")
"""What may be sick."""


class Theme(StrEnum):
    """What a history is about."""

    MIXED = "a bit of everything"
    ROUGH = "long jobs that outlive their leases"
    LATE = "requests that are carried out long after their callers gave them up"
    FROZEN = "processes frozen past their leases, starved of processor time"
    RUDE = "policies and texts that raise, outcomes that are refused"
    LOCKED = "rows locked by somebody else"
    BACKLOG = "claims whose answers are lost, with more jobs waiting"
    FAILOVER = "a standby that lagged takes over"
    SILENT = "lease threads' lines fall silent"
    DEAF = "handlers that swallow cancellation"
    LEAVING = "workers stopped while the database is away"
    RETURNING = "owners that come back just when their leases have run out"
    CHAINS = "jobs that continue, between crashes, failures and lost answers"
    WAITING = "jobs that wait for others, between crashes, failures and lost answers"
    RECOVERY = "dead workers, idle ones, and statements that fail"
    CANCELLING = "jobs that are asked to end, between crashes, failures and lost answers"
    PHASES = "jobs with phases, between crashes, failures and lost answers"
    PLANS = "schedules through deploys, and pauses, between crashes, failures and lost answers"
    GATES = "limits, rates, sequences and turns, changed at run time, between crashes and lost answers"


@dataclass(frozen=True)
class Step:
    """What a handler does in one of its runs.

    Attributes:
        deed: How it goes.
        seconds: How long it takes.
        extra: How long it goes on once it's cancelled, or the delay it asks for.
    """

    deed: Deed
    seconds: float
    extra: float


@dataclass(frozen=True)
class Link:
    """One continuation: the next step of a chain.

    Attributes:
        kind: Its type.
        steps: Run by run; after the last it returns at once.
        delay: Seconds until it's due.
    """

    kind: Kind
    steps: tuple[Step, ...]
    delay: float | None


@dataclass(frozen=True)
class Wait:
    """One job for which another one waits.

    Attributes:
        index: Which, of those before it.
        settled: Whether it takes the end however it is.
    """

    index: int
    settled: bool


@dataclass(frozen=True)
class Answer:
    """What somebody ends a job with from outside.

    Attributes:
        after: Seconds after it was enqueued.
        good: Whether it's completed; otherwise it's failed.
    """

    after: float
    good: bool


@dataclass(frozen=True)
class PlannedJob:
    """One job.

    Attributes:
        at: When it's enqueued.
        kind: Its type.
        steps: Run by run; after the last it returns at once.
        refuses: What its row can't hold.
        links: What it continues with, one after the other, when it returns.
        waits: What it waits for.
        asked: When it's asked to end: so many seconds after it was enqueued.
        children: How many jobs each of its runs enqueues, before it ends.
        answers: What is done to it from outside.
        tenant: What its limit's value is; empty for a type without.
        key: Its key, if it isn't of a chain.
        sequence: In which sequence it is, and how.
        open_for: Seconds for which its producer's transaction is open after it's stored; None without one.
    """

    at: float
    kind: Kind
    steps: tuple[Step, ...]
    retry: Retry
    timeout: float | None
    delay: float | None
    expires: float | None
    priority: Literal[1, 2, 3, 4]
    refuses: Refusal
    links: tuple[Link, ...] = ()
    waits: tuple[Wait, ...] = ()
    open_for: float | None = None
    answers: tuple[Answer, ...] = ()
    children: int = 0
    asked: tuple[float, ...] = ()
    tenant: str = ""
    key: str | None = None
    sequence: InSequence | None = None


Act = Literal[
    "pause_all",
    "pause_type",
    "pause_key",
    "resume_all",
    "resume_type",
    "resume_key",
    "pause_schedule",
    "resume_schedule",
    "run_now",
    "put",
    "delete",
    "limit",
    "rate",
    "unlimit",
    "go_on",
    "job_now",
    "job_later",
    "job_retry",
    "job_delete",
]
"""What operators do: `put` and `delete` is about a schedule beside those of the code, `limit`, `rate` and `unlimit` about
limits, `go_on` about a sequence that a failed member keeps, and the last four about jobs."""


@dataclass(frozen=True)
class PlannedSchedule:
    """One schedule.

    Attributes:
        name: Within its registry.
        every, catch_up, grace, overlap: As of `Registry.schedule`.
        seconds: How long its jobs take.
        key: Theirs.
    """

    name: str
    every: float
    seconds: float
    catch_up: CatchUp
    grace: float
    overlap: Overlap
    key: str | None

    @property
    def options(self) -> dict[str, Any]:
        """As `Registry.schedule` takes them."""
        return {"every": self.every, "catch_up": self.catch_up, "grace": self.grace, "overlap": self.overlap}


@dataclass(frozen=True)
class PlannedDeploy:
    """A state of the code, which processes have that are started from some time on.

    Attributes:
        release: Its number; None without one.
    """

    at: float
    schedules: tuple[PlannedSchedule, ...]
    release: int | None


@dataclass(frozen=True)
class PlannedAct:
    """What an operator does.

    Attributes:
        which: Of the schedules, or the jobs, that are there then; also of the people.
        value: The type or the key that is paused or resumed; the name of the limit, or of the sequence.
        until: After how many seconds a pause ends by itself.
        schedule: What is put.
        number: Of places, or starts; or the seconds for which a job is put off.
    """

    at: float
    act: Act
    which: int
    value: str
    until: float | None
    schedule: PlannedSchedule | None
    number: int = 0


@dataclass(frozen=True)
class Event:
    """Something that happens.

    Attributes:
        victim: Which of the processes that are there then, of the jobs, or of the verbs; modulo their number.
        seconds: How long it lasts, or by how much the standby lagged; what takes a process away brings another after that
            time.
        same_name: Whether that one has the same name.
    """

    at: float
    blow: Blow
    victim: int
    seconds: float
    same_name: bool


@dataclass(frozen=True)
class Plan:
    """One history, before it happens.

    Attributes:
        names_refused: Whether the database can tell which row of a batch it refuses.
        starved: Seconds at most that an event loop waits for the processor between two of its turns.
        calm_at: When the faults end.
        retention: Seconds after which chains that have ended are removed; 0 for never.
        deploys: States of the code, in order; none for one without schedules.
        quiet: Whether nothing goes wrong at all: then all that may run must do so at once.
    """

    seed: int
    theme: Theme
    jobs: tuple[PlannedJob, ...]
    events: tuple[Event, ...]
    faults: Faults
    names_refused: bool
    starved: float
    processes: int
    workers: int
    concurrency: int
    lease: float
    poll_interval: float
    grace: float
    calm_at: float
    retention: float = 0.0
    deploys: tuple[PlannedDeploy, ...] = ()
    acts: tuple[PlannedAct, ...] = ()
    quiet: bool = False
