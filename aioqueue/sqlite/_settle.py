"""Writing how attempts ended. Each function runs inside an open write transaction, in a thread."""

from __future__ import annotations

from typing import TYPE_CHECKING
from uuid import UUID

from aioqueue.abc import Notification
from aioqueue.errors import RowRejected
from aioqueue.sqlite import _statements as sql
from aioqueue.sqlite._lease_clock import clock_parameters
from aioqueue.sqlite._rows import after, at, dump, load, one
from aioqueue.vocabulary._job import Claim, LostReason, Settlement, SettlementKind, SettleResult

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Sequence

    from aioqueue.vocabulary._job import AttemptError

__all__ = ["lost_reasons", "merged", "settle"]

_ORPHANED = 100


def settle(
    connection: sqlite3.Connection, settlements: Sequence[Settlement], *, orphaned: bool
) -> tuple[list[SettleResult], Notification | None]:
    """Write outcomes; a second one about the same claim, in the same batch, is answered like a repetition."""
    if len({settlement.id for settlement in settlements}) == len(settlements):
        return _settle_distinct(connection, settlements, orphaned=orphaned)
    results: list[SettleResult] = []
    notifications: list[Notification] = []
    for settlement in settlements:
        result, notification = _settle_distinct(connection, [settlement], orphaned=orphaned)
        results += result
        if notification is not None:
            notifications.append(notification)
    return results, merged(notifications)


def merged(notifications: Sequence[Notification]) -> Notification | None:
    if not notifications:
        return None
    return Notification(
        types=frozenset(name for each in notifications for name in each.types or ()),
        finished=frozenset(job_id for each in notifications for job_id in each.finished or ()),
        delay=min(each.delay for each in notifications),
        leases=frozenset(lease_id for each in notifications for lease_id in each.leases),
    )


def _settle_distinct(
    connection: sqlite3.Connection, settlements: Sequence[Settlement], *, orphaned: bool
) -> tuple[list[SettleResult], Notification | None]:
    fences = dump([[str(each.id), each.claims, each.lease_id] for each in settlements])
    if orphaned:
        row = one(connection, sql.SETTLE_OWNED_ORPHANED, {"rows": fences, **clock_parameters()})
    else:
        row = one(connection, sql.SETTLE_OWNED, {"rows": fences})
    now, owned = row[0], {entry[0]: entry for entry in load(row[1])}
    finished: list[list[object]] = []
    pending: list[list[object]] = []
    types: set[str] = set()
    delay: float | None = None
    lost: list[Settlement] = []
    for settlement in settlements:
        entry = owned.get(str(settlement.id))
        if entry is None:
            lost.append(settlement)
        elif settlement.kind in {SettlementKind.RETRIED, SettlementKind.RESCHEDULED}:
            due = _due(settlement, now)
            pending.append(_values(settlement, due))
            types.add(entry[1])
            wait = (due - now) / 1e6
            delay = wait if delay is None else min(delay, wait)
        else:
            finished.append(_values(settlement, None))
    mark = _ORPHANED if orphaned else 0
    ended: frozenset[int] = frozenset()
    if orphaned and owned:
        # Otherwise a late renewal would tell the owner that all is well.
        ended = frozenset(each.lease_id for each in settlements if str(each.id) in owned)
        connection.execute(sql.LEASES_DELETE, {"leases": dump(sorted(ended))})
    if finished:
        rows = dump(finished)
        connection.execute(sql.ARCHIVE_OWNED, {"rows": rows, "now": now, "orphaned": mark})
        connection.execute(sql.DELETE_LIVE, {"rows": rows})
    if pending:
        connection.execute(sql.SETTLE_PENDING, {"rows": dump(pending), "orphaned": mark})
    fates = _fates(connection, lost, mark) if lost else {}
    results = [fates.get(each.id, _WRITTEN) for each in settlements]
    if not finished and not pending:
        return results, None
    return results, Notification(
        types=frozenset(types),
        delay=delay or 0.0,
        finished=frozenset(UUID(str(values[0])) for values in finished),
        leases=ended,
    )


_WRITTEN = SettleResult()


def _due(settlement: Settlement, now: int) -> int:
    if settlement.run_at is not None:
        return at(now, settlement.run_at, "the due time")
    return after(now, settlement.delay, "the delay") if settlement.delay else now


def _values(settlement: Settlement, due: int | None) -> list[object]:
    return [
        str(settlement.id),
        settlement.claims,
        settlement.lease_id,
        int(settlement.kind),
        due,
        None if settlement.error is None else _encoded(settlement.error),
        settlement.outcome,
        None if settlement.output is None else settlement.output.decode(),
    ]


def _encoded(error: AttemptError) -> str:
    try:
        return error.encode().decode()
    except TypeError as refused:
        raise RowRejected(f"an error can't be stored: {refused}") from refused


def _fates(connection: sqlite3.Connection, lost: Sequence[Settlement], mark: int) -> dict[UUID, SettleResult]:
    rows = dump([[str(each.id)] for each in lost])
    found: dict[UUID, SettleResult] = {}
    for entry in load(one(connection, sql.SETTLE_FATE, {"rows": rows})[0]):
        index: int = entry[0]
        settlement = lost[index]
        fence = [settlement.claims, settlement.lease_id, settlement.kind + mark]
        if fence in (entry[4:7], entry[9:12]):
            found[settlement.id] = _WRITTEN
        else:
            found[settlement.id] = SettleResult(_reason(live=entry[2], archived=entry[7]))
    return found


def _reason(*, live: int | None, archived: int | None) -> LostReason:
    if archived is not None:
        return LostReason.CANCELLED if archived == SettlementKind.CANCELLED else LostReason.COMPLETED
    return LostReason.NOT_FOUND if live is None else LostReason.TAKEN


def lost_reasons(connection: sqlite3.Connection, claims: Sequence[Claim]) -> dict[Claim, LostReason]:
    """Why claims aren't their lease's any more."""
    if not claims:
        return {}
    rows = dump([[str(each.id)] for each in claims])
    entries = load(one(connection, sql.SETTLE_FATE, {"rows": rows})[0])
    return {claims[entry[0]]: _reason(live=entry[2], archived=entry[7]) for entry in entries}
