"""What the database counts as ours and nobody holds is given back: within two renewals, and not what is on its way."""

from __future__ import annotations

from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from aioqueue import Client
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import Claim
from aioqueue.worker import Worker
from aioqueue.worker._holdings import Holdings
from aioqueue.worker._unheld import Unheld
from tests.worker.faults import Faults, Jobs, until

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio


class Bench:
    """Renewals of lease 7, and what they lead to."""

    def __init__(self) -> None:
        self.given: list[Claim] = []
        writer: Any = SimpleNamespace(give_back=lambda lease_id, claim: self.given.append(claim))
        self.holdings = Holdings()
        self.unheld = Unheld("w", self.holdings, writer)

    def renewed(self, *unheld: Claim, lease_id: int = 7) -> list[Claim]:
        self.unheld.seen(lease_id, unheld)
        given, self.given[:] = list(self.given), []
        return given


@pytest.fixture
async def bench() -> Bench:
    return Bench()


def claim() -> Claim:
    return Claim(new_id(), 1)


async def test_only_what_is_unheld_at_two_renewals_in_a_row_is_given_back(bench: Bench) -> None:
    first, second, ours = claim(), claim(), claim()
    slot: Any = SimpleNamespace()
    bench.holdings.held[ours] = slot
    assert bench.renewed(first, ours) == []  # it may be on its way to us
    assert bench.renewed(second) == []
    assert bench.renewed(first, second, ours) == [second]
    assert bench.renewed(first) == [first]
    assert bench.renewed() == []
    assert bench.renewed(second) == []
    assert bench.renewed(second) == [second]


async def test_the_claim_that_was_under_way_at_the_first_renewal_is_waited_for(bench: Bench) -> None:
    lost = claim()
    with bench.unheld.claiming():  # the answer isn't late, it just hasn't come
        assert bench.renewed(lost) == []
        assert bench.renewed(lost) == []
    assert bench.renewed(lost) == [lost]


async def test_claims_that_began_later_hide_nothing(bench: Bench) -> None:
    """A worker with a backlog has a claim under way at every renewal."""
    lost = claim()
    with bench.unheld.claiming():
        assert bench.renewed(lost) == []
    with bench.unheld.claiming():
        assert bench.renewed(lost) == [lost]


async def test_the_leases_of_one_worker_are_told_apart(bench: Bench) -> None:
    lost = claim()
    assert bench.renewed(lost, lease_id=7) == []
    assert bench.renewed(lost, lease_id=8) == []
    assert bench.renewed(lost, lease_id=7) == [lost]
    bench.unheld.forget(8)
    assert bench.renewed(lost, lease_id=8) == []


async def test_what_was_cancelled_when_the_lease_was_over_goes_back_at_once_when_it_has_ended(bench: Bench) -> None:
    ended, runs = claim(), claim()
    slot: Any = SimpleNamespace()
    bench.holdings.running[runs] = slot
    bench.unheld.let_go(7, [ended, runs])
    assert bench.renewed(ended, runs) == [ended]
    assert bench.renewed(runs) == []  # nobody else may begin it beside the body that still runs
    bench.holdings.running.clear()
    assert bench.renewed(runs) == [runs]


async def test_a_claim_whose_answer_was_lost_is_found_within_two_renewals_under_a_backlog(
    client: Client, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each renewal finds another claim under way."""
    jobs, faults = Jobs(), Faults(client, monkeypatch)
    lost = await client.enqueue(jobs.quick().options(priority=1))
    await client.enqueue_many([jobs.quick() for _ in range(30)])
    faults.after["claim"] = 1
    claim = client.store.claim
    renewals_at: list[int] = []

    async def waits_for_a_renewal(lease_id: int, types: Sequence[str], limit: int, **named: Any) -> Sequence[ClaimedJob]:
        seen = faults.calls["renew"]
        try:
            return await claim(lease_id, types, limit, **named)
        finally:
            if faults.failed["claim"] and len(renewals_at) < 10:
                await until(lambda: faults.calls["renew"] > seen)
                renewals_at.append(faults.calls["renew"])

    monkeypatch.setattr(client.store, "claim", waits_for_a_renewal)
    async with Worker(client, jobs.registry, concurrency=1, lease=600, renew_every=0.2, poll_interval=0.02):
        assert await lost.result(timeout=60) == 1
        found = faults.calls["release"]
    assert found == 1
    assert len(renewals_at) < 8
