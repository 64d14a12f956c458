"""The conformance cases, one file per subject. `aioqueue.testing` is where they are imported from."""

from __future__ import annotations

from aioqueue.testing.conformance import (
    _claim,
    _insert,
    _insert_blockers,
    _insert_blockers_moments,
    _lease,
    _lease_release,
    _life,
    _listing,
    _listing_chains,
    _notifications,
    _notifications_chains,
    _odd_rows,
    _operate,
    _operate_blockers,
    _operate_blockers_together,
    _operate_chains,
    _operate_prune,
    _recovery,
    _settle,
    _settle_blockers,
    _settle_blockers_next,
    _settle_chains,
    _settle_children,
    _settle_end,
    _settle_end_moments,
    _settle_fences,
    _stats,
    _stats_workers,
    _tend,
    _transaction,
    _transaction_hold,
    _unique,
)
from aioqueue.testing.conformance._case import Capability, Case, Fault, Harness

__all__ = ["CASES", "Capability", "Case", "Fault", "Harness"]

CASES: tuple[Case, ...] = tuple(
    case
    for subject in (
        _life.subject,
        _insert.subject,
        _unique.subject,
        _insert_blockers.subject,
        _insert_blockers_moments.subject,
        _claim.subject,
        _settle.subject,
        _settle_fences.subject,
        _settle_chains.subject,
        _settle_blockers.subject,
        _settle_blockers_next.subject,
        _settle_children.subject,
        _settle_end.subject,
        _settle_end_moments.subject,
        _lease_release.subject,
        _lease.subject,
        _recovery.expired,
        _listing.fetching,
        _listing.subject,
        _listing_chains.subject,
        _stats.subject,
        _stats_workers.subject,
        _recovery.due,
        _operate.retrying,
        _operate.running,
        _operate.deleting,
        _operate_chains.subject,
        _operate_blockers.deleting,
        _operate_blockers.retrying,
        _operate_blockers.looking,
        _operate_blockers_together.deleting,
        _operate_blockers_together.retrying,
        _operate_prune.pruning,
        _tend.subject,
        _odd_rows.subject,
        _transaction.subject,
        _transaction_hold.holding,
        _transaction_hold.savepoints,
        _notifications.subject,
        _notifications_chains.subject,
    )
    for case in subject.cases
)
"""Every case; names are unique."""
