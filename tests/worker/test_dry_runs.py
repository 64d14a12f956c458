"""Dry runs: only types that are declared for it, whose handlers are told; and all that comes of their jobs, on each store."""

from __future__ import annotations

import io
import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import (
    Call,
    ConfigurationError,
    DryRunRefused,
    Fixed,
    Job,
    JobState,
    Registry,
    Retry,
    Unique,
    Worker,
    current_attempt,
    done,
)
from aioqueue.logging import set_up_handler
from aioqueue.vocabulary._identifiers import new_id
from tests.worker.completing import run
from tests.worker.in_processes import registry as in_processes
from tests.worker.in_processes import runs_dry

if TYPE_CHECKING:
    from aioqueue import Client, JobHandle

pytestmark = pytest.mark.anyio

ON_EACH_STORE = True
ONCE = Retry(max_attempts=1)
AGAIN = Retry(max_attempts=3, backoff=Fixed(0), jitter=0)


def dry(job: Job) -> bool:
    return job.origin is not None and job.origin.dry_run


async def dry_run(client: Client, registry: Registry, call: Call[Any]) -> Job:
    """Enqueue a call, and try it out. Returns what became of it."""
    return await (await run(client, registry, call, dry_run=True)).snapshot()


# -- what runs --------------------------------------------------------------------------------------------------------------


async def test_only_declared_types_run_and_their_handlers_know(client: Client, registry: Registry) -> None:
    @registry.job(dry_run=True)
    async def declared() -> bool:
        return current_attempt().dry_run

    @registry.job(dry_run=True)
    def in_thread() -> bool:
        return current_attempt().dry_run

    @registry.job
    async def real() -> bool:
        return current_attempt().dry_run

    left = await client.enqueue(real())
    jobs = [await dry_run(client, registry, call) for call in (declared(), in_thread())]
    assert [(job.output, dry(job)) for job in jobs] == [(True, True), (True, True)]
    assert (await left.snapshot()).state is JobState.READY
    handle = await client.enqueue(declared())
    await Worker(client, registry).run_once()
    for each in (left, handle):
        job = await each.snapshot()
        assert (job.output, dry(job), job.origin) == (False, False, None)


async def test_a_handler_in_a_process_of_its_own_knows_too(client: Client) -> None:
    assert (await dry_run(client, in_processes, runs_dry())).output is True


async def test_a_dry_run_of_nothing_is_refused(client: Client, registry: Registry) -> None:
    @registry.job
    async def real() -> None: ...

    with pytest.raises(ConfigurationError, match="dry_run=True"):
        await Worker(client, registry, dry_run=True).run_once()

    @registry.job(dry_run=True)
    async def declared() -> None: ...

    with pytest.raises(ConfigurationError, match=r"isn't declared dry_run=True.*: real$"):
        await Worker(client, registry, dry_run=True, types=[real, declared]).run_once()
    await Worker(client, registry, dry_run=True, types=[declared]).run_once()


async def test_what_is_implemented_is_declared_where_its_signature_is(client: Client, registry: Registry) -> None:
    @Registry().declare(dry_run=True)
    async def charge() -> str: ...

    @registry.implement(charge)
    async def charge_it() -> str:
        return "dry" if current_attempt().dry_run else "wet"

    assert (await dry_run(client, registry, charge())).output == "dry"


# -- what it enqueues -------------------------------------------------------------------------------------------------------


def family(registry: Registry) -> dict[str, Any]:
    """A job type for each way to enqueue another, which is declared for dry runs or isn't, by the argument."""

    @registry.job(dry_run=True, retry=ONCE)
    async def wet_or_dry() -> bool:
        return current_attempt().dry_run

    @registry.job(retry=ONCE)
    async def wet() -> bool:
        return current_attempt().dry_run

    @registry.job(dry_run=True, retry=ONCE)
    async def collect(values: list[bool]) -> bool:
        return all(values)

    child = {True: wet_or_dry, False: wet}

    @registry.job(dry_run=True, retry=ONCE)
    async def with_outcome(declared: bool) -> None:
        current_attempt().enqueue(child[declared]())

    @registry.job(dry_run=True, retry=ONCE)
    async def by_client(declared: bool) -> None:
        await current_attempt().client.enqueue(child[declared]())

    @registry.job(dry_run=True, retry=ONCE)
    async def many(declared: bool) -> None:
        await current_attempt().client.enqueue_many([collect([child[declared]().output]), wet_or_dry()])

    @registry.job(dry_run=True, retry=ONCE)
    def from_thread(declared: bool) -> None:
        attempt = current_attempt()
        attempt.from_thread(attempt.client.enqueue, child[declared]())

    @registry.job(dry_run=True, retry=ONCE)
    async def in_transaction(declared: bool) -> None:
        async with current_attempt().client.transaction() as tx:
            await tx.enqueue(child[declared]())

    @registry.job(dry_run=True, retry=ONCE)
    async def completing(declared: bool) -> None:
        async with current_attempt().completion() as tx:
            await tx.enqueue(child[declared]())
            return tx.done(None)

    @registry.job(dry_run=True, retry=ONCE)
    async def goes_on(declared: bool) -> Call[bool]:
        return child[declared]()

    @registry.job(dry_run=True, retry=ONCE)
    async def goes_on_in_completion(declared: bool) -> Call[bool]:
        async with current_attempt().completion() as tx:
            return tx.done(child[declared]())

    @registry.job(dry_run=True, retry=ONCE)
    async def goes_on_with_what_waits(declared: bool) -> Call[bool]:
        return collect([child[declared]().output])

    return {name: registry.types[name] for name in WAYS}


WAYS = (
    *("with_outcome", "by_client", "many", "from_thread", "in_transaction", "completing"),
    *("goes_on", "goes_on_in_completion", "goes_on_with_what_waits"),
)


async def stored(client: Client, *names: str) -> list[Job]:
    return [job for job in (await client.list_jobs(limit=100)).jobs if job.type in names]


@pytest.mark.parametrize("way", WAYS)
async def test_what_a_dry_run_enqueues_is_one_in_every_worker(client: Client, registry: Registry, way: str) -> None:
    ways = family(registry)
    handle = await client.enqueue(ways[way](declared=True))
    worker = Worker(client, registry, dry_run=True, types=[way])
    await worker.run_once()
    children = await stored(client, "wet_or_dry", "collect")
    assert children
    assert all(dry(job) and job.started_at is None for job in children), children
    await Worker(client, registry).run_once()
    jobs = await stored(client, "wet_or_dry", "collect", way)
    assert all((job.state.finished, dry(job), job.errors) == (True, True, ()) for job in jobs), jobs
    assert {job.output for job in jobs if job.type != way} == {True}
    assert (await handle.snapshot()).state.finished


@pytest.mark.parametrize("way", WAYS)
async def test_what_isnt_declared_is_refused_where_its_named(client: Client, registry: Registry, way: str) -> None:
    ways = family(registry)
    job = await dry_run(client, registry, ways[way](declared=False))
    assert (job.state, job.errors[-1].type) == (JobState.FAILED, "DryRunRefused"), job
    assert job.errors[-1].message.startswith("wet isn't declared dry_run=True")
    assert await stored(client, "wet", "wet_or_dry", "collect") == []
    real = await run(client, registry, ways[way](declared=False))
    assert (await real.snapshot()).state.finished
    assert [dry(job) for job in await stored(client, "wet")] == [False]


async def test_what_is_known_by_name_only_is_refused(client: Client, registry: Registry) -> None:
    @registry.job(dry_run=True)
    async def by_name() -> str:
        try:
            await current_attempt().client.enqueue_by_name("elsewhere", {})
        except DryRunRefused as error:
            return error.type
        return ""

    assert (await dry_run(client, registry, by_name())).output == "elsewhere"


async def test_what_is_only_tried_out_keeps_nothing_real_from_being_enqueued(client: Client, registry: Registry) -> None:
    """A unique key, or an id of one's own, would stand for the real job."""
    chosen, handles, found = new_id(), list[bool](), list[str]()

    @registry.job(dry_run=True)
    async def send() -> None: ...

    def unique(on_conflict: Any = "return") -> Call[None]:
        return send().options(key="a", unique=Unique(on_conflict=on_conflict), delay=600)

    @registry.job(dry_run=True, retry=ONCE)
    async def producer() -> None:
        client = current_attempt().client
        handles.extend([(await client.enqueue(unique(each))).created for each in ("return", "replace")])
        current_attempt().enqueue(unique("replace"))
        try:
            await client.enqueue(send().options(id=chosen))
        except DryRunRefused as error:
            found.append(error.type)

    waiting = await client.enqueue(unique())
    assert (await dry_run(client, registry, producer())).errors == ()
    assert (handles, found) == ([True, True], ["send"])
    assert not dry(await waiting.snapshot())
    assert [job.key for job in await stored(client, "send")] == ["a"] * 4
    await client.cancel(waiting.id)
    assert (await client.enqueue(unique("raise"))).created
    assert (await client.enqueue(send().options(id=chosen))).created


async def test_what_is_enqueued_from_outside_meanwhile_is_real(client: Client, registry: Registry) -> None:
    handles: list[JobHandle[Any]] = []

    @registry.job(dry_run=True)
    async def declared() -> None: ...

    @registry.job(dry_run=True)
    async def trigger() -> None:
        handles.append(await client.enqueue(declared()))

    await dry_run(client, registry, trigger())
    handles.append(await client.enqueue(declared()))
    assert [dry(await each.snapshot()) for each in handles] == [True, False]


# -- later --------------------------------------------------------------------------------------------------------------------


async def test_it_stays_one_when_it_is_tried_again_by_another_worker(client: Client, registry: Registry) -> None:
    seen: list[bool] = []

    @registry.job(dry_run=True, retry=Retry(max_attempts=3, backoff=Fixed(3600), jitter=0))
    async def flaky() -> None:
        seen.append(current_attempt().dry_run)
        if len(seen) < 2:
            raise ValueError

    job = await dry_run(client, registry, flaky())
    assert (job.state, dry(job)) == (JobState.SCHEDULED, True)
    await client.run_now(job.id)
    await Worker(client, registry).run_once()
    assert seen == [True, True]
    assert dry(await client.job(job.id))


async def test_one_whose_type_is_no_longer_declared_fails_with_the_reason(client: Client, registry: Registry) -> None:
    @registry.job(name="task", dry_run=True, retry=AGAIN)
    async def before() -> None:
        if current_attempt().number == 1:
            raise ValueError

    @registry.job(dry_run=True)
    async def parent() -> None:
        current_attempt().enqueue(before())

    await client.enqueue(parent())
    await Worker(client, registry, dry_run=True, types=[parent]).run_once()
    later, ran = Registry(), list[int]()

    @later.job(name="task", retry=AGAIN)
    async def after() -> None:
        ran.append(1)

    await Worker(client, later).run_once()
    (job,) = await stored(client, "task")
    assert (job.state, job.attempt, job.errors[-1].type, ran) == (JobState.FAILED, 1, "DryRunRefused", [])
    assert job.errors[-1].message.startswith("task isn't declared dry_run=True")


async def test_a_chain_that_is_completed_from_outside_goes_on_as_a_dry_run(client: Client, registry: Registry) -> None:
    @registry.job(dry_run=True)
    async def ready() -> int:
        return 1

    @registry.job(dry_run=True)
    async def report(values: list[int]) -> int:
        return sum(values)

    @registry.job
    async def real() -> int:
        return 2

    @registry.job(dry_run=True, retry=Retry(max_attempts=2, backoff=Fixed(3600), jitter=0))
    async def asks(fails: bool) -> Call[int]:
        if fails:
            raise ValueError
        return done(0)

    job = await dry_run(client, registry, asks(fails=True))
    with pytest.raises(DryRunRefused, match="real"):
        await client.complete(asks, job.id, real())
    await client.complete(asks, job.id, report([ready().output]))
    assert [dry(each) for each in await stored(client, "ready", "report")] == [True, True]
    await Worker(client, registry).run_once()
    assert await client.handle(asks, job.id).result(timeout=60) == 1


# -- what is seen of it -------------------------------------------------------------------------------------------------------


@pytest.fixture
def written() -> Any:
    stream, root, ours = io.StringIO(), logging.getLogger(), logging.getLogger("aioqueue")
    handler, level = set_up_handler(logging.StreamHandler(stream), "json"), ours.level
    root.addHandler(handler)
    ours.setLevel(logging.INFO)
    yield stream
    root.removeHandler(handler)
    ours.setLevel(level)


async def test_records_say_that_its_one(client: Client, registry: Registry, written: io.StringIO) -> None:
    @registry.job(dry_run=True)
    async def declared() -> None:
        logging.getLogger("tests.app").warning("one of its own", extra={"dry_run": "mine"})

    await dry_run(client, registry, declared())
    dry_lines = [json.loads(line) for line in written.getvalue().splitlines()]
    written.truncate(0)
    await run(client, registry, declared())
    lines = [json.loads(line.lstrip("\0")) for line in written.getvalue().splitlines()]
    by_event = {each.get("event"): each for each in dry_lines}
    assert by_event["attempt.started"]["message"].endswith("attempt 1 begins (dry run)")
    assert by_event["attempt.ended"]["message"].endswith(" s (dry run)")
    assert [by_event[name]["dry_run"] for name in ("attempt.started", "attempt.ended")] == [True, True]
    assert (by_event[None]["dry_run"], by_event[None]["dry_run_"]) == (True, "mine")
    assert "a dry run" in by_event["worker.started"]["message"]
    assert [each["dry_run"] for each in lines if "dry_run" in each] == ["mine"]
    assert not any("dry run" in each["message"] for each in lines)


async def test_it_removes_nothing_and_sends_nothing(client: Client, registry: Registry) -> None:
    @registry.job(dry_run=True)
    async def declared() -> None: ...

    def purged(_: object) -> None:
        raise AssertionError

    worker = Worker(
        client, registry, dry_run=True, on_purge=purged, retention_interval=0.001, webhook_secret="whsec_" + "A" * 32
    )
    async with worker:
        run_ = worker._run
        assert run_ is not None
        assert run_.webhooks is None
        assert run_._retention.tasks == []
