"""What becomes of candidates: they're taken, or parked, and what that means for their gates."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from aioqueue.errors import LeaseLost
from aioqueue.postgres._claim_owners import ALL_VALID, LOGGED, OWNERS, claimed
from aioqueue.postgres._gates_look import EACH_AND_BASE
from aioqueue.postgres._rows import claimed_job

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._claim_owners import Owners
    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._gates import SequenceMember
    from aioqueue.vocabulary._job import ClaimedJob

__all__ = ["Passing", "begin_members", "park", "spend", "take", "take_statements"]

_GATES = ", gate = NULL, gates = ($5::text[])[array_position($2::uuid[], j.id)]::text[]"
_TAKE = f"""WITH {OWNERS}, picked AS MATERIALIZED (
    SELECT j.id FROM unnest($2::uuid[]) AS j(id) WHERE {ALL_VALID}
), @claimed@, placed AS (
    INSERT INTO @schema@.gate_place (gate, job_id)
    SELECT given.gate, given.id FROM unnest($6::text[], $7::uuid[]) AS given(gate, id)
    WHERE given.id IN (SELECT id FROM claimed)
)
SELECT {ALL_VALID}, claimed.* FROM {LOGGED} LEFT JOIN claimed ON true WHERE logged.done IS NULL"""

# A place for which one was let come, and that it doesn't take, is somebody else's: who goes elsewhere leaves a mark.
_UNUSED = "INSERT INTO @schema@.gate_mark (gate) SELECT given.gate FROM unnest($1::text[]) AS given(gate)"

_PARK = """UPDATE @schema@.job j SET state = 0, gate = ($2::text[])[array_position($1::uuid[], j.id)],
    gates = CASE WHEN j.id = ANY($3::uuid[]) THEN '{}'::text[] END
WHERE j.id = ANY($1::uuid[])"""

_BEGIN = """INSERT INTO @schema@.gate_member (chain_id, sequence, strict, block)
SELECT given.chain_id, given.sequence, given.strict, given.block
FROM unnest($1::uuid[], $2::uuid[], $3::text[], $4::boolean[], $5::boolean[]) AS given(id, chain_id, sequence, strict, block)
ORDER BY (SELECT j.created_at FROM @schema@.job j WHERE j.id = given.id), given.id
ON CONFLICT (chain_id) DO NOTHING"""

# Where somebody waits, they are let come when the next start is allowed.
_SPEND = f"""INSERT INTO @schema@.gate_rate AS r (gate, arrival, wake_at)
SELECT given.gate, coalesce(next.arrival, '-infinity'), CASE WHEN given.waiting THEN next.arrival + rate.each END
{EACH_AND_BASE.format(given="unnest($1::text[], $2::integer[], $3::boolean[]) AS given(gate, used, waiting)")}
CROSS JOIN LATERAL (SELECT since.base + rate.each * given.used AS arrival) AS next
ON CONFLICT (gate) DO UPDATE SET arrival = excluded.arrival,
    wake_at = CASE WHEN excluded.wake_at IS NOT NULL THEN excluded.wake_at ELSE r.wake_at END"""


def take_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    templates = {
        "gates_take": _TAKE.replace("@claimed@", claimed("$3", "$4", also=_GATES)),
        "gates_take_dry": _TAKE.replace("@claimed@", claimed("$3", "$4", also=_GATES, dry_run=True)),
        "gates_unused": _UNUSED,
        "gates_park": _PARK,
        "gates_begin": _BEGIN,
        "gates_spend": _SPEND,
    }
    return {name: schema.render(template) for name, template in templates.items()}


@dataclass(frozen=True, slots=True)
class Passing:
    """A candidate that goes through its gates.

    Attributes:
        id: The job's.
        gates: All that it goes through.
        placed: Those at which it has a place while it runs.
        come: Those at which it was let come.
    """

    id: UUID
    gates: tuple[str, ...]
    placed: tuple[str, ...]
    come: tuple[str, ...]

    @property
    def stored(self) -> str | None:
        """What stands in its row, as the text of an array; None if nothing is to be left behind."""
        return _array(self.placed) if self.placed else None


def _array(texts: Sequence[str]) -> str:
    quoted = (text.replace("\\", "\\\\").replace('"', '\\"') for text in texts)
    return "{" + ",".join(f'"{text}"' for text in quoted) + "}"


async def take(
    connection: Connection, statements: dict[str, str], owners: Owners, passing: Sequence[Passing], *, dry_run: bool
) -> tuple[list[ClaimedJob], set[UUID]]:
    """Take those that go through, which are locked. Returns them, and the ids of those that have waited for chains.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        owners: The leases.
        passing: Who goes through.
        dry_run: Whether they're dry runs from now on.

    Raises:
        LeaseLost: One of the leases isn't valid.
    """
    places = [(gate, each.id) for each in passing for gate in each.placed]
    rows = await connection.fetch(
        statements["gates_take_dry" if dry_run else "gates_take"],
        owners.leases,
        [each.id for each in passing],
        owners.types,
        owners.of_types,
        [each.stored for each in passing],
        [gate for gate, _ in places],
        [job_id for _, job_id in places],
    )
    if not rows[0][0]:
        raise LeaseLost(f"not valid any more: one of the leases {', '.join(map(str, owners.leases))}; nothing was claimed")
    if unused := [gate for each in passing for gate in each.come if gate not in each.gates]:
        await connection.fetch(statements["gates_unused"], unused)
    jobs = [claimed_job(row[1:]) for row in rows if row[1] is not None]
    return jobs, {row[1] for row in rows if row[-1]}


async def park(
    connection: Connection, statements: dict[str, str], parked: Mapping[UUID, str], members: Collection[UUID]
) -> None:
    """Park those whose gate is closed, which are locked.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        parked: At which gate.
        members: Those that are in a sequence.
    """
    ids = list(parked)
    await connection.fetch(statements["gates_park"], ids, list(parked.values()), [each for each in ids if each in members])


async def begin_members(
    connection: Connection, statements: dict[str, str], members: Sequence[tuple[UUID, UUID, SequenceMember]]
) -> None:
    """Store that chains are in a sequence, in the order in which their jobs were created.

    Arguments:
        connection: In a transaction that has locked the sequences.
        statements: Those of this module, and maybe others.
        members: The job's id, its chain's, and what it's a member of.
    """
    await connection.fetch(
        statements["gates_begin"],
        [job_id for job_id, _, _ in members],
        [chain_id for _, chain_id, _ in members],
        [member.name for _, _, member in members],
        [member.strict for _, _, member in members],
        [member.block for _, _, member in members],
    )


async def spend(connection: Connection, statements: dict[str, str], used: Mapping[str, int], waiting: Collection[str]) -> None:
    """Spend starts of rates, and note where somebody waits for the next one.

    Arguments:
        connection: In a transaction that has locked them.
        statements: Those of this module, and maybe others.
        used: How many of each, which may be none.
        waiting: Where somebody was parked.
    """
    gates = list(used)
    await connection.fetch(
        statements["gates_spend"], gates, [used[each] for each in gates], [each in waiting for each in gates]
    )
