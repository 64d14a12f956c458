"""A client's store whose renewals say that chains were asked to end, and whose settlements look at that."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from aioqueue.vocabulary._job import SettlementKind
from tests.worker.insides import parts

if TYPE_CHECKING:
    from collections.abc import Sequence
    from uuid import UUID

    import pytest

    from aioqueue import Client, Worker
    from aioqueue.abc import LeaseSession, Renewal
    from aioqueue.vocabulary._job import Claim, Settlement, SettleResult

__all__ = ["Asking"]


class Asking:
    """Requests to end as renewals tell of them, whatever the store itself knows.

    Attributes:
        asked: Why jobs were asked to end, by id.
        settled: What was written, in order.
        also: Claims that renewals tell of though they aren't held: those whose answer is on its way.
    """

    def __init__(self, client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
        self.asked: dict[UUID, str] = {}
        self.settled: list[Settlement] = []
        self.also: list[Claim] = []
        self._overruled: set[UUID] = set()
        make, works = client.store.lease_session, client.store.settle
        monkeypatch.setattr(client.store, "lease_session", lambda **named: _Session(make(**named), self))

        async def settle(settlements: Sequence[Settlement], **named: Any) -> Sequence[SettleResult]:
            self.settled += settlements
            results = await works([self._as_written(each) for each in settlements], **named)
            overruled = [each.id in self._overruled for each in settlements]
            return [replace(result, cancelled=cancelled) for result, cancelled in zip(results, overruled, strict=True)]

        monkeypatch.setattr(client.store, "settle", settle)

    def ask(self, worker: Worker, job_id: UUID, why: str = "because") -> None:
        """Ask, and tell the worker."""
        self.asked[job_id] = why
        parts(worker).leases.renew_now()

    def overrule(self, job_id: UUID) -> None:
        """Write what becomes of a job as cancelled, as a store does of which the worker has heard nothing yet."""
        self._overruled.add(job_id)

    def _as_written(self, settlement: Settlement) -> Settlement:
        kind = settlement.kind
        gives_way = not kind.finishes or (kind is SettlementKind.FAILED and settlement.yields)
        if settlement.id not in self._overruled or not gives_way:
            return settlement
        return replace(settlement, kind=SettlementKind.CANCELLED, delay=None, run_at=None)


class _Session:
    def __init__(self, session: LeaseSession, asking: Asking) -> None:
        self._session = session
        self._asking = asking

    def connect(self) -> None:
        self._session.connect()

    def renew(self, lease_id: int, duration: float, held: Sequence[Claim]) -> Renewal:
        renewal = self._session.renew(lease_id, duration, held)
        asked = self._asking.asked
        told = {claim: asked[claim.id] for claim in (*held, *renewal.unheld, *self._asking.also) if claim.id in asked}
        return replace(renewal, asked_to_stop=told)

    def close(self) -> None:
        self._session.close()
