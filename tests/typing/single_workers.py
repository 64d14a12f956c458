"""The types of single workers, and of dry runs."""

from __future__ import annotations

from datetime import timedelta
from typing import assert_type

from aioqueue import Call, Client, DryRunRefused, Registry, SingletonHeld, Worker, current_attempt
from aioqueue.testing import attempt_of

registry = Registry()


@registry.job(dry_run=True)
async def charge(order: int) -> str:
    assert_type(current_attempt().dry_run, bool)
    return str(order)


@registry.declare(dry_run=True)
def ship(order: int) -> None: ...


@registry.implement(ship, dry_run=False)
def really_ship(order: int) -> None:
    del order


async def run(client: Client) -> None:
    assert_type(charge(1), Call[str])
    Worker(client, registry, dry_run=True, pause_between=timedelta(seconds=1), types=[charge, "ship"])
    worker = Worker(client, registry, singleton="reports", standby=True, lease=15, pause_between=0.5, name=None)
    try:
        await worker.run()
    except SingletonHeld as held:
        assert_type((held.name, held.worker, held.ends_in), tuple[str, str, float])
    except DryRunRefused as refused:
        assert_type(refused.type, str)
    assert_type(worker.health().standing_by, str | None)
    async with attempt_of(charge(1), dry_run=True) as attempt:
        assert_type(attempt.dry_run, bool)
