"""A type whose values take turns has more due jobs than can be sorted at once: what others may do meanwhile, on both stores."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue import Client
from aioqueue.abc import SupportsGates
from aioqueue.postgres import _gates_fair
from aioqueue.sqlite import _claim
from aioqueue.vocabulary._gates import By, GateRules
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio

MANY = 5_500
"""More than a transaction sorts on either store."""
RULES = {"a": GateRules(type="a", fair_by=By("tenant"))}


def _job(tenant: str) -> NewJob:
    return NewJob(id=new_id(), type="a", payload=b'{"tenant":"%s"}' % tenant.encode())


async def _claims(client: Client, count: int) -> tuple[NewJob, NewJob, list[Sequence[ClaimedJob]]]:
    """Claims of ten with many jobs of one tenant before a single one of another, and one of another type."""
    store = client.store
    assert isinstance(store, SupportsGates)
    await store.insert([_job("large") for _ in range(MANY)])
    small, other = _job("small"), NewJob(id=new_id(), type="b")
    await store.insert([small, other])
    lease = await store.open_lease("w", 600)
    return small, other, [await store.claim(lease, ["a", "b"], 10, gates=RULES) for _ in range(count)]


@pytest.fixture(autouse=True)
def _sorted_in_portions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_gates_fair, "_SORTING_SECONDS", 0.0)
    monkeypatch.setattr(_claim, "_SORTING_SECONDS", 0.0)


async def test_all_are_sorted_before_the_first_one_runs(each_url: str) -> None:
    """So another tenant's single job is in the first claim that takes any. Other types aren't kept."""
    async with Client(each_url) as client:
        small, other, claims = await _claims(client, 2)
        assert [each.id for each in claims[0]] == [other.id]
        assert small.id in {each.id for each in claims[1]}
        assert len(claims[1]) == 10


async def test_one_runs_while_the_sorting_takes_long(each_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim takes one until all are sorted, as few as that so that there are slots for who is seen then."""
    monkeypatch.setattr(_gates_fair, "_SORTING_FIRST_SECONDS", 0.0)
    monkeypatch.setattr(_claim, "_SORTING_FIRST_SECONDS", 0.0)
    async with Client(each_url) as client:
        small, other, claims = await _claims(client, 8)
        assert len([each for each in claims[0] if each.type == "a"]) == 1, "while the others are sorted"
        assert other.id in {each.id for each in claims[0]}, "other types aren't kept"
        served = [each.id for taken in claims for each in taken if each.type == "a"]
        assert small.id in served[:15]
        assert len(claims[-1]) == 10, "once they're sorted"
