"""Settling: how attempts ended is written, each on its own. The functions run inside an open write transaction, in a thread."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

from aioqueue.errors import AioqueueError, CallError, StoreError, WrongJobType
from aioqueue.sqlite._connections_halving import halved
from aioqueue.sqlite._connections_statements import in_savepoint
from aioqueue.sqlite._errors import concerns_a_row, translated
from aioqueue.sqlite._lease_clock import LEASE_VALID, clock_parameters
from aioqueue.sqlite._notifications import merged
from aioqueue.sqlite._progress_kept import write_logs
from aioqueue.sqlite._rows import dump, load, one
from aioqueue.sqlite._rows_times import NOW, moment
from aioqueue.sqlite._settle_batch import Batch
from aioqueue.sqlite._settle_requests import requests
from aioqueue.store_rules._cancelling import as_cancelled, gives_way
from aioqueue.store_rules._lost import lost_reason
from aioqueue.vocabulary._job import LostReason, SettlementKind, SettleResult

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from uuid import UUID

    from aioqueue.sqlite._connections import Connection
    from aioqueue.sqlite._connections_access import Writer
    from aioqueue.sqlite._connections_statements import Statements
    from aioqueue.vocabulary._job import Claim, Settlement
    from aioqueue.vocabulary._notification import Notification

__all__ = ["Settler", "hold", "lock_and_hold", "lost_reasons", "settle", "settle_alone"]

_OWNED = """
SELECT {now}, (SELECT json_group_array(json_array(job.id, CAST(job.type AS TEXT), CAST(job.chain_id AS TEXT),
    job.marked IS NOT 0))
FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
WHERE job.state = 2 AND job.claims = s.value ->> 1 AND coalesce(job.lease_id, 0) = s.value ->> 2 AND {lease})
"""

_OWNED_BY_LEASE = _OWNED.format(now=NOW, lease="EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id)")
_OWNED_ORPHANED = _OWNED.format(
    now=NOW, lease=f"NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id AND {LEASE_VALID})"
)

_DELETE_LEASES = "DELETE FROM lease WHERE id IN (SELECT value FROM json_each(:leases))"

_FATES = """
SELECT json_group_array(json_array(s.key, s.value ->> 0,
    CAST(job.state AS INTEGER), CAST(job.claims AS INTEGER), CAST(job.settled_claims AS INTEGER),
    CAST(job.settled_lease AS INTEGER), CAST(job.settled_kind AS INTEGER), CAST(archive.state AS INTEGER),
    CAST(archive.claims AS INTEGER), CAST(archive.settled_claims AS INTEGER), CAST(archive.settled_lease AS INTEGER),
    CAST(archive.settled_kind AS INTEGER)))
FROM json_each(:rows) AS s
LEFT JOIN job ON job.id = s.value ->> 0 LEFT JOIN archive ON archive.id = s.value ->> 0
"""

_GAVE_WAY = "UPDATE archive SET settled_kind = :kind WHERE id IN (SELECT value FROM json_each(:ids))"
"""What was given stands there, as a repetition gives it again, and another outcome of the same claim isn't one."""

_UNSTARTED = "SELECT 1 FROM archive WHERE id = :next AND state = 7 AND claims = 0"

_MARK_OF_AN_ORPHAN = 100


class Settler:
    """Settlements of one open store.

    Arguments:
        writer: Where they run.
    """

    def __init__(self, writer: Writer) -> None:
        self._writer = writer

    async def settle(self, settlements: Sequence[Settlement], *, orphaned: bool) -> Sequence[SettleResult]:
        """Write outcomes, as `aioqueue.abc.Store.settle` promises. A row that is refused is refused alone."""
        write = functools.partial(settle, orphaned=orphaned)

        def run(connection: Connection, abandoned: Callable[[], bool]) -> tuple[list[SettleResult], Notification | None]:
            results: list[SettleResult] = []
            notifications: list[Notification] = []
            for _, outcome in halved(connection, self._writer.timeout, settlements, write, abandoned):
                if isinstance(outcome, AioqueueError):
                    results.append(_refused(outcome))
                else:
                    results += outcome[0]
                    notifications += [] if outcome[1] is None else [outcome[1]]
            return results, merged(notifications)

        return await self._writer.hop(run)


def hold(connection: Statements, claim: Claim, lease_id: int) -> LostReason | None:
    """See whether a claim is still its lease's own. As the transaction has the write lock, it stays so until that ends."""
    rows = dump([[str(claim.id), claim.claims, lease_id]])
    if load(one(connection, _OWNED_BY_LEASE, {"rows": rows})[1]):
        return None
    return lost_reasons(connection, [claim])[claim]


def lock_and_hold(connection: Statements, claim: Claim, lease_id: int) -> LostReason | None:
    """Do the same in a transaction that may not have the write lock yet."""
    connection.execute("DELETE FROM chain_end WHERE false")
    return hold(connection, claim, lease_id)


def settle_alone(connection: Statements, settlements: Sequence[Settlement]) -> tuple[list[SettleResult], Notification | None]:
    """Write outcomes inside the transaction of somebody who goes on with it: each in a savepoint of its own."""
    results: list[SettleResult] = []
    notifications: list[Notification] = []
    for settlement in settlements:
        try:
            with translated(), in_savepoint(connection, "aioqueue_settle"):
                result, notification = settle(connection, [settlement], orphaned=False)
        except (StoreError, CallError, WrongJobType) as error:
            if isinstance(error, StoreError) and not concerns_a_row(error):
                raise
            results.append(_refused(error))
        else:
            results += result
            notifications += [] if notification is None else [notification]
    return results, merged(notifications)


def _refused(error: AioqueueError) -> SettleResult:
    if isinstance(error, (CallError, WrongJobType)):
        return SettleResult(refused=error)
    return SettleResult(LostReason.ERROR, str(error))


def settle(
    connection: Statements, settlements: Sequence[Settlement], *, orphaned: bool
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


def _settle_distinct(
    connection: Statements, settlements: Sequence[Settlement], *, orphaned: bool
) -> tuple[list[SettleResult], Notification | None]:
    ids = [str(each.id) for each in settlements]
    fences = dump([[job_id, each.claims, each.lease_id] for job_id, each in zip(ids, settlements, strict=True)])
    if orphaned:
        row = one(connection, _OWNED_ORPHANED, {"rows": fences, **clock_parameters()})
    else:
        row = one(connection, _OWNED_BY_LEASE, {"rows": fences})
    now, owned = row[0], {entry[0]: entry for entry in load(row[1])}
    batch = Batch(now)
    lost: list[Settlement] = []
    marked: list[tuple[Settlement, list[Any]]] = []
    logged: list[Settlement] = []
    for job_id, settlement in zip(ids, settlements, strict=True):
        entry = owned.get(job_id)
        if entry is None:
            lost.append(settlement)
            continue
        if settlement.logs is not None:
            logged.append(settlement)
        if entry[3]:
            marked.append((settlement, entry))
        else:
            batch.add(settlement, (settlement.claims, settlement.lease_id), *entry)
    cancelled = _add_marked(connection, batch, marked, now) if marked else _NOTHING
    mark = _MARK_OF_AN_ORPHAN if orphaned else 0
    leases: frozenset[int] = frozenset()
    if orphaned and owned:
        # Otherwise a late renewal would tell the owner that all is well.
        leases = frozenset(each.lease_id for job_id, each in zip(ids, settlements, strict=True) if job_id in owned)
        connection.execute(_DELETE_LEASES, {"leases": dump(sorted(leases))})
    more = batch.write(connection, orphaned=mark)
    if logged:
        write_logs(connection, logged)
    if cancelled:
        gave_way = [each for each, _ in marked if each.id in cancelled]
        for kind in {each.kind for each in gave_way}:
            given = dump([str(each.id) for each in gave_way if each.kind is kind])
            connection.execute(_GAVE_WAY, {"ids": given, "kind": kind + mark})
    fates = _fates(connection, lost, mark) if lost else {}
    for settlement, _ in marked:
        fates[settlement.id] = SettleResult(more=more, cancelled=settlement.id in cancelled)
    results = [fates.get(each.id, _WRITTEN) for each in settlements]
    return results, batch.notification(leases) if owned else None


_WRITTEN = SettleResult()


def _add_marked(
    connection: Statements, batch: Batch, marked: Sequence[tuple[Settlement, list[Any]]], now: int
) -> frozenset[UUID]:
    """Sort those in whose chains may have been asked to end. Gives the ids of those of which something is cancelled."""
    asked = requests(connection, [entry[0] for _, entry in marked])
    cancelled: set[UUID] = set()
    for settlement, entry in marked:
        reason = asked.get(entry[0])
        outcome = settlement
        if reason is not None and gives_way(settlement):
            outcome = as_cancelled(settlement, reason, moment(now))
            cancelled.add(settlement.id)
        elif reason is not None and settlement.kind is SettlementKind.CONTINUED:
            cancelled.add(settlement.id)
        job_id, job_type, chain_id, is_marked = entry
        batch.add(outcome, (settlement.claims, settlement.lease_id), job_id, job_type, chain_id, is_marked, reason)
    return frozenset(cancelled)


_NOTHING: frozenset[UUID] = frozenset()


def _fates(connection: Statements, lost: Sequence[Settlement], mark: int) -> dict[UUID, SettleResult]:
    rows = dump([[str(each.id)] for each in lost])
    found: dict[UUID, SettleResult] = {}
    for entry in load(one(connection, _FATES, {"rows": rows})[0]):
        index: int = entry[0]
        settlement = lost[index]
        fence = [settlement.claims, settlement.lease_id, settlement.kind + mark]
        if fence in (entry[4:7], entry[9:12]):
            found[settlement.id] = _written_before(connection, settlement, entry[7])
        else:
            found[settlement.id] = SettleResult(_reason(entry))
    return found


def _written_before(connection: Statements, settlement: Settlement, archived: int | None) -> SettleResult:
    """What is answered for a settlement that is repeated, as the first time."""
    if archived == SettlementKind.CANCELLED and gives_way(settlement):
        return SettleResult(cancelled=True)
    if settlement.next is None or one(connection, _UNSTARTED, {"next": str(settlement.next.id)}) is None:
        return _WRITTEN
    return SettleResult(cancelled=True)


def _reason(entry: Sequence[Any]) -> LostReason:
    return lost_reason(live=entry[2] is not None, archived=entry[7])


def lost_reasons(connection: Statements, claims: Sequence[Claim]) -> dict[Claim, LostReason]:
    """Why claims aren't their lease's any more."""
    if not claims:
        return {}
    rows = dump([[str(each.id)] for each in claims])
    entries = load(one(connection, _FATES, {"rows": rows})[0])
    return {claims[entry[0]]: _reason(entry) for entry in entries}
