"""Jobs of lost workers whose rows refuse what is to be written: they fail with the least that is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from aioqueue.vocabulary._job import LostReason, Settlement, SettlementKind, SettleResult
from tests.worker.recovery_bench import Bench, Dead, orphan

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import ClaimedJob

pytestmark = pytest.mark.anyio


class Choosy(Dead):
    """Refuses everything about one job, but a failure of which at most so much is said."""

    def __init__(self, choosy: ClaimedJob, most: int, *, raises: bool) -> None:
        super().__init__()
        self.choosy = choosy
        self.most = most
        self.raises = raises

    def _said(self, each: Settlement) -> int:
        if each.kind is not SettlementKind.FAILED:
            return 3
        return 0 if each.error is None else 1 if each.error.message == "the outcome was refused" else 2

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool) -> Sequence[SettleResult]:
        refused = [each for each in settlements if each.id == self.choosy.id and self._said(each) > self.most]
        if refused and self.raises:
            raise ValueError("a trigger says no")
        self.written += [each for each in settlements if each not in refused]
        return [SettleResult(LostReason.ERROR, "it says no") if each in refused else SettleResult() for each in settlements]


@pytest.mark.parametrize("raises", [False, True], ids=["tells-which", "raises"])
@pytest.mark.parametrize("most", [2, 1, 0, -1])
async def test_an_orphan_that_refuses_its_failure_too_fails_with_less(
    monkeypatch: pytest.MonkeyPatch, most: int, raises: bool
) -> None:
    """And its neighbours are recovered all the same. Of which nothing can be written, that is left for later."""
    choosy, *others = orphans = [orphan() for _ in range(5)]
    store = Choosy(choosy, most, raises=raises)
    bench = Bench(monkeypatch, store)
    store.left = [orphans]
    await bench.quiet_for(21)
    assert await bench.recovery.reap(()) == (4 if most < 0 else 5)
    kinds = {each.id: each.kind for each in store.written}
    assert {kinds[other.id] for other in others} == {SettlementKind.RETRIED}
    assert kinds.get(choosy.id) is (None if most < 0 else SettlementKind.FAILED)
