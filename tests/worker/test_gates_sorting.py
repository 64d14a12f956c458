"""A type whose values take turns has more due jobs than can be sorted at once: some run meanwhile, on both stores."""

from __future__ import annotations

import pytest

from aioqueue import Client
from aioqueue.abc import SupportsGates
from aioqueue.postgres import _gates_fair
from aioqueue.sqlite import _claim
from aioqueue.vocabulary._gates import By, GateRules
from aioqueue.vocabulary._identifiers import new_id
from aioqueue.vocabulary._job import NewJob

pytestmark = pytest.mark.anyio

MANY = 5_500
"""More than a transaction sorts on either store."""
RULES = {"a": GateRules(type="a", fair_by=By("tenant"))}


def _job(tenant: str) -> NewJob:
    return NewJob(id=new_id(), type="a", payload=b'{"tenant":"%s"}' % tenant.encode())


async def test_one_runs_while_the_others_are_sorted(each_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each claim takes one until all are sorted, as few as that so that there are slots for who is seen then."""
    monkeypatch.setattr(_gates_fair, "_SORTING_SECONDS", 0.0)
    monkeypatch.setattr(_claim, "_SORTING_SECONDS", 0.0)
    async with Client(each_url) as client:
        store = client.store
        assert isinstance(store, SupportsGates)
        await store.insert([_job("large") for _ in range(MANY)])
        small, other = _job("small"), NewJob(id=new_id(), type="b")
        await store.insert([small, other])
        lease = await store.open_lease("w", 600)
        claims = [await store.claim(lease, ["a", "b"], 10, gates=RULES) for _ in range(8)]
        assert len([each for each in claims[0] if each.type == "a"]) == 1, "while the others are sorted"
        assert other.id in {each.id for each in claims[0]}, "other types aren't kept"
        served = [each.id for taken in claims for each in taken if each.type == "a"]
        assert small.id in served[:15]
        assert len(claims[-1]) == 10, "once they're sorted"
