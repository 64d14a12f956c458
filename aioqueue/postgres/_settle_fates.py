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
       l.id IS NOT NULL, coalesce(l.expires_at > now(), false), coalesce(a.chain_id, given.id)
FROM unnest($1::uuid[], $2::bigint[]) AS given(id, lease_id)
LEFT JOIN LATERAL (SELECT * FROM @schema@.job WHERE id = given.id) AS j ON true
LEFT JOIN LATERAL (SELECT * FROM @schema@.archive WHERE id = given.id ORDER BY finished_at DESC LIMIT 1) AS a ON true
LEFT JOIN LATERAL (SELECT * FROM @schema@.lease WHERE id = given.lease_id) AS l ON true"""


def fates_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name.

    `fates` takes job ids and, beside each, the lease that held it; it returns a row for each.
    """
    return {"fates": schema.render(_FATES)}


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
    _, state, claims, lease_id, archived, archived_claims, archived_lease_id, exists, valid, _ = row
    writer = -fence.lease_id if orphaned else fence.lease_id
    if state == StoredState.RUNNING and claims == fence.claims and lease_id == fence.lease_id:
        return SettleResult(LostReason.TAKEN) if (valid if orphaned else not exists) else None
    if state is not None:
        again = fence.kind is None or not fence.kind.finishes
        if state == StoredState.PENDING and again and claims == fence.claims and lease_id == writer:
            return SettleResult()
    elif archived is not None:
        same = fence.kind is None or archived == fence.kind
        if same and archived_claims == fence.claims and archived_lease_id == writer:
            return SettleResult()
    return SettleResult(lost_reason(live=state is not None, archived=archived))


def chain_of(row: Row) -> UUID:
    """The chain of an archived job, of one row of `fates`."""
    chain_id: UUID = row[9]
    return chain_id
