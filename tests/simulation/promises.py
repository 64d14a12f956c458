"""What must hold in every history. A violation names the promise that was broken."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Promise(StrEnum):
    """One thing that must hold."""

    # Claims.
    DUE_FIRST = "nothing is claimed before it's due"
    NOT_AGAIN = "nothing is claimed or written after the job's end"
    ONE_HOLDER = "a job has one holder at a time"
    VALID_LEASE = "claims need a valid lease"
    FENCES_COUNT = "each claim has the next fence"
    ATTEMPTS_COUNT = "each claim has the attempt that comes next"
    MAX_ATTEMPTS = "no more attempts than allowed"
    EXPIRY = "what wasn't started in time, and only that, is marked as expired"

    # Outcomes.
    BY_THE_HOLDER = "only the holder of a claim writes about it"
    AS_IT_WENT = "what is written is what the handler did, with the right delay"
    GOOD_CLAIMS_WRITE = "what the holder of a good claim writes is written"
    REPEATS_AGREE = "a repeated settlement is answered as the first was"
    IN_TIME = "a worker that is well writes each outcome in time, whatever its neighbours do"
    NOT_DROPPED = "a stopping worker writes outcomes for as long as its grace, or its lease"

    # Chains.
    ONE_NEXT = "each step that continues is followed by one that is stored with it, and by no other"
    ONE_END = "a chain ends once, and doesn't go on then"
    IN_ORDER = "a chain's steps run in their order, none is skipped, and each is told its place"
    FOUND = "what became of a chain is found by its id, all the while"
    KEY_HELD = "a chain has its unique key from its beginning to its end"

    # Waiting.
    NOT_EARLY = "nothing begins before all that it waits for has ended"
    NOT_LEFT = "nothing waits when all that it waits for has ended"
    TOLD = "whoever ends a chain tells those that wait for it, or leaves a note that they're to be told"
    NEEDS_OUTPUT = "what needs an output gets it, or fails; what takes an end however it is gets that"

    CHILDREN = "what an attempt enqueues is stored with its outcome, and not without"

    # Endings from outside.
    ANSWERED = "who ends a job from outside is told whether it was so"
    ASKED_FOR = "a job ends without its worker only if somebody wants that"

    # Requests to end.
    ENDS_AS_ASKED = "what was asked to end isn't pending again, and is cancelled unless its handler decides otherwise"
    STOPS_WHEN_ASKED = "what was asked to end stops"

    # Phases and progress.
    PHASE_ONCE = "a phase whose result its handler has got isn't run again"
    PHASE_RESULT = "what a phase has given once is what it gives"
    PROGRESS_FORWARD = "what is stored of a claim's progress is stored in the order in which it's said"

    # Schedules and pauses.
    ONCE_A_TICK = "each nominal tick of a schedule is decided once"
    NOT_BEFORE_TICK = "no tick is decided before its time"
    NO_TICK_LOST = "no tick is passed over but for what its schedule says of missed ones"
    TICKS_IN_TIME = "ticks are decided soon, while nothing goes wrong"
    OVERLAP = "a tick that must be alone is, and only that is skipped for it"
    CURRENT_CODE = "what isn't in the code any more, or otherwise, doesn't tick"
    ONE_GENERATION = "the newest code that lives says which schedules there are"
    NOT_PAUSED = "nothing that is paused starts, or ticks"
    NOT_HELD = "nothing is held once it isn't paused any more"

    # Limits, rates and sequences.
    NEVER_OVER = "no job is let through a gate at which as many run as it has places"
    NEVER_FASTER = "in no time start more than the rate grants"
    ONE_IN_SEQUENCE = "of a sequence one runs at a time"
    IN_SEQUENCE = "nobody runs before those of its sequence that come before it, and could run, or are strict, or keep it"
    NOT_KEPT = "who may run at all of its gates does so soon, if a worker has a free slot"

    NOT_REMOVED = "only chains that have ended are removed, and not before their time"

    # Giving back.
    ITS_OWN_BACK = "a worker gives back only what was given to it"
    UNUSED_BACK = "only what hasn't run, or was interrupted, is given back"
    UNKNOWN_BACK = "a claim whose answer was lost is given back within two renewals"

    # Leases and recovery.
    NOT_TAKEN_EARLY = "a valid lease isn't taken, nor anything of it"
    NOT_AFTER_TAKING = "a lease of which something was taken isn't renewed"
    WELL_KEEPS_LEASE = "a worker that is well keeps its lease"
    NOT_HASTY = "a worker that was away itself gives others the time to renew their leases"
    NOT_ITS_OWN = "a worker never takes its own lease"
    SOON_RECOVERED = "jobs of a dead worker are pending soon after its lease's end, if another is idle"

    # Handlers.
    NOT_EXPIRED = "what has expired doesn't run"
    ONCE_A_CLAIM = "a claim runs once"
    ONCE_A_PROCESS = "a job runs once at a time in one process"
    ONCE_A_LEASE = "a job runs once at a time, unless a lease has run out"
    NOT_WHEN_STOPPED = "nothing begins after its worker was stopped"
    STOPS_WHEN_LOST = "what was lost stops"
    STOPS_WHEN_OVER = "what runs under a lease stops when that is over and can't be renewed"
    STOPS_IN_TIME = "timeouts hold"
    OWN_CONTEXT = "a job doesn't see the context in which its worker was started"

    # Ends.
    ALL_END = "every job ends"
    NOTHING_LOST = "no job is lost"
    ALL_ACCOUNTED = "each claim is an attempt, a reschedule, or was given back"
    SLOTS_FREE = "a slot whose job has ended is free"
    WORKERS_END = "a worker that is asked to stop ends in time"
    NOTHING_LEFT = "a worker that ended leaves no lease"
    NO_ERRORS = "no worker fails"


@dataclass(frozen=True)
class Violation:
    """A promise that was broken.

    Attributes:
        promise: Which.
        text: By what.
    """

    promise: Promise
    text: str

    def __str__(self) -> str:
        return f"[{self.promise.name}] {self.text}"
