"""What has become of a claim: asked after a settlement that didn't write it, and after a renewal that doesn't own it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.store_rules._lost import lost_reason
from aioqueue.vocabulary._job import LostReason, SettlementKind, SettleResult, StoredState

if TYPE_CHECKING:
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Row
    from aioqueue.postgres._options_schema import Schema

__all__ = ["Fence", "chain_of", "fate_of", "fates_statements"]

# What has become of these jobs, in one snapshot: live, archived, and whether their leases are there, and valid.
_FATES = """SELECT given.id, j.state, j.claims, coalesce(j.lease_id, 0), a.state, a.claims, coalesce(a.lease_id, 0),
       l.id IS NOT NULL, coalesce(l.expires_at > now(), false), coalesce(a.chain_id, given.id),
       a.settled_kind
FROM unnest($1::uuid[], $2::bigint[]) AS given(id, lease_id)
LEFT JOIN LATERAL (SELECT * FROM @schema@.job WHERE id = given.id) AS j ON true
LEFT JOIN LATERAL (SELECT * FROM @schema@.archive WHERE id = given.id ORDER BY finished_at DESC LIMIT 1) AS a ON true
LEFT JOIN LATERAL (SELECT * FROM @schema@.lease WHERE id = given.lease_id) AS l ON true"""

# Of steps that were continued: those whose next job was cancelled by the same transaction.
_ENDED_AT_ONCE = """SELECT given.id FROM unnest($1::uuid[], $2::uuid[]) AS given(id, next)
WHERE (SELECT a.finished_at FROM @schema@.archive a WHERE a.id = given.next AND a.state + 0 = 7 AND a.claims = 0
       ORDER BY a.finished_at DESC LIMIT 1)
    = (SELECT a.finished_at FROM @schema@.archive a WHERE a.id = given.id ORDER BY a.finished_at DESC LIMIT 1)"""


def fates_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name.

    `fates` takes job ids and, beside each, the lease that held it; it returns a row for each.
    `ended_at_once` takes the ids of steps that were continued and, beside each, its next job's; it returns those whose next job
    was cancelled with it.
    """
    return {"fates": schema.render(_FATES), "ended_at_once": schema.render(_ENDED_AT_ONCE)}


@dataclass(frozen=True, slots=True)
class Fence:
    """What a write is fenced by.

    Attributes:
        id, claims, lease_id: The claim.
        kind: What is written, so that only the same is taken for an earlier try of it; None if nothing is.
    """

    id: UUID
    claims: int
    lease_id: int
    kind: SettlementKind | None = None


def fate_of(row: Row, fence: Fence, *, orphaned: bool) -> SettleResult | None:
    """Read one row of `fates`.

    Returns:
        A result without a reason, if an earlier call wrote it; None if nothing stands in the way of writing it.
    """
    _, state, claims, lease_id, archived, archived_claims, archived_lease_id, exists, valid, _, settled_kind = row
    writer = -fence.lease_id if orphaned else fence.lease_id
    if state == StoredState.RUNNING and claims == fence.claims and lease_id == fence.lease_id:
        return SettleResult(LostReason.TAKEN) if (valid if orphaned else not exists) else None
    if state is not None:
        again = fence.kind is None or not fence.kind.finishes
        if state == StoredState.PENDING and again and claims == fence.claims and lease_id == writer:
            return SettleResult()
    elif archived is not None:
        # What gave way to a request to end says what it had been.
        same = fence.kind is None or fence.kind == (archived if settled_kind is None else settled_kind)
        if same and archived_claims == fence.claims and archived_lease_id == writer:
            return SettleResult(cancelled=settled_kind is not None)
    return SettleResult(lost_reason(live=state is not None, archived=archived))


def chain_of(row: Row) -> UUID:
    """The chain of an archived job, of one row of `fates`."""
    chain_id: UUID = row[9]
    return chain_id
