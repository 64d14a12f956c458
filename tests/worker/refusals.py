"""A store that refuses what is to be written about jobs, and the jobs about which that is."""

from __future__ import annotations

from collections import Counter, defaultdict
from typing import TYPE_CHECKING

import pytest

from aioqueue import (
    Client,
    Fixed,
    Registry,
    Retry,
    current_attempt,
)
from aioqueue.vocabulary._job import LostReason, SettleResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from aioqueue import JobHandle
    from aioqueue.vocabulary._job import Settlement


BUSY = SettleResult(busy=True)
REFUSED = SettleResult(LostReason.ERROR, "it can't be\nstored")

Verdict = SettleResult | Exception | None


class Refusals:
    """Puts itself before a client's store: what it says of a settlement counts in place of writing it.

    Attributes:
        calls: Of the store, about running jobs.
        sizes: Bytes of outputs in each.
        says: Asked for each settlement: a result, an exception that the whole batch fails with, or None to write it.
        asked: The settlements that it was asked about, by job.
    """

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.says: Callable[[Settlement], Verdict] = lambda _: None
        self.calls = 0
        self.sizes: list[int] = []
        self.asked: defaultdict[UUID, list[Settlement]] = defaultdict(list)
        works = client.store.settle

        async def settle(settlements: Sequence[Settlement], *, orphaned: bool = False) -> Sequence[SettleResult]:
            if orphaned:
                return await works(settlements, orphaned=True)
            self.calls += 1
            self.sizes.append(sum(len(each.output or b"") for each in settlements))
            verdicts: list[SettleResult | None] = []
            for each in settlements:
                self.asked[each.id].append(each)
            for each in settlements:
                verdict = self.says(each)
                if isinstance(verdict, Exception):
                    raise verdict
                verdicts.append(verdict)
            fine = [each for each, verdict in zip(settlements, verdicts, strict=True) if verdict is None]
            results = iter(await works(fine) if fine else [])
            return [next(results) if verdict is None else verdict for verdict in verdicts]

        monkeypatch.setattr(client.store, "settle", settle)

    def of(self, job_id: UUID, verdict: Verdict) -> None:
        self.says = lambda settlement: verdict if settlement.id == job_id else None


class Work:
    """Jobs that count their runs, and may be kept from ending."""

    def __init__(self) -> None:
        self.registry = Registry()
        self.runs: Counter[UUID] = Counter()
        self.numbers: dict[UUID, list[int]] = {}

        @self.registry.job(retry=Retry(max_attempts=2, backoff=Fixed(0)))
        async def work() -> int:
            attempt = current_attempt()
            self.runs[attempt.job.id] += 1
            self.numbers.setdefault(attempt.job.id, []).append(attempt.number)
            return attempt.number

        self.work = work


async def results(handles: Sequence[JobHandle[int]]) -> list[int]:
    return [await handle.result(timeout=60) for handle in handles]
