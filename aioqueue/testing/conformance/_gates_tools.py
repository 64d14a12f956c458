"""What the cases about gates share: stores that have them, claims that look at them, and the rules of types."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioqueue.testing.conformance._tools import HOUR, equal, states_of
from aioqueue.testing.conformance._waiting import complete
from aioqueue.vocabulary._abilities import SupportsGates
from aioqueue.vocabulary._gates import JOB_LIMIT, RATE, By, GateRules, LimitKind, NewLimit, SequenceMember
from aioqueue.vocabulary._job import JobState

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from uuid import UUID

    from aioqueue.abc import Store
    from aioqueue.vocabulary._answers import Due
    from aioqueue.vocabulary._job import ClaimedJob
    from aioqueue.vocabulary._quota import Quota

__all__ = [
    "BY_TENANT",
    "ONE_BY_TENANT",
    "ONE_OF_A",
    "Worker",
    "expect_held",
    "limit_of",
    "member",
    "rate_of",
    "tenant",
    "with_gates",
]

_AT_ONCE_SECONDS = 0.1
"""What is due within that time is waited for: a store's clock may be coarse, and what is put off by nothing due in a moment."""
BY_TENANT = By("tenant")
"""The argument that tells the gates of one name apart in most cases."""
ONE_OF_A = {"a": GateRules(type="a", limit=True)}
"""The rules of the type `a`, where it has a limit."""
ONE_BY_TENANT = {"a": GateRules(type="a", limit=True, limit_by=BY_TENANT)}
"""The rules of the type `a`, where it has a limit for each tenant."""


def with_gates(store: Store) -> SupportsGates | None:
    """The store, if its claims look at gates; a case is over if they don't."""
    return store if isinstance(store, SupportsGates) else None


def limit_of(name: str, places: int) -> NewLimit:
    """The limit of a job type, by its name."""
    return NewLimit(name=JOB_LIMIT + name, places=places)


def rate_of(name: str, starts: int, per: float = HOUR, burst: int | None = None) -> NewLimit:
    """The rate of a job type, by its name."""
    return NewLimit(name=RATE + name, kind=LimitKind.STARTS, places=starts, per=per, burst=starts if burst is None else burst)


def tenant(name: str) -> bytes:
    """The payload of a tenant's job."""
    return f'{{"tenant": "{name}"}}'.encode()


def member(name: str, *, strict: bool = False, block: bool = False) -> SequenceMember:
    """What puts a job into a sequence."""
    return SequenceMember(name=name, strict=strict, block=block)


class Worker:
    """Claims as a worker does whose types have these rules.

    Arguments:
        store: What it works for.
        rules: By the types that have any.
        types: All of its types; those with rules if it isn't said.
    """

    def __init__(self, store: Store, rules: Mapping[str, GateRules] | None = None, types: Sequence[str] | None = None) -> None:
        self.store = store
        self._rules = rules or {}
        self._types = list(types or self._rules or ["a"])
        self._lease_id = 0

    async def lease(self) -> int:
        """The lease of all its claims; it has an hour."""
        if not self._lease_id:
            self._lease_id = await self.store.open_lease("w", HOUR)
        return self._lease_id

    async def claim(self, limit: int = 100, *, quotas: Sequence[Quota] = ()) -> list[ClaimedJob]:
        """Claim until it has so many, or nothing is due any more. A claim may get nothing, since it holds what it comes to."""
        claimed: list[ClaimedJob] = []
        for _ in range(1000):
            lease_id, left = await self.lease(), limit - len(claimed)
            claimed += await self.store.claim(lease_id, self._types, left, quotas=quotas, gates=self._rules)
            due = (await self.due()).job
            if len(claimed) == limit or due is None or due > _AT_ONCE_SECONDS:
                return claimed
        raise AssertionError("claims must come to an end of what is due")

    async def ids(self, limit: int = 100) -> list[UUID]:
        """The ids of what it claims."""
        return [each.id for each in await self.claim(limit)]

    async def one(self) -> ClaimedJob:
        """Claim all that may run, which must be one job."""
        claimed = await self.claim()
        equal(len(claimed), 1, "jobs claimed where one may run")
        return claimed[0]

    async def due(self) -> Due:
        """When it has something to do."""
        return await self.store.next_due(self._types, gates=self._rules)

    async def in_turn(self, number: int) -> list[UUID]:
        """Run so many jobs, of which one may run at a time, and give their ids."""
        ids: list[UUID] = []
        for _ in range(number):
            claimed = await self.one()
            ids.append(claimed.id)
            await complete(self.store, claimed)
        equal(await self.ids(), [], "what is claimed after all of them")
        return ids


async def expect_held(store: Store, gate: str, *ids: UUID) -> None:
    """Raise AssertionError unless these jobs are held at the gate."""
    found = await store.fetch(ids)
    equal(await states_of(store, *ids), [JobState.HELD] * len(ids), f"the states of what waits at {gate}")
    equal([each and each.held_by for each in found], [gate] * len(ids), "what holds them")
