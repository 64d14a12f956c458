"""What the cases share: making jobs, running them, and looking at what became of them."""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager, contextmanager
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, TypedDict, TypeVar, Unpack

import anyio

from aioqueue.errors import RowRejected, StoreError
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import AttemptError, JobState, LostReason, NewJob, Settlement, SettlementKind

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator, Awaitable, Callable, Generator, Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.vocabulary._answers import Renewal
    from aioqueue.vocabulary._gates import SequenceMember
    from aioqueue.vocabulary._job import Claim, ClaimedJob, Job, SettleResult
    from aioqueue.vocabulary._notification import Notification
    from aioqueue.vocabulary._origin import Origin
    from aioqueue.vocabulary._store_operating import Operable
    from aioqueue.vocabulary._unique import Unique

__all__ = [
    "HOUR",
    "PATIENCE_SECONDS",
    "Heard",
    "JobFields",
    "LeaseThread",
    "OnPurposeError",
    "SettlementFields",
    "about",
    "check",
    "claim_one",
    "end_as",
    "equal",
    "expect_state",
    "failure",
    "insert_one",
    "job",
    "lease_thread",
    "listening",
    "near",
    "next_step",
    "raises",
    "refused",
    "rolled_back",
    "settle_halving",
    "settle_one",
    "settlement",
    "snapshot",
    "start",
    "start_chain",
    "start_one",
    "states_of",
    "take_one",
    "written",
]

T = TypeVar("T")

HOUR = 3600.0
"""Seconds: longer than any case takes."""
PATIENCE_SECONDS = 60.0
"""Seconds after which something that should have happened is taken for missing: for slow, loaded machines."""


class JobFields(TypedDict, total=False):
    """The fields of `NewJob` that a case may give: keyword arguments of `job`."""

    id: UUID
    payload: bytes
    priority: int
    delay: float | None
    run_at: datetime | None
    expires: float | None
    max_attempts: int | None
    retry: bytes | None
    timeout: float | None
    key: str | None
    unique: Unique | None
    max_delay: float | None
    chosen_id: bool
    implied: bool
    aliases: tuple[str, ...]
    tags: tuple[str, ...]
    metadata: bytes
    keep: float | None
    webhook: str | None
    origin: Origin | None
    sequence: SequenceMember | None


class SettlementFields(TypedDict, total=False):
    """Fields of `Settlement` beside its fence and kind."""

    output: bytes | None
    outcome: str | None
    delay: float | None
    run_at: datetime | None
    error: AttemptError | None
    next: NewJob | None
    children: tuple[NewJob, ...]
    yields: bool
    attempt: int
    logs: bytes | None


def check(condition: object, message: str) -> None:
    """Raise AssertionError unless the condition is true: an `assert` that `python -O` keeps."""
    if not condition:
        raise AssertionError(message)


def equal(actual: object, expected: object, what: str) -> None:
    """Raise AssertionError unless both are equal."""
    if actual != expected:
        raise AssertionError(f"{what}: expected {expected!r}, got {actual!r}")


def job(job_type: str = "a", **fields: Unpack[JobFields]) -> NewJob:
    """A job with a new id."""
    if "id" not in fields:
        fields["id"] = new_id()
    return NewJob(type=job_type, **fields)


def failure(attempt: int = 1, message: str = "no") -> AttemptError:
    """An entry for a job's history."""
    return AttemptError(attempt=attempt, at=datetime(2024, 2, 29, 12, tzinfo=UTC), type="ValueError", message=message)


def settlement(claimed: ClaimedJob, kind: SettlementKind, **fields: Unpack[SettlementFields]) -> Settlement:
    """How the attempt of a claimed job ended. Its chain goes on with a job of a type of its own, unless another is given."""
    if kind is SettlementKind.CONTINUED and "next" not in fields:
        fields["next"] = job("next")
    return Settlement(id=claimed.id, claims=claimed.claims, lease_id=claimed.lease_id, kind=kind, **fields)


async def insert_one(store: Store, new: NewJob) -> UUID:
    """Insert one job; returns its id."""
    (inserted,) = await store.insert([new])
    check(inserted.created, f"the insert of a new job must say created=True: {inserted!r}")
    return inserted.id


async def start(store: Store, lease_id: int, *new: NewJob) -> list[ClaimedJob]:
    """Insert due jobs and claim them; in the order given."""
    await store.insert(new)
    claimed = await store.claim(lease_id, sorted({each.type for each in new}), 1000)
    by_id = {each.id: each for each in claimed}
    missing = [each.id for each in new if each.id not in by_id]
    check(not missing, f"jobs that are due must be claimed: {missing!r} are missing")
    return [by_id[each.id] for each in new]


async def start_one(store: Store, lease_id: int, new: NewJob | None = None) -> ClaimedJob:
    """Insert a due job and claim it."""
    (claimed,) = await start(store, lease_id, new or job())
    return claimed


async def claim_one(store: Store, lease_id: int, job_type: str = "a") -> ClaimedJob:
    """Claim exactly one job, which must be due."""
    claimed = await store.claim(lease_id, [job_type], 1)
    equal(len(claimed), 1, "jobs claimed where one is due")
    return claimed[0]


async def next_step(store: Store, claimed: ClaimedJob, new: NewJob | None = None) -> ClaimedJob:
    """Let a claimed job's chain go on with a job that is due, and claim that for the same lease."""
    new = new or job(claimed.type)
    await written(store, settlement(claimed, SettlementKind.CONTINUED, next=new))
    following = await store.claim(claimed.lease_id, [new.type], 1)
    equal([each.id for each in following], [new.id], "what is claimed after a continuation that is due")
    return following[0]


async def start_chain(store: Store, lease_id: int, steps: int, first: NewJob | None = None) -> list[ClaimedJob]:
    """Start a chain of so many steps, all of the first one's type; the last is running."""
    claimed = [await start_one(store, lease_id, first)]
    while len(claimed) < steps:
        claimed.append(await next_step(store, claimed[-1]))
    return claimed


async def take_one(store: Store) -> ClaimedJob:
    """Recover the one job of a dead worker."""
    taken = await store.take_expired(10)
    equal(len(taken), 1, "jobs recovered where one has lost its worker")
    return taken[0]


async def settle_one(store: Store, what: Settlement, *, orphaned: bool = False) -> SettleResult:
    """Write one settlement, and give its result."""
    results = await store.settle([what], orphaned=orphaned)
    equal(len(results), 1, "results of one settlement")
    return results[0]


async def written(store: Store, what: Settlement, *, orphaned: bool = False) -> None:
    """Write one settlement, which must be accepted."""
    result = await settle_one(store, what, orphaned=orphaned)
    equal((result.lost, result.busy), (None, False), f"lost and busy of {what.kind.name} for a job that is held")


async def refused(store: Store, what: Settlement, *reasons: LostReason, orphaned: bool = False) -> None:
    """Write one settlement, which must be refused for one of the reasons, and must change nothing."""
    before = await store.fetch([what.id])
    result = await settle_one(store, what, orphaned=orphaned)
    check(result.lost in reasons, f"the settlement {what.kind.name} must be lost as one of {reasons!r}, not {result!r}")
    equal(await store.fetch([what.id]), before, "the job after a settlement that was refused")


async def settle_halving(store: Store, batch: list[Settlement]) -> None:
    """Settle as a worker does whose store can't tell which row is at fault."""
    try:
        results = await store.settle(batch)
    except RowRejected:
        if len(batch) > 1:
            middle = len(batch) // 2
            await settle_halving(store, batch[:middle])
            await settle_halving(store, batch[middle:])
        return
    for result in results:
        check(result.lost in (None, LostReason.ERROR), f"a settlement of a claim that is held: {result!r}")


async def snapshot(store: Store, job_id: UUID) -> Job:
    """The job, which must exist."""
    (found,) = await store.fetch([job_id])
    if found is None:
        raise AssertionError(f"the job {job_id} must exist")
    return found


async def expect_state(store: Store, job_id: UUID, expected: JobState) -> Job:
    """The job, which must exist and be in this state."""
    found = await snapshot(store, job_id)
    equal(found.state, expected, f"the state of {job_id}")
    return found


async def end_as(store: Store, new: NewJob, kind: SettlementKind) -> UUID:
    """Insert a job, claim it and end it in one of the final ways."""
    lease_id = await store.open_lease("ender", HOUR)
    claimed = await start_one(store, lease_id, new)
    output = b"1" if kind is SettlementKind.COMPLETED else None
    error = None if kind is SettlementKind.COMPLETED else failure()
    await written(store, settlement(claimed, kind, output=output, error=error))
    return claimed.id


def near(actual: datetime, expected: datetime, what: str, *, within: float = 300.0) -> None:
    """Raise AssertionError unless two times are about the same: the machine may be slow, hours are what matters."""
    check(actual.utcoffset() == timedelta(0), f"{what} must be in UTC, not {actual!r}")
    check(abs(actual - expected) <= timedelta(seconds=within), f"{what}: expected about {expected}, got {actual}")


def about(actual: float | None, expected: float, what: str, *, within: float = 300.0) -> None:
    """Raise AssertionError unless a number of seconds is about the one expected: the machine may be slow."""
    if actual is None or not abs(actual - expected) <= within:
        raise AssertionError(f"{what}: expected about {expected} s, got {actual!r}")


class Heard:
    """A listener that keeps what it was told."""

    def __init__(self) -> None:
        self.notifications: list[Notification] = []
        self._changed = asyncio.Event()

    def __call__(self, notification: Notification, /) -> None:
        """Keep a notification, and wake whoever waits for one: the store calls this."""
        self.notifications.append(notification)
        self._changed.set()

    def find(self, wanted: Callable[[Notification], bool]) -> Notification | None:
        """The first that fits."""
        return next((each for each in self.notifications if wanted(each)), None)

    def named(self) -> set[str]:
        """All types that were named so far."""
        return {name for each in self.notifications for name in each.types or ()}

    async def wait(self, wanted: Callable[[Notification], bool], what: str) -> Notification:
        """The first that fits, as soon as it has come."""
        with anyio.move_on_after(PATIENCE_SECONDS):
            while (found := self.find(wanted)) is None:
                self._changed.clear()
                await self._changed.wait()
            return found
        raise AssertionError(f"no notification of {what} came; heard: {self.notifications!r}")

    async def wait_for_type(self, name: str) -> Notification:
        """The first that names the type, or may mean it."""
        return await self.wait(lambda each: each.types is None or name in each.types, f"type {name!r}")

    async def wait_for_end(self, job_id: UUID) -> Notification:
        """The first that names the finished job, or may mean it."""
        return await self.wait(lambda each: each.finished is None or job_id in each.finished, f"the end of {job_id}")


@contextmanager
def listening(store: Store, *, finished: bool = False) -> Generator[Heard]:
    """Subscribe for the length of a block."""
    heard = Heard()
    with store.subscribe(heard, finished=finished):
        yield heard


class LeaseThread:
    """Runs a `LeaseSession` in the one thread that it wants."""

    def __init__(self, store: Store) -> None:
        self._session = store.lease_session()
        self._executor = ThreadPoolExecutor(1, thread_name_prefix="conformance lease")

    async def renew(self, lease_id: int, duration: float = HOUR, held: Sequence[Claim] = ()) -> Renewal:
        """Renew a lease in the thread, as a worker's lease thread does; an hour, holding nothing, unless it's said."""
        return await self._run(lambda: self._session.renew(lease_id, duration, held))

    async def connect(self) -> None:
        """Open the session's connection in the thread, as a worker does before its first claim."""
        await self._run(self._session.connect)

    async def close(self) -> None:
        """Close the session, twice: that's allowed."""
        await self._run(self._session.close)
        await self._run(self._session.close)
        self._executor.shutdown()

    async def _run(self, function: Callable[[], T]) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._executor, function)


@asynccontextmanager
async def lease_thread(store: Store) -> AsyncGenerator[LeaseThread]:
    """A lease session for the length of a block."""
    thread = LeaseThread(store)
    try:
        yield thread
    finally:
        await thread.close()


async def raises(expected: type[BaseException], awaitable: Awaitable[object], what: str) -> None:
    """Raise AssertionError unless the awaitable raises the error."""
    try:
        result = await awaitable
    except expected:
        return
    except StoreError as error:
        raise AssertionError(f"{what} must raise {expected.__name__}, not {error!r}") from error
    raise AssertionError(f"{what} must raise {expected.__name__}, but returned {result!r}")


class OnPurposeError(Exception):
    """What a case raises in a block, so that the block is undone."""


@contextmanager
def rolled_back() -> Generator[None, None, None]:
    """Around a block that raises OnPurposeError, which must come out of it as it is."""
    try:
        yield
    except OnPurposeError:
        return
    raise AssertionError("the error must come out of the block")


async def states_of(store: Operable, *ids: UUID) -> list[JobState | None]:
    """The states of these jobs, None where there is none."""
    return [None if found is None else found.state for found in await store.fetch(ids)]
