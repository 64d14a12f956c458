"""What a worker tells its store of gates: rules with each claim, and the limits of its code before a job of theirs runs."""

from __future__ import annotations

import asyncio
from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Call, Client, JobState, Limit, Rate, Registry, Worker, current_attempt
from aioqueue.errors import ClientClosed, NotSupported, StoreUnavailable
from aioqueue.testing import MemoryStore
from aioqueue.vocabulary._gates import By, GateRules, LimitKind, NewLimit
from aioqueue.vocabulary._notification import Notification
from aioqueue.worker import _gates

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from aioqueue.vocabulary._answers import Due

pytestmark = pytest.mark.anyio

RARELY = 3600.0


class Told(MemoryStore):
    """A store that writes down what it's told of gates, and lets everything through."""

    def __init__(self) -> None:
        super().__init__()
        self.claims: list[Mapping[str, GateRules] | None] = []
        self.dues: list[Mapping[str, GateRules] | None] = []
        self.claimed_types: list[tuple[str, ...]] = []
        self.limits: list[tuple[NewLimit, ...]] = []
        self.fails: list[Exception] = []
        self.refused: set[str] = set()
        self.hangs = False
        self.connected: Counter[str] = Counter()
        self.put = asyncio.Event()

    @property
    def reconnects(self) -> Mapping[str, int]:
        return self.connected

    async def claim(self, lease_id: int, types: Sequence[str], limit: int, **options: Any) -> Any:
        self.claims.append(options.pop("gates", None))
        self.claimed_types.append(tuple(types))
        return await super().claim(lease_id, types, limit, **options)

    async def next_due(
        self, types: Sequence[str], *, own: Collection[int] = (), gates: Mapping[str, GateRules] | None = None
    ) -> Due:
        self.dues.append(gates)
        return await super().next_due(types, own=own)

    async def put_limits(self, limits: Sequence[NewLimit], *, defined: bool = False) -> None:
        assert defined
        if self.hangs:
            await asyncio.Event().wait()
        if self.fails:
            raise self.fails.pop()
        if not self.refused.isdisjoint(each.name for each in limits):
            raise ValueError("no")
        self.limits.append(tuple(limits))
        self.put.set()

    async def remove_limits(self, names: Sequence[str]) -> Sequence[bool]:
        return [False for _ in names]

    async def list_limits(self) -> Sequence[Any]:
        return []

    async def gate_statuses(self, gates: Sequence[str]) -> Sequence[Any]:
        return []

    async def kept_sequences(self) -> Sequence[Any]:
        return []

    async def resume_sequences(self, names: Sequence[str]) -> Sequence[bool]:
        return [False for _ in names]


class Plain(MemoryStore):
    """A store that has never heard of gates."""

    put_limits = None  # as if there were no such method
    claim_was_told = False

    async def claim(self, lease_id: int, types: Sequence[str], limit: int, **options: Any) -> Any:
        Plain.claim_was_told |= "gates" in options
        return await super().claim(lease_id, types, limit, **options)


def code(ran: asyncio.Queue[str]) -> Registry:
    registry = Registry()

    @registry.job(limit=(Limit(3, by="tenant"), "stripe"), aliases=["shrink"])
    async def resize(tenant: str) -> None:
        ran.put_nowait("resize")

    @registry.job(rate=Rate(10, per=60))
    async def mail() -> None:
        ran.put_nowait("mail")

    @registry.job
    async def plain() -> None:
        ran.put_nowait("plain")

    return registry


RESIZE = GateRules(type="resize", limit=True, limit_by=By("tenant"), shared="stripe")
MAIL = GateRules(type="mail", rate=True)
DEFINED = (
    NewLimit(name="job:resize", places=3),
    NewLimit(name="rate:mail", kind=LimitKind.STARTS, places=10, per=60.0, burst=10),
)


@pytest.fixture(autouse=True)
def again_soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gates, "AGAIN_SECONDS", 0.01)


@pytest.fixture
async def ran() -> asyncio.Queue[str]:
    return asyncio.Queue()


@pytest.fixture
async def store() -> Told:
    return Told()


async def test_each_claim_hears_the_rules_and_limits_are_stored_first(store: Told, ran: asyncio.Queue[str]) -> None:
    registry = code(ran)
    async with Client(store) as client:
        await client.enqueue_many([registry.types["resize"]("acme"), registry.types["mail"](), registry.types["plain"]()])
        assert (await Worker(client, registry).run_once()).completed == 3
    assert store.limits == [DEFINED]
    rules = {"resize": RESIZE, "shrink": RESIZE, "mail": MAIL}
    assert store.claims[-1] == store.dues[-1] == rules
    assert all(set(types) == {"plain"} for types, gates in zip(store.claimed_types, store.claims, strict=True) if not gates)


async def test_a_store_with_gates_is_always_asked_since_calls_have_sequences_too(store: Told) -> None:
    registry = Registry()

    @registry.job
    async def plain() -> None: ...

    async with Client(store) as client:
        await Worker(client, registry).run_once()
    assert store.claims[-1] == store.dues[-1] == {}
    assert store.limits == []


async def test_a_store_without_gates_hears_nothing_of_them_and_refuses_rules(ran: asyncio.Queue[str]) -> None:
    registry = Registry()

    @registry.job
    async def plain() -> None: ...

    async with Client(Plain()) as client:
        await client.enqueue(plain())
        assert (await Worker(client, registry).run_once()).completed == 1
        with pytest.raises(NotSupported, match=r"knows no limits.*: mail, resize") as refused:
            await Worker(client, code(ran)).run()
        assert refused.value.ability == "put_limits"
        assert (await Worker(client, code(ran), types=["plain"]).run_once()).completed == 0
    assert not Plain.claim_was_told


async def test_only_what_it_serves_is_stored_and_dry_runs_store_nothing(store: Told, ran: asyncio.Queue[str]) -> None:
    registry = code(ran)

    @registry.job(limit=Limit(1), dry_run=True)
    async def tried() -> None: ...

    async with Client(store) as client:
        await Worker(client, registry, types=["mail"]).run_once()
        assert store.limits == [DEFINED[1:]]
        assert store.claims[-1] == {"mail": MAIL}
        await Worker(client, registry, dry_run=True).run_once()
        assert store.limits == [DEFINED[1:]]
        assert store.claims[-1] == {"tried": GateRules(type="tried", limit=True)}


async def test_types_whose_limits_cant_be_stored_wait_and_others_run(store: Told, ran: asyncio.Queue[str]) -> None:
    """A limit that isn't there would let all of them run."""
    store.refused = {"job:resize"}
    registry = code(ran)
    async with Client(store) as client:
        await client.enqueue_many([registry.types["resize"]("acme"), registry.types["mail"](), registry.types["plain"]()])
        async with asyncio.timeout(60), Worker(client, registry, poll_interval=RARELY) as worker:
            assert {await ran.get(), await ran.get()} == {"mail", "plain"}
            assert "no" in worker.health().troubles["limits"]
            assert all("resize" not in types and "shrink" not in types for types in store.claimed_types)
            store.refused = set()
            assert await ran.get() == "resize"
            assert "limits" not in worker.health().troubles


async def test_a_store_that_is_away_is_asked_again(store: Told, ran: asyncio.Queue[str]) -> None:
    store.fails = [StoreUnavailable("away")]
    registry = code(ran)
    async with Client(store) as client:
        await client.enqueue(registry.types["resize"]("acme"))
        assert (await Worker(client, registry).run_once()).completed == 1
    assert store.limits == [DEFINED]


async def test_one_that_hangs_is_left_alone(store: Told, ran: asyncio.Queue[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gates, "_STATEMENT_SECONDS", 0.01)
    store.hangs = True
    registry = code(ran)
    async with Client(store) as client:
        await client.enqueue_many([registry.types["resize"]("acme"), registry.types["plain"]()])
        async with asyncio.timeout(60), Worker(client, registry, poll_interval=RARELY):
            assert await ran.get() == "plain"
            store.hangs = False
            assert await ran.get() == "resize"


async def test_they_are_stored_again_after_a_reconnect(
    store: Told, ran: asyncio.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_gates, "EVERY_SECONDS", 0.001)
    async with Client(store) as client, asyncio.timeout(60), Worker(client, code(ran), poll_interval=RARELY):
        await store.put.wait()
        for _ in range(50):
            await asyncio.sleep(0.001)
        assert store.limits == [DEFINED]
        store.put.clear()
        store.connected["lease"] += 1
        await store.put.wait()
        assert store.limits == [DEFINED, DEFINED]


async def test_a_task_that_somebody_cancels_is_begun_again(
    store: Told, ran: asyncio.Queue[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_gates, "EVERY_SECONDS", 0.001)
    async with Client(store) as client, asyncio.timeout(60), Worker(client, code(ran), poll_interval=RARELY) as worker:
        await store.put.wait()
        assert worker._run is not None
        store.put.clear()
        worker._run._gates.tasks[0].cancel()
        await store.put.wait()


async def test_a_closed_client_ends_the_worker(store: Told, ran: asyncio.Queue[str]) -> None:
    store.fails = [ClientClosed("closed")]
    async with Client(store) as client:
        with pytest.raises(ClientClosed):
            await asyncio.wait_for(Worker(client, code(ran)).run(), 60)


async def test_what_leaves_a_gate_wakes_the_worker(store: Told) -> None:
    registry = Registry()

    @registry.job
    async def plain() -> None: ...

    async with Client(store) as client, asyncio.timeout(60), Worker(client, registry, poll_interval=RARELY):
        while not store.dues:
            await asyncio.sleep(0)
        for _ in range(20):
            await asyncio.sleep(0)
        claims = len(store.claims)
        store.database.tell(Notification(gates=True))
        while len(store.claims) == claims:
            await asyncio.sleep(0)


async def test_nothing_runs_in_a_sequence_where_the_store_knows_none() -> None:
    registry = Registry()

    @registry.job
    async def plain() -> None: ...

    @registry.job
    async def goes_on() -> Call[None]:
        return plain().options(sequence="s")

    @registry.job
    async def enqueues() -> None:
        with pytest.raises(NotSupported, match="knows no sequences"):
            current_attempt().enqueue(plain().options(sequence="s"))

    async with Client(Plain()) as client:
        goes, collects = [await client.enqueue(call) for call in (goes_on(), enqueues())]
        await Worker(client, registry).run_once()
        assert (await client.job(collects)).state is JobState.COMPLETED
        found = await client.job(goes)
        assert (found.state, found.last_error and found.last_error.type) == (JobState.FAILED, "NotSupported")
        waiting = await client.enqueue(goes_on())
        with pytest.raises(NotSupported, match="knows no sequences, and plain runs in one"):
            await client.complete(goes_on, waiting, plain().options(sequence="s"))
        assert len((await client.list_jobs()).jobs) == 3
