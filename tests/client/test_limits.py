"""Limits, rates and sequences at run time: which names are meant, and what the store is asked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import (
    Client,
    ClientClosed,
    ConfigurationError,
    GateKind,
    GateStatus,
    InSequence,
    KeptSequence,
    Limit,
    LimitKind,
    NotSupported,
    OutsideTransaction,
    Rate,
    Registry,
    StoredLimit,
)
from aioqueue.vocabulary._gates import NewLimit
from aioqueue.vocabulary._identifiers import new_id
from tests.client.fake_store import FakeStore

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine, Sequence

    from aioqueue import Inserted, NewJob

pytestmark = pytest.mark.anyio

registry = Registry(prefix="gated.")
FAILED = new_id()


@registry.job(limit=(Limit(3, by="tenant"), "stripe"), rate=Rate(5, per=1), aliases=("gated.older",))
async def resize(tenant: str) -> None: ...


@registry.job(sequence_by="account")
async def transfer(account: object) -> None: ...


@registry.job(limit="stripe")
async def plain(number: int) -> None: ...


@registry.job(rate=Rate(5, per=1))
async def rated(number: int) -> None: ...


@registry.declare
async def declared(number: int) -> None: ...


class Gated(FakeStore):
    """Keeps what it's asked about gates, and lets nobody wait."""

    def __init__(self) -> None:
        super().__init__()
        self.limits: dict[str, NewLimit] = {}
        self.sequences: list[str | None] = []
        self.kept = {"account:42", "gated.transfer=42", 'gated.transfer="42"'}

    async def insert(
        self, jobs: Sequence[NewJob], *, tx: object | None = None, repeated: bool = False, apart: bool = False
    ) -> Sequence[Inserted]:
        self.sequences.extend(None if job.sequence is None else job.sequence.name for job in jobs)
        return await super().insert(jobs, tx=tx, repeated=repeated, apart=apart)

    async def put_limits(self, limits: Sequence[NewLimit], *, defined: bool = False) -> None:
        assert not defined
        self.limits.update({each.name: each for each in limits})

    async def remove_limits(self, names: Sequence[str]) -> Sequence[bool]:
        return [self.limits.pop(name, None) is not None for name in names]

    async def list_limits(self) -> Sequence[StoredLimit]:
        return [
            StoredLimit(
                name=name,
                kind=each.kind,
                places=each.places,
                per=each.per,
                burst=each.burst,
                defined=False,
                changed=False,
                running=0,
                waiting=0,
            )
            for name, each in sorted(self.limits.items())
        ]

    async def gate_statuses(self, gates: Sequence[str]) -> Sequence[GateStatus]:
        return [GateStatus(gate=gate, kind=GateKind.SEQUENCE) for gate in gates]

    async def kept_sequences(self) -> Sequence[KeptSequence]:
        return [KeptSequence(name=name, blocked_by=FAILED, waiting=1) for name in sorted(self.kept)]

    async def resume_sequences(self, names: Sequence[str]) -> Sequence[bool]:
        kept = [name in self.kept for name in names]
        self.kept.difference_update(names)
        return kept


@pytest.fixture
async def store() -> Gated:
    return Gated()


@pytest.fixture
async def client(store: Gated) -> AsyncIterator[Client]:
    async with Client(store) as client:
        yield client


# -- limits ---------------------------------------------------------------------------------------------------------


async def test_limits_are_stored_under_the_names_at_which_claims_look(client: Client, store: Gated) -> None:
    await client.limits.put("stripe", 10)
    await client.limits.put("stripe", 0)
    await client.limits.put(resize, 5)
    await client.limits.put(declared, 6)
    await client.limits.put("job:site.other", 7)
    assert {name: each.places for name, each in store.limits.items()} == {
        "stripe": 0,
        "job:gated.resize": 5,
        "job:gated.declared": 6,
        "job:site.other": 7,
    }
    assert {each.kind for each in store.limits.values()} == {LimitKind.PLACES}


async def test_rates_are_stored_in_seconds_and_with_a_burst(client: Client, store: Gated) -> None:
    await client.limits.put_rate(resize, 100, per=60)
    await client.limits.put_rate("site.other", 0, per=1)
    await client.limits.put_rate("rate:site.third", 3, per=1, burst=9)
    assert store.limits["rate:gated.resize"] == NewLimit(
        name="rate:gated.resize", kind=LimitKind.STARTS, places=100, per=60.0, burst=100
    )
    assert (store.limits["rate:site.other"].places, store.limits["rate:site.other"].burst) == (0, 1)
    assert store.limits["rate:site.third"].burst == 9


async def test_removing_says_whether_it_was_there(client: Client) -> None:
    await client.limits.put("stripe", 10)
    await client.limits.put(resize, 5)
    for name in (resize, "gated.other"):
        await client.limits.put_rate(name, 1, per=1)
    assert [each.name for each in await client.limits.list()] == [
        "job:gated.resize",
        "rate:gated.other",
        "rate:gated.resize",
        "stripe",
    ]
    assert [await client.limits.remove("stripe"), await client.limits.remove("stripe")] == [True, False]
    assert await client.limits.remove(resize)
    assert await client.limits.remove_rate(resize)
    assert await client.limits.remove("rate:gated.other")
    assert await client.limits.list() == []


UNFIT: list[tuple[Callable[[Client], Coroutine[Any, Any, object]], str]] = [
    (lambda client: client.limits.put("a b", 1), "can't be named 'a b'"),
    (lambda client: client.limits.put("", 1), "can't be named"),
    (lambda client: client.limits.put("sequence", 1), "are names that aioqueue gives"),
    (lambda client: client.limits.put("fair:gated.resize", 1), "are names that aioqueue gives"),
    (lambda client: client.limits.put("job:a b", 1), "can't be a name"),
    (lambda client: client.limits.put("rate:gated.resize", 1), "client.limits.put_rate says"),
    (lambda client: client.limits.put("a", -1), "places must be a whole number from 0"),
    (lambda client: client.limits.put("a", True), "places must be"),
    (lambda client: client.limits.put(5, 1), "can't be named 5"),
    (lambda client: client.limits.put(plain, 1), "no limit of its own.*put the number of 'stripe'"),
    (lambda client: client.limits.put(transfer, 1), r"no limit of its own.*limit=Limit\(\.\.\.\)$"),
    (lambda client: client.limits.remove(plain), "no limit of its own"),
    (lambda client: client.limits.remove(rated), "no limit of its own.*see put_rate and remove_rate"),
    (lambda client: client.limits.put_rate(plain, 1, per=1), "gated.plain has no rate"),
    (lambda client: client.limits.put_rate("a b", 1, per=1), "can't be a name"),
    (lambda client: client.limits.put_rate(5, 1, per=1), "a rate is a job type's"),
    (lambda client: client.limits.put_rate(resize, 1, per=0), "per must be positive"),
    (lambda client: client.limits.put_rate(resize, 1, per=1, burst=0), "burst must be at least 1"),
    (lambda client: client.sequences.resume(""), "1 to 1,024 bytes"),
    (lambda client: client.sequences.resume("a", "b"), "give the type first"),
    (lambda client: client.sequences.resume(plain, 1), "gated.plain has no sequence_by"),
    (lambda client: client.sequences.resume(transfer), "the value of 'account'"),
    (lambda client: client.sequences.resume(transfer, object()), "account"),
]


@pytest.mark.parametrize(("ask", "says"), UNFIT)
async def test_what_cannot_be_meant(
    client: Client, store: Gated, ask: Callable[[Client], Coroutine[Any, Any, object]], says: str
) -> None:
    with pytest.raises(ConfigurationError, match=says):
        await ask(client)
    assert store.limits == {}


# -- sequences ------------------------------------------------------------------------------------------------------


async def test_resuming_sequences(client: Client, store: Gated) -> None:
    assert [await client.sequences.resume("account:42"), await client.sequences.resume("account:42")] == [True, False]
    assert await client.sequences.resume(transfer, 42)
    assert store.kept == {'gated.transfer="42"'}
    assert await client.sequences.resume(transfer, "42")


async def test_sequences_that_are_kept(client: Client) -> None:
    assert [(each.name, each.blocked_by) for each in await client.sequences.list()] == [
        ("account:42", FAILED),
        ('gated.transfer="42"', FAILED),
        ("gated.transfer=42", FAILED),
    ]


async def test_the_status_of_a_sequence(client: Client) -> None:
    assert (await client.sequences.status("account:42")).gate == "sequence=account:42"
    assert (await client.sequences.status(transfer, {"b": 1, "a": None})).gate == 'sequence=gated.transfer={"a":null,"b":1}'


# -- guards ---------------------------------------------------------------------------------------------------------


CHANGES: list[Callable[[Client], Coroutine[Any, Any, object]]] = [
    lambda client: client.limits.put("stripe", 1),
    lambda client: client.limits.put_rate(resize, 1, per=1),
    lambda client: client.limits.remove("stripe"),
    lambda client: client.limits.remove_rate(resize),
    lambda client: client.sequences.resume("a"),
]
LOOKS: list[Callable[[Client], Coroutine[Any, Any, object]]] = [
    lambda client: client.limits.list(),
    lambda client: client.sequences.list(),
    lambda client: client.sequences.status("a"),
]


@pytest.mark.parametrize("ask", CHANGES)
async def test_nothing_changes_within_a_transaction(
    client: Client, store: Gated, ask: Callable[[Client], Coroutine[Any, Any, object]]
) -> None:
    async with client.transaction():
        with pytest.raises(OutsideTransaction):
            await ask(client)
    assert store.limits == {}


@pytest.mark.parametrize("ask", [*CHANGES, *LOOKS])
async def test_a_client_that_is_not_open(ask: Callable[[Client], Coroutine[Any, Any, object]]) -> None:
    with pytest.raises(ClientClosed):
        await ask(Client(Gated()))


class Simple(Gated):
    """Knows no gates."""

    put_limits = remove_limits = list_limits = gate_statuses = kept_sequences = resume_sequences = None


@pytest.mark.parametrize("ask", [*CHANGES, *LOOKS])
async def test_a_store_that_knows_no_gates(ask: Callable[[Client], Coroutine[Any, Any, object]]) -> None:
    async with Client(Simple()) as client:
        with pytest.raises(NotSupported, match="knows no limits") as caught:
            await ask(client)
        assert caught.value.ability == "put_limits"


async def test_such_a_store_takes_no_job_that_is_to_wait_its_turn() -> None:
    async with Client(Simple()) as client:
        for call in (transfer(1), plain(1).options(sequence=InSequence("a"))):
            with pytest.raises(NotSupported, match=f"{call.job_type.name} runs in one"):
                await client.enqueue(call)
        assert (await client.enqueue(plain(1))).created
        assert (await client.enqueue(resize("a"))).created  # its gates are the workers' concern


async def test_jobs_are_stored_with_their_sequences(client: Client, store: Gated) -> None:
    await client.enqueue_by_name("gated.plain", {"number": 1}, sequence="account:42")
    await client.enqueue_many([transfer(1), transfer("1"), plain(1)])
    assert store.sequences == ["account:42", "gated.transfer=1", 'gated.transfer="1"', None]
