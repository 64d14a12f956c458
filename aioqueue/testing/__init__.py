"""Conformance cases for stores: what every store must do, as data.

For the authors of stores, ours and others'. A store passes if every case whose needs its harness meets passes:

    from aioqueue.testing import CASES

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
    async def test_store(case, make_harness):
        harness = make_harness()                      # a fresh database, see `Harness`
        if case.needs <= harness.capabilities:
            await case.run(harness)

Nothing here needs pytest, or any other framework: a case raises AssertionError. No case waits for time to pass; the
harness moves stored times instead (`Harness.age`).
"""

from __future__ import annotations

from aioqueue.testing import (
    _claim,
    _insert,
    _lease,
    _life,
    _listing,
    _notifications,
    _odd_rows,
    _operating,
    _release,
    _settle,
    _stats,
    _take_expired,
    _transaction,
)
from aioqueue.testing._case import Capability, Case, Fault, Harness

__all__ = ["CASES", "Capability", "Case", "Fault", "Harness"]

CASES: tuple[Case, ...] = tuple(
    case
    for subject in (
        _life.subject,
        _insert.subject,
        _claim.subject,
        _settle.subject,
        _release.subject,
        _lease.subject,
        _take_expired.subject,
        _listing.fetching,
        _listing.subject,
        _stats.subject,
        _stats.due,
        _operating.retrying,
        _operating.running,
        _operating.deleting,
        _odd_rows.subject,
        _transaction.subject,
        _notifications.subject,
    )
    for case in subject.cases
)
"""Every case; names are unique."""
