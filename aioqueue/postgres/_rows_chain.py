"""From any step's id to its chain, and to the chain's live or last step.

A chain's id is its first job's, whose own row has none in `chain_id`. At most one step is live; the others are in the
archive, where the earlier ones may have been purged.
"""

from __future__ import annotations

__all__ = ["ENDS"]

ENDS = """chain AS MATERIALIZED (
    SELECT given.id AS asked,
           coalesce((SELECT coalesce(j.chain_id, j.id) FROM @schema@.job j WHERE j.id = given.id),
                    (SELECT coalesce(a.chain_id, a.id) FROM @schema@.archive a WHERE a.id = given.id LIMIT 1), given.id) AS id
    FROM unnest($1::uuid[]) AS given(id)
), living AS MATERIALIZED (
    SELECT chain.asked, chain.id,
           coalesce((SELECT j.id FROM @schema@.job j WHERE j.chain_id = chain.id),
                    (SELECT j.id FROM @schema@.job j WHERE j.id = chain.id)) AS live
    FROM chain
), ends AS MATERIALIZED (
    SELECT living.*, CASE WHEN living.live IS NULL THEN
           coalesce((SELECT a.id FROM @schema@.archive a WHERE a.chain_id = living.id ORDER BY a.position DESC LIMIT 1),
                    (SELECT a.id FROM @schema@.archive a WHERE a.id = living.id LIMIT 1)) END AS last
    FROM living
)"""
"""Parts of a `WITH`: for each of the ids in $1 (`asked`) the chain's (`id`), its live step, and otherwise its last one."""
