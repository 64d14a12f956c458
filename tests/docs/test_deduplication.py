"""The tables of outcomes in docs/how-to/deduplication.md: each row is enacted, on both stores."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import anyio
import pytest

from aioqueue import Client, DuplicateJob, JobHandle, JobState, Unique
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob, Settlement, SettlementKind

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from uuid import UUID

    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._unique import OnConflict, Until

PAGE = Path(__file__).parent.parent.parent / "docs" / "how-to" / "deduplication.md"
HEADER = '| the chain that was enqueued with the key | `"return"` | `"replace"` | `"raise"` |'
POLICIES: tuple[OnConflict, ...] = ("return", "replace", "raise")
WINDOW = 3600.0

pytestmark = pytest.mark.anyio


def rows() -> Iterator[tuple[Until, str, tuple[str, ...]]]:
    """Of each row: until when the key is kept, what is there, and the outcomes by policy."""
    tables = PAGE.read_text().split(HEADER)[1:]
    both: tuple[Until, Until] = ("finished", "started")
    for until, table in zip(both, tables, strict=True):
        for line in re.findall(r"^\|(.*)\|$", table.split("\n\n")[0], re.MULTILINE):
            there, *outcomes = (cell.strip() for cell in line.split("|"))
            if not there.startswith("---"):
                yield until, there, tuple(outcomes)


ROWS = list(rows())


class Stage:
    """A client of one store, and a worker's part in single steps."""

    def __init__(self, client: Client, lease_id: int) -> None:
        self.client = client
        self.lease_id = lease_id
        self._types = 0

    def new_type(self) -> str:
        """A type that has no jobs, so that nothing of another row is claimed."""
        self._types += 1
        return f"docs.type_{self._types}"

    async def enqueue(self, name: str, unique: Unique, **options: Any) -> JobHandle[Any]:
        return await self.client.enqueue_by_name(name, {"n": self._types}, key="k", unique=unique, **options)

    async def claim(self, name: str) -> ClaimedJob:
        (claimed,) = await self.client.store.claim(self.lease_id, [name], 1)
        return claimed

    async def settle(self, job: ClaimedJob, kind: SettlementKind, **fields: Any) -> None:
        written = Settlement(id=job.id, claims=job.claims, lease_id=self.lease_id, kind=kind, **fields)
        (result,) = await self.client.store.settle([written])
        assert result.lost is result.refused is None
        assert not result.busy

    async def end(self, name: str, kind: SettlementKind) -> None:
        await self.settle(await self.claim(name), kind, output=b"null" if kind is SettlementKind.COMPLETED else None)

    async def go_on(self, name: str) -> str:
        step = f"{name}.step"
        await self.settle(await self.claim(name), SettlementKind.CONTINUED, next=NewJob(id=new_id(), type=step))
        return step


@pytest.fixture
async def stage(each_url: str) -> AsyncIterator[Stage]:
    client = Client(each_url)
    await client.migrate()
    async with client:
        yield Stage(client, await client.store.open_lease("docs", 600))


def windows(there: str) -> tuple[float | None, float | None]:
    """The window of the job that is there, and that of the call."""
    match there.partition(", ")[2]:
        case "within its window":
            return WINDOW, WINDOW
        case "within its window; the call has none":
            return WINDOW, None
        case "and its window is over":
            return 0.001, WINDOW
        case "and had no window":
            return None, WINDOW
        case _:
            return None, None


async def enact(stage: Stage, name: str, there: str, unique: Unique) -> JobHandle[Any]:
    """Have a job that is in such a state."""
    options: dict[str, Any] = {}
    if there == "is blocked":
        options["after"] = [await stage.client.enqueue_by_name(f"{name}.blocker")]
    elif there == "is scheduled":
        options["delay"] = 3600
    holder = await stage.enqueue(name, unique, **options)
    match there.partition(", ")[0]:
        case "is blocked" | "is scheduled" | "is ready":
            pass
        case "waits to be retried":
            await stage.settle(await stage.claim(name), SettlementKind.RETRIED, delay=3600)
        case "is running its first step":
            await stage.claim(name)
        case "waits at a later step":
            await stage.go_on(name)
        case "is running a later step":
            await stage.claim(await stage.go_on(name))
        case "has completed":
            await stage.end(name, SettlementKind.COMPLETED)
        case "has failed":
            await stage.end(name, SettlementKind.FAILED)
        case "was cancelled":
            await stage.end(name, SettlementKind.CANCELLED)
        case "was deleted":
            await stage.end(name, SettlementKind.COMPLETED)
            await stage.client.delete(holder)
        case _:
            pytest.fail(f"nobody knows how a job {there!r}")
    if unique.window is not None and unique.window < 1:
        await anyio.sleep(0.005)  # the window, by a clock of milliseconds
    return holder


async def outcome(stage: Stage, name: str, holder: JobHandle[Any], unique: Unique) -> str:
    """What becomes of a call, by its handle and by what is stored."""
    before = await stored(stage, holder.id)
    handle: JobHandle[Any] | None = None
    chain_id: UUID | None = None
    try:
        handle = await stage.enqueue(name, unique)
    except DuplicateJob as error:
        chain_id = error.chain_id
    if handle is None:
        assert (chain_id, await stored(stage, holder.id)) == (holder.id, before)
        return "refused"
    if handle.created:
        assert handle.id != holder.id
        waits_for = [each.chain_id for each in await stage.client.blockers(handle)]
        if waits_for:
            assert waits_for == [holder.id]
            assert (await stage.client.job(handle)).state is JobState.BLOCKED
        return "taken over" if waits_for else "created"
    assert handle.id == holder.id
    if handle.replaced:
        assert (await stage.client.job(handle)).state is JobState.READY
        return "replaced"
    assert await stored(stage, holder.id) == before
    return "returned"


async def stored(stage: Stage, job_id: UUID) -> object:
    (job,) = await stage.client.store.fetch([job_id])
    return job


async def test_each_row_of_the_tables(stage: Stage) -> None:
    wrong: list[tuple[str, str, tuple[str, ...], tuple[str, ...]]] = []
    for until, there, told in ROWS:
        own, calls = windows(there)
        found: list[str] = []
        for policy in POLICIES:
            name = stage.new_type()
            holder = await enact(stage, name, there, Unique(until=until, window=own))
            found.append(await outcome(stage, name, holder, Unique(window=calls, on_conflict=policy)))
        if tuple(found) != told:
            wrong.append((until, there, told, tuple(found)))
    assert wrong == []


def test_the_tables_have_all_states_twice() -> None:
    assert len(ROWS) == 25
    states = {
        until: {there.partition(", ")[0] for each, there, _ in ROWS if each == until} for until in ("finished", "started")
    }
    assert states["finished"] == states["started"]
