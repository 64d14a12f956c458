"""Settling batches in which chains continue: what their statement has beside what that of the others has.

The insert of the next jobs reads from the delete of those that have finished. So each key is taken over within one command:
whoever wants it waits for this transaction at the old row, and then finds the new one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected
from aioqueue.postgres._insert_columns import CLOCK, DUE, GIVEN, STORED, VALUES, job_columns, unnested
from aioqueue.postgres._settle_archive import KEPT_KEY
from aioqueue.vocabulary._job import SettlementKind

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioqueue.vocabulary._job import NewJob, Settlement

__all__ = ["CONTINUED_PARTS", "HELD_PARTS", "PLAIN_PARTS", "TAKEN", "continuations", "next_arguments"]

TAKEN = "the chain can't be continued: a job with the next one's id is there already"

PLAIN_PARTS: Mapping[str, str] = {
    "@next@": "",
    "@kept@": "",
    "@continued@": "",
    "@due@": "returned",
    "@ends@": "",
    "@went_on@": "",
}
"""What stands for the marks in a statement for batches without continuations."""

_NEXT = f"""{CLOCK}, next AS MATERIALIZED (
    SELECT * FROM unnest($11::uuid[], {unnested(12)}) AS given(of, {GIVEN})
), taken AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM next))
    UNION ALL SELECT a.id FROM @schema@.archive a WHERE a.id = ANY(ARRAY(SELECT id FROM next))
), refused AS MATERIALIZED (
    SELECT next.of AS id FROM next JOIN matched ON matched.id = next.of WHERE next.id IN (SELECT id FROM taken)
), """

_TAKEN_OVER = "keep, webhook, origin, gates"
# A chain that is in a sequence goes on in it.
_TAKEN_OVER_VALUES = """coalesce(given.keep, gone.keep), coalesce(given.webhook, gone.webhook),
           coalesce(given.origin, gone.origin),
           CASE WHEN gone.gates IS NOT NULL THEN (SELECT '{}'::text[] FROM @schema@.gate_member m
                                                  WHERE m.chain_id = coalesce(gone.chain_id, gone.id)) END"""
_CONTINUED = f"""continued AS (
    INSERT INTO @schema@.job ({STORED}, {_TAKEN_OVER}, chain_id, position, marked, key, unique_key)
    SELECT {VALUES}, {_TAKEN_OVER_VALUES}, coalesce(gone.chain_id, gone.id), least(gone.position, 2147483646) + 1,
           gone.marked OR given.webhook IS NOT NULL, gone.key,
           {KEPT_KEY}
    FROM gone JOIN next AS given ON given.of = gone.id CROSS JOIN clock
    {DUE}
    RETURNING type, greatest(0, extract(epoch FROM run_at - (SELECT now FROM clock)))::float8 AS delay
), """

CONTINUED_PARTS: Mapping[str, str] = {
    "@next@": _NEXT,
    "@kept@": " AND id NOT IN (SELECT id FROM refused)",
    "@continued@": _CONTINUED,
    "@due@": "(SELECT type, delay FROM returned UNION ALL SELECT type, delay FROM continued) AS pending",
    "@ends@": " WHERE state <> 5",
    "@went_on@": "UNION ALL SELECT NULL, type, delay FROM continued\nUNION ALL SELECT id, NULL, -1 FROM refused\n",
}
"""The same for batches that have any, whose parameters go on with `next_arguments`."""


# Of a chain that was asked to end the next job is held, and then cancelled by a later statement.
_HELD = f"""continued AS (
    INSERT INTO @schema@.job ({STORED}, {_TAKEN_OVER}, state, open_blockers, chain_id, position, marked, key, unique_key)
    SELECT {VALUES}, {_TAKEN_OVER_VALUES},
           CASE WHEN given.blockers > 0 OR gone.id IN (SELECT id FROM matched WHERE asked IS NOT NULL) THEN 0 ELSE 1 END,
           given.blockers, coalesce(gone.chain_id, gone.id), least(gone.position, 2147483646) + 1,
           gone.marked OR given.blockers > 0 OR given.webhook IS NOT NULL, gone.key,
           {KEPT_KEY}
    FROM gone JOIN next AS given ON given.of = gone.id CROSS JOIN clock
    {DUE}
    RETURNING type, state, greatest(0, extract(epoch FROM run_at - (SELECT now FROM clock)))::float8 AS delay
), """

HELD_PARTS: Mapping[str, str] = {
    **CONTINUED_PARTS,
    "@next@": _NEXT.replace(f"{unnested(12)})", f"{unnested(12)}, $28::integer[])").replace(
        f"(of, {GIVEN})", f"(of, {GIVEN}, blockers)"
    ),
    "@continued@": _HELD,
    "@due@": "(SELECT type, delay FROM returned UNION ALL SELECT type, delay FROM continued WHERE state = 1) AS pending",
    "@went_on@": CONTINUED_PARTS["@went_on@"].replace("FROM continued", "FROM continued WHERE state = 1"),
}
"""The same for those whose next ones may wait for chains: one more parameter says for how many."""


def continuations(settlements: Sequence[Settlement]) -> list[Settlement]:
    """Those of them by which a chain goes on."""
    return [each for each in settlements if each.kind is SettlementKind.CONTINUED]


def next_arguments(continued: Sequence[Settlement]) -> list[Any]:
    """The arguments that say how chains go on: an array of the jobs that have finished, and those of the next ones.

    Raises:
        RowRejected: One has no next job, or one that can't be stored.
    """
    jobs: list[NewJob] = [each.next for each in continued if each.next is not None]
    if len(jobs) < len(continued):
        raise RowRejected("a job is said to be continued without a next one")
    return [[each.id for each in continued], *job_columns(jobs)]
