"""Sequences of new jobs: the rows that say so are stored by the statement that stores the jobs, for batches that have any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import NewJob

__all__ = ["SEQUENCED", "has_sequences", "sequence_columns", "sequence_statements"]

SEQUENCED = {
    "@columns@": ", gates",
    "@values@": ", CASE WHEN given.sequence IS NOT NULL THEN '{}'::text[] END",
    "@arrays@": ", $23::text[]",
    "@names@": ", sequence",
    # Numbered in the order of the batch, whatever the order is in which its rows are stored.
    "@members@": """, member AS (
    INSERT INTO @schema@.gate_member (chain_id, sequence, strict, block)
    SELECT created.id, given.sequence, given.strict, given.block
    FROM created JOIN unnest($1::uuid[], $23::text[], $24::boolean[], $25::boolean[], $26::integer[])
        AS given(id, sequence, strict, block, place) ON given.id = created.id
    WHERE given.sequence IS NOT NULL ORDER BY given.place ON CONFLICT DO NOTHING
)""",
}
"""What the statement for batches with sequences has beside that for batches in which jobs wait: its parameters from the 23rd
on are `sequence_columns`."""

# Next jobs of chains that are in none yet. What is in one stays there, and is marked as such already.
_JOIN = """WITH given AS MATERIALIZED (
    SELECT coalesce(j.chain_id, j.id) AS chain, given.* FROM
        unnest($1::uuid[], $2::text[], $3::boolean[], $4::boolean[], $5::integer[]) AS given(id, sequence, strict, block, place)
    CROSS JOIN LATERAL (SELECT j.id, j.chain_id FROM @schema@.job j WHERE j.id = given.id AND j.gates IS NULL OFFSET 0) AS j
), member AS (
    INSERT INTO @schema@.gate_member (chain_id, sequence, strict, block)
    SELECT chain, sequence, strict, block FROM given ORDER BY place ON CONFLICT DO NOTHING
)
UPDATE @schema@.job j SET gates = '{}' WHERE j.id = ANY(ARRAY(SELECT id FROM given))"""


def sequence_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name: `join_sequences` takes the ids of jobs and `sequence_columns`."""
    return {"join_sequences": schema.render(_JOIN)}


def has_sequences(jobs: Sequence[NewJob]) -> bool:
    """Whether any of them says in which sequence it runs."""
    return any(job.sequence is not None for job in jobs)


def sequence_columns(jobs: Sequence[NewJob], batch: Sequence[NewJob]) -> list[Any]:
    """The parameters for what jobs say of their sequences, a column each.

    Arguments:
        jobs: Those of the statement.
        batch: All with which they were given, in the order in which they were.
    """
    places = {job.id: place for place, job in enumerate(batch)}
    members = [job.sequence for job in jobs]
    return [
        [None if each is None else each.name for each in members],
        [each is not None and each.strict for each in members],
        [each is not None and each.block for each in members],
        [places[job.id] for job in jobs],
    ]
