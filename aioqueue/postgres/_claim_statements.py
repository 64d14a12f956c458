"""The statement of a claim of many, in the forms that it has: see `_claim`."""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from aioqueue.postgres._claim_blockers import claim_blockers_statements
from aioqueue.postgres._claim_lanes import READY
from aioqueue.postgres._claim_owners import ALL_VALID, LOGGED, OWNERS, claimed
from aioqueue.postgres._claim_parking import parking_statements
from aioqueue.postgres._gates_claim import gates_claim_statements
from aioqueue.postgres._pauses_parked import key_is_paused, type_is_free
from aioqueue.vocabulary._gates import FAIR

if TYPE_CHECKING:
    from aioqueue.postgres._options_schema import Schema

__all__ = ["COLUMNS_ABOUT_THE_CLAIM", "PAUSING", "claim_name", "claim_statements"]

COLUMNS_ABOUT_THE_CLAIM = 7
"""How many columns stand before those of a job."""
PAUSING = 4
"""Which of them says whether there are pauses."""

_CLAIM = f"""WITH {OWNERS}, pausing AS MATERIALIZED (
    SELECT EXISTS (SELECT FROM @schema@.pause) AS yes
), lane AS MATERIALIZED (
    SELECT given.type, given.priority, coalesce(given.floor_at, '-infinity'::timestamptz) AS floor_at,
           coalesce(given.floor_id, '00000000-0000-0000-0000-000000000000'::uuid) AS floor_id, given.turn
    FROM unnest($3::text[], $4::smallint[], $5::timestamptz[], $6::uuid[], $10::integer[])
        AS given(type, priority, floor_at, floor_id, turn)
    WHERE {ALL_VALID} AND @free@
), heads AS MATERIALIZED (
    SELECT lane.type, lane.priority, lane.turn, head.run_at, head.id, head.place@is_ready@
    FROM lane CROSS JOIN LATERAL (
        SELECT first.run_at, first.id, row_number() OVER (ORDER BY first.run_at, first.id) AS place
        FROM (SELECT j.run_at, j.id FROM {READY} LIMIT $7::integer) AS first
    ) AS head@turns@
), edge AS MATERIALIZED (
    SELECT min(priority) AS priority FROM heads WHERE place = $7::integer
), quota AS MATERIALIZED (
    SELECT type, priority@in_turn@, count(*) AS jobs
    FROM (SELECT heads.type, heads.priority@in_turn@ FROM @heads@ AS heads CROSS JOIN edge
          WHERE (edge.priority IS NULL OR heads.priority <= edge.priority) AND @room@
          ORDER BY heads.priority, heads.place, heads.turn, heads.run_at, heads.id LIMIT $2::integer) AS first
    GROUP BY type, priority@in_turn@
), @picked@, @claimed@
SELECT (SELECT array_agg(wanted.id) FROM unnest($1::bigint[]) AS wanted(id) WHERE wanted.id NOT IN (SELECT id FROM owner)),
       (SELECT coalesce(sum(jobs), 0)::integer FROM quota WHERE @plain@), (SELECT priority IS NOT NULL FROM edge),
       (SELECT count(*) FROM heads), (SELECT yes FROM pausing), @left@, @gated@, claimed.*
FROM {LOGGED} LEFT JOIN claimed ON true WHERE logged.done IS NULL"""

_TAKEN = f"""FROM lane JOIN quota ON quota.type = lane.type AND quota.priority = lane.priority@not_in_turn@
    CROSS JOIN LATERAL (SELECT @columns@ FROM {READY} LIMIT quota.jobs FOR UPDATE OF j SKIP LOCKED) AS taken
    WHERE @plain@"""
# Jobs that are at gates are left to another statement. Most claims meet no pauses at all: theirs looks whether there are any,
# and takes nothing then.
_WITHOUT_PAUSES = {
    "@free@": "NOT (SELECT yes FROM pausing)",
    "@picked@": f"""met AS MATERIALIZED (
    SELECT lane.priority, lane.type, taken.id, taken.gates IS NOT NULL AS gated {_TAKEN.replace("@columns@", "j.id, j.gates")}
), @taken_in_turn@picked AS MATERIALIZED (SELECT id FROM met WHERE NOT gated@and_in_turn@)""",
    "@paused@": "false",
    "@left@": "NULL::text[]",
}
# The lanes with something that has a paused key come as texts.
_WITH_PAUSES = {
    "@free@": type_is_free("given.type"),
    "@picked@": f"""met AS MATERIALIZED (
    SELECT lane.priority, lane.type, taken.id, taken.gates IS NOT NULL AS gated, {key_is_paused("taken.key")} AS paused
    {_TAKEN.replace("@columns@", "j.id, j.key, j.gates")}
), @taken_in_turn@picked AS MATERIALIZED (SELECT id FROM met WHERE NOT paused AND NOT gated@and_in_turn@)""",
    "@paused@": key_is_paused("j.key"),
    "@left@": "(SELECT array_agg(DISTINCT priority || ' ' || type) FROM met WHERE paused AND NOT gated)",
}
# So do those with something at gates, with how many of them.
_MET_GATED = """(SELECT array_agg(lane.jobs || ' ' || lane.priority || ' ' || lane.type)
        FROM (SELECT count(*) AS jobs, priority, type FROM met WHERE gated GROUP BY priority, type) AS lane)"""
_WITHOUT_GATES = {
    "@plain@": "true",
    "@gated@": _MET_GATED,
    **dict.fromkeys(("@turns@", "@is_ready@", "@in_turn@", "@not_in_turn@", "@taken_in_turn@", "@and_in_turn@"), ""),
}
# Of types that have limits, rates or sequences all jobs may wait at gates. Their part of the quota is told. Those whose turn it
# is are given, and still held: they're merged with the heads of lanes, and taken from where they are.
_WITH_GATES = {
    "@turns@": """
    UNION ALL
    SELECT lane.type, lane.priority, lane.turn, next.run_at, next.id,
           row_number() OVER (PARTITION BY lane.type, lane.priority ORDER BY given.place), true
    FROM unnest($12::uuid[]) WITH ORDINALITY AS given(id, place) CROSS JOIN LATERAL (
        SELECT j.id, j.type, j.priority, j.run_at FROM @schema@.job j WHERE j.id = given.id AND j.state + 0 = 0 OFFSET 0
    ) AS next
    JOIN lane ON lane.type = next.type AND lane.priority = next.priority""",
    "@is_ready@": ", false AS in_turn",
    "@in_turn@": ", in_turn",
    "@not_in_turn@": " AND NOT quota.in_turn",
    "@taken_in_turn@": f"""held AS MATERIALIZED (
    SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(
        SELECT heads.id FROM heads JOIN quota ON quota.type = heads.type AND quota.priority = heads.priority AND quota.in_turn
        WHERE heads.in_turn AND heads.place <= quota.jobs))
      AND j.state + 0 = 0 AND starts_with(j.gate, '{FAIR}') AND j.gates IS NULL AND j.open_blockers <= 0 AND NOT @paused@
    FOR UPDATE OF j SKIP LOCKED
), """,
    "@and_in_turn@": " UNION ALL SELECT id FROM held",
    "@plain@": "quota.type <> ALL($11::text[])",
    "@gated@": f"""array_cat((SELECT array_agg(jobs || ' ' || priority || ' ' || type) FROM quota
                  WHERE type = ANY($11::text[])), {_MET_GATED})""",
}
_WITHOUT_QUOTAS = {"@heads@": "heads", "@room@": "true"}
# Of each quota's types the first ones in the claim's order, as many as it has room for.
_WITH_QUOTAS = {
    "@heads@": """(
        SELECT heads.*, quota.jobs AS room, row_number() OVER (
            PARTITION BY quota.number
            ORDER BY heads.priority, heads.place, heads.turn, heads.run_at, heads.id) AS place_in_quota
        FROM heads LEFT JOIN unnest(@quotas@) AS quota(type, number, jobs)
            ON quota.type = heads.type)""",
    "@room@": "(heads.room IS NULL OR heads.place_in_quota <= heads.room)",
}


def claim_name(*, pausing: bool = False, dry_run: bool = False, quotas: bool = False, gates: bool = False) -> str:
    """The name of the statement of a claim.

    Arguments:
        pausing: Whether there are pauses.
        dry_run: Whether what it takes are dry runs from now on.
        quotas: Whether it has quotas: three parameters more.
        gates: Whether some of its types have rules: those whose jobs wait at gates are the first parameter more,
            and the ids of the jobs whose turn it is the second one.
    """
    return f"claim{'_pausing' * pausing}{'_dry' * dry_run}{'_quotas' * quotas}{'_gates' * gates}"


def claim_statements(schema: Schema) -> dict[str, str]:
    """All statements of claims of many, by name."""
    statements = {**parking_statements(schema), **claim_blockers_statements(schema), **gates_claim_statements(schema)}
    for pausing, dry_run, quotas, gates in itertools.product((False, True), repeat=4):
        also = ", gate = NULL" if gates else ""  # one that was let come in its turn has had it
        sql = _CLAIM.replace("@claimed@", claimed("$8", "$9", dry_run=dry_run, also=also))
        parts = (_WITH_PAUSES if pausing else _WITHOUT_PAUSES) | (_WITH_QUOTAS if quotas else _WITHOUT_QUOTAS)
        first = 13 if gates else 11
        quota_parameters = f"${first}::text[], ${first + 1}::integer[], ${first + 2}::integer[]"
        # What is picked has marks of gates in it, and those have marks of pauses.
        for mark, text in {"@picked@": parts["@picked@"], **(_WITH_GATES if gates else _WITHOUT_GATES), **parts}.items():
            sql = sql.replace(mark, text)
        sql = sql.replace("@quotas@", quota_parameters)
        statements[claim_name(pausing=pausing, dry_run=dry_run, quotas=quotas, gates=gates)] = schema.render(sql)
    return statements
