"""Never run: limits, rates, sequences and fairness, as both type checkers must know them."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import assert_type
from uuid import UUID

from aioqueue import (
    Call,
    Client,
    GateKind,
    GateStatus,
    InSequence,
    KeptSequence,
    Limit,
    LimitKind,
    Limits,
    Rate,
    Registry,
    Sequences,
    StoredLimit,
)

registry = Registry(prefix="site.")


@registry.job(
    limit=(Limit(3, by="tenant_id"), "stripe"),
    rate=Rate(100, per=timedelta(minutes=1), by="tenant_id", burst=10),
    sequence_by=InSequence("account_id", strict=True, on_failure="block"),
    fairness_by="tenant_id",
)
async def transfer(account_id: int, *, tenant_id: str) -> str:
    return f"{account_id} {tenant_id}"


@registry.job(limit="stripe", rate=Rate(1, per=0.5), sequence_by="path")
def resize(path: str) -> int:
    return len(path)


@registry.declare(limit=Limit(0), rate=None, sequence_by=None, fairness_by=None)
async def charge(order_id: int) -> bool:
    return bool(order_id)


@registry.implement(charge, limit=("stripe", Limit(2)), rate=Rate(1, per=1), fairness_by="order_id")
async def charge_it(order_id: int) -> bool:
    return bool(order_id)


assert_type(transfer(1, tenant_id="a"), Call[str])
assert_type(transfer(1, tenant_id="a").options(sequence="account:42"), Call[str])
assert_type(resize("a").options(sequence=InSequence("a")).options(sequence=None), Call[int])
assert_type(transfer.limit, tuple[Limit | str, ...])
assert_type(transfer.rate, Rate | None)
assert_type(transfer.sequence_by, InSequence | None)
assert_type(transfer.fairness_by, str | None)


async def limits(client: Client) -> None:
    kept = client.limits
    assert_type(kept, Limits)
    assert_type(await kept.put("stripe", 10), None)
    assert_type(await kept.put(transfer, 10), None)
    assert_type(await kept.put_rate(transfer, 100, per=timedelta(minutes=1), burst=3), None)
    assert_type(await kept.put_rate("site.transfer", 100, per=60), None)
    assert_type(await kept.remove("stripe"), bool)
    assert_type(await kept.remove_rate(transfer), bool)
    (found, *_) = await kept.list()
    assert_type(await kept.list(), Sequence[StoredLimit])
    assert_type(found.kind, LimitKind)
    assert_type(found.per, float | None)


async def sequences(client: Client) -> None:
    kept = client.sequences
    assert_type(kept, Sequences)
    assert_type(await kept.resume("account:42"), bool)
    assert_type(await kept.resume(transfer, 42), bool)
    assert_type(await kept.list(), Sequence[KeptSequence])
    status = await kept.status(transfer, 42)
    assert_type(status, GateStatus)
    assert_type(status.kind, GateKind)
    assert_type(status.head, UUID | None)
    assert_type(status.running, tuple[UUID, ...])
