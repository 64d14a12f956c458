"""Sequences of new jobs: the rows that say so are stored by the statement that stores the jobs, for batches that have any."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import NewJob

__all__ = ["SEQUENCED", "has_sequences", "keep_order", "sequence_columns", "sequence_statements"]

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


# They change their numbers among themselves: those of others that are between them are of transactions at the same time.
_ORDER = """WITH own AS MATERIALIZED (
    SELECT array_agg(m.chain_id ORDER BY given.place) AS chains, array_agg(m.number ORDER BY m.number) AS numbers
    FROM unnest($1::uuid[]) WITH ORDINALITY AS given(id, place)
    CROSS JOIN LATERAL (SELECT m.chain_id, m.number FROM @schema@.gate_member m WHERE m.chain_id = given.id OFFSET 0) AS m
)
UPDATE @schema@.gate_member m SET number = own.numbers[array_position(own.chains, m.chain_id)] FROM own
WHERE m.chain_id = ANY($1::uuid[]) AND m.number <> own.numbers[array_position(own.chains, m.chain_id)]"""


def sequence_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name: `join_sequences` takes the ids of jobs and `sequence_columns`."""
    return {"join_sequences": schema.render(_JOIN), "order_sequences": schema.render(_ORDER)}


def has_sequences(jobs: Sequence[NewJob]) -> bool:
    """Whether any of them says in which sequence it runs."""
    return any(job.sequence is not None for job in jobs)


def sequence_columns(jobs: Sequence[NewJob], batch: Sequence[NewJob]) -> list[Any]:
    """The parameters for what jobs say of their sequences, a column each.

    Arguments:
        jobs: Those of the statement.
        batch: All with which they were given, in the order in which they were.
    """
    places: dict[UUID, int] = {}
    for place, job in enumerate(batch):
        places.setdefault(job.id, place)  # of two with one id the first one is stored
    members = [job.sequence for job in jobs]
    return [
        [None if each is None else each.name for each in members],
        [each is not None and each.strict for each in members],
        [each is not None and each.block for each in members],
        [places[job.id] for job in jobs],
    ]


async def keep_order(
    connection: Connection,
    statements: dict[str, str],
    jobs: Sequence[NewJob],
    created: Collection[UUID],
    joined: Mapping[UUID, UUID],
) -> None:
    """Number the new members of a batch in its order, whatever the order is in which they were stored.

    Arguments:
        connection: In the transaction that has stored them.
        statements: Those of this module, and maybe others.
        jobs: The batch.
        created: Those that were stored.
        joined: The chains that have come into a sequence since one of the others took their first job's place, by its id.
    """
    if len(jobs) == 1 or not has_sequences(jobs):
        return
    members: dict[UUID, None] = {}
    came_later = set(joined.values())
    for job in jobs:
        if job.id in joined:
            members[joined[job.id]] = None
        elif job.id in created and job.sequence is not None and job.id not in came_later:
            members[job.id] = None
    await connection.fetch(statements["order_sequences"], list(members))
