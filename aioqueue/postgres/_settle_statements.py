"""The statements that settle: one text for all kinds of outcomes, with parts for continuations, orphans and the slow way.

The fast ones serve most jobs, which neither wait nor are waited for. The others take those too, within a transaction whose
later statements see to the rest.
"""

from __future__ import annotations

from functools import lru_cache
from math import isfinite
from typing import TYPE_CHECKING, Any

from aioqueue.errors import RowRejected
from aioqueue.postgres._events_log import logged_by
from aioqueue.postgres._insert_columns import unless_empty
from aioqueue.postgres._rows import ASKED
from aioqueue.postgres._settle_archive import archive, history
from aioqueue.postgres._settle_chain import CONTINUED_PARTS, HELD_PARTS, PLAIN_PARTS
from aioqueue.store_rules._cancelling import CANCELLED, WITHOUT_REASON

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioqueue.postgres._options_schema import Schema
    from aioqueue.vocabulary._job import Settlement

__all__ = ["outcome_arguments", "outcome_statements"]

_OWNED = "EXISTS (SELECT FROM @schema@.lease l WHERE l.id = given.lease_id)"
# The expired leases that orphans had go first, as in a recovery: a renewal at that moment has either been seen, or finds no
# row. One that is locked is being renewed or taken, so that its jobs have to wait.
_ENDED = """free AS MATERIALIZED (
    SELECT l.id FROM @schema@.lease l WHERE l.id = ANY($3::bigint[]) AND l.expires_at <= now() FOR UPDATE SKIP LOCKED
), ended AS MATERIALIZED (
    DELETE FROM @schema@.lease l WHERE l.id = ANY(ARRAY(SELECT id FROM free)) RETURNING l.id
), """
_ORPHANED = """(given.lease_id IN (SELECT id FROM ended)
                            OR NOT EXISTS (SELECT FROM @schema@.lease l WHERE l.id = given.lease_id))"""
_ENDED_TOLD = """UNION ALL
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $10::text, 'l', json_agg(id))::text)::text
    FROM (SELECT id, (row_number() OVER () - 1) / 150 AS part FROM ended) AS parts WHERE $10::text IS NOT NULL GROUP BY part"""

_RUNNING = " AND j.state + 0 = 2 @fast@ FOR UPDATE OF j SKIP LOCKED"
_FENCE = """ AND locked.claims = given.claims
                                         AND locked.lease_id = given.lease_id"""
# Whatever its state is; who holds it is waited for.
_ANY_STATE = " ORDER BY j.id FOR UPDATE OF j"
_LEASES_TOLD = """UNION ALL
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $10::text, 'l', json_agg(lease_id))::text)::text
    FROM (SELECT lease_id, (row_number() OVER () - 1) / 150 AS part
          FROM (SELECT DISTINCT lease_id FROM gone WHERE state = 2 AND lease_id IS NOT NULL) AS owner) AS parts
    WHERE $10::text IS NOT NULL GROUP BY part"""
_LEASES = "UNION ALL SELECT NULL, lease_id::text, NULL FROM gone WHERE state = 2 AND lease_id IS NOT NULL\n"

# Where a chain was asked to end: what would go on is cancelled, and so are failures that yield. (`gives_way`, in SQL.)
_GIVES_WAY = "locked.asked IS NOT NULL AND (given.kind >= 8 OR (given.kind = 6 AND given.yields))"
_CANCELLED_ENTRY = f"""json_build_object('attempt', 0, 'at', clock_timestamp(), 'type', '{CANCELLED}',
               'message', coalesce(nullif(locked.asked, ''), '{WITHOUT_REASON}'), 'traceback', '')::text"""
_ARCHIVE = archive(
    state="matched.kind",
    lease_id="@lease@",
    outcome="matched.outcome",
    output="matched.output",
    error="matched.error",
    settled_column="@settled_column@",
    settled="@settled@",
)
_LOGGED = logged_by(
    """log_settled(ARRAY(SELECT id FROM archived), ARRAY(SELECT id FROM returned), $1::uuid[], $4::smallint[], $9::text[],
                                 @orphaned@)"""
)
# `state + 0` and `lease_id + 0`: a condition that matches the lease index would make the planner walk its dead entries.
_SETTLE = f"""WITH @ended@given AS MATERIALIZED (
    SELECT * FROM unnest($1::uuid[], $2::integer[], $3::bigint[], $4::smallint[], $5::text[], $6::text[], $7::float8[],
                         $8::timestamptz[], $9::text[]@given@)
        AS given(id, claims, lease_id, kind, output, outcome, delay, run_at, error@yields@)
    WHERE @owner@
), locked AS MATERIALIZED (
    SELECT j.id, j.claims, coalesce(j.lease_id, 0) AS lease_id@asked@ FROM @schema@.job j
    WHERE j.id = ANY(ARRAY(SELECT id FROM given))@lock@
), matched AS MATERIALIZED (
    SELECT @matched@ FROM given JOIN locked ON locked.id = given.id@fence@
), @next@gone AS (
    DELETE FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM matched WHERE kind < 8@kept@)) RETURNING j.*
), archived AS (
    {_ARCHIVE}
    FROM gone JOIN matched ON matched.id = gone.id
    RETURNING id, chain_id, state
), @continued@back AS MATERIALIZED (
    SELECT * FROM matched WHERE kind >= 8
), returned AS (
    UPDATE @schema@.job j
    SET state = 1, lease_id = @sign@ j.lease_id,
        run_at = greatest(nullif(j.run_at, 'infinity'), clock_timestamp(),
                          coalesce(back.run_at, now() + back.delay * interval '1 second', now())),
        attempt = CASE back.kind WHEN 9 THEN greatest(j.attempt, 1) - 1 ELSE j.attempt END,
        reschedules = CASE back.kind WHEN 9 THEN least(j.reschedules, 2147483646) + 1 ELSE j.reschedules END,
        errors = {history("j.errors", "back.error")}
    FROM back WHERE back.id = j.id
    RETURNING j.id, j.type, greatest(0, extract(epoch FROM j.run_at - now()))::float8 AS delay
), told AS MATERIALIZED (
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $10::text, 'd', due.delay, 't',
               CASE WHEN octet_length(due.types::text) < 7000 THEN due.types END)::text)::text AS done
    FROM (SELECT json_agg(DISTINCT type) AS types, min(delay) AS delay FROM @due@ WHERE delay <= 3600) AS due
    WHERE $10::text IS NOT NULL AND due.types IS NOT NULL
    UNION ALL
    SELECT pg_catalog.pg_notify('@channel@', json_build_object('o', $10::text, 'f', json_agg(id))::text)::text
    FROM (SELECT coalesce(chain_id, id) AS id, (row_number() OVER () - 1) / 150 AS part FROM archived@ends@) AS parts
    WHERE $10::text IS NOT NULL
      AND EXISTS (SELECT FROM @schema@.subscriber s WHERE s.expires_at > now() AND s.id::text <> $10::text)
    GROUP BY part
    @told@
    UNION ALL {_LOGGED}
)
SELECT id, chain_id::text AS type, NULL::float8 AS delay FROM archived
UNION ALL SELECT id, type, delay FROM returned
@went_on@@asks@@leases@UNION ALL SELECT NULL, NULL, NULL FROM told WHERE done IS NOT NULL"""


@lru_cache(maxsize=16)
def outcome_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name: the same object each time, so that nothing may be added to it.

    `settle` and `settle_orphaned` are the fast ones. Each of the others has `_slowly` in its name, and one parameter more, the
    last, which says what yields to a request to end: `settle_held_slowly` is for
    claims whose rows this very transaction has locked, `settle_end_slowly` for jobs that anybody ends. With `_continued` they
    serve batches in which chains go on, and have further parameters for that, before the last one.
    """
    claim = {"@lock@": _RUNNING, "@fence@": _FENCE, "@ended@": "", "@told@": "", "@leases@": "", "@orphaned@": "false"}
    owned = {**claim, "@owner@": _OWNED, "@lease@": " gone.lease_id", "@sign@": ""}
    orphaned = {
        **claim,
        "@owner@": _ORPHANED,
        "@lease@": "- gone.lease_id",
        "@sign@": "-",
        "@ended@": _ENDED,
        "@orphaned@": "true",
        "@told@": _ENDED_TOLD,
        "@leases@": "UNION ALL SELECT NULL, id::text, NULL FROM ended\n",
    }
    ended = {
        **claim,
        "@lock@": _ANY_STATE,
        "@fence@": "",
        "@owner@": "true",
        "@lease@": "NULL",
        "@sign@": "",
        "@told@": _LEASES_TOLD,
        "@leases@": _LEASES,
    }
    fast = {"@fast@": "AND NOT j.marked", "@asked@": "", "@given@": "", "@yields@": "", "@matched@": "given.*", "@asks@": ""}
    fast |= {"@settled_column@": "", "@settled@": ""}
    slow, slow_continued = _slow(11), _slow(29)
    return {
        name: schema.render(_filled({**parts, **way}))
        for name, parts, way in (
            ("settle", {**owned, **PLAIN_PARTS}, fast),
            ("settle_continued", {**owned, **CONTINUED_PARTS}, fast),
            ("settle_orphaned", {**orphaned, **PLAIN_PARTS}, fast),
            ("settle_orphaned_continued", {**orphaned, **CONTINUED_PARTS}, fast),
            ("settle_slowly", {**owned, **PLAIN_PARTS}, slow),
            ("settle_slowly_continued", {**owned, **HELD_PARTS}, slow_continued),
            ("settle_orphaned_slowly", {**orphaned, **PLAIN_PARTS}, slow),
            ("settle_orphaned_slowly_continued", {**orphaned, **HELD_PARTS}, slow_continued),
            ("settle_held_slowly", {**owned, "@owner@": "true", **PLAIN_PARTS}, slow),
            ("settle_held_slowly_continued", {**owned, "@owner@": "true", **HELD_PARTS}, slow_continued),
            ("settle_end_slowly", {**ended, **PLAIN_PARTS}, slow),
            ("settle_end_slowly_continued", {**ended, **HELD_PARTS}, slow_continued),
        )
    }


def _slow(yielding: int) -> dict[str, str]:
    """What stands for the marks in a slow statement, whose last parameter has this number."""
    return {
        "@fast@": "",
        "@asked@": f", {ASKED} AS asked",
        "@given@": f", ${yielding}::boolean[]",
        "@yields@": ", yields",
        "@matched@": f"""given.id, given.claims, given.lease_id, given.output, given.outcome, given.delay, given.run_at,
           locked.asked, CASE WHEN {_GIVES_WAY} THEN given.kind END AS settled_kind,
           CASE WHEN {_GIVES_WAY} THEN 7 ELSE given.kind END AS kind,
           CASE WHEN {_GIVES_WAY} AND given.error IS NULL THEN {_CANCELLED_ENTRY} ELSE given.error END AS error""",
        "@settled_column@": ", settled_kind",
        "@settled@": ", matched.settled_kind",
        "@asks@": """UNION ALL SELECT id, asked, -2 FROM matched WHERE asked IS NOT NULL
UNION ALL SELECT id, NULL, -3 FROM gone WHERE webhook IS NOT NULL
""",
    }


def _filled(parts: dict[str, str]) -> str:
    template = _SETTLE
    for mark, text in parts.items():
        template = template.replace(mark, text)
    return template


def outcome_arguments(settlements: Sequence[Settlement], note: str | None) -> list[Any]:
    """The first ten arguments of each of these statements: a column each, and who tells others (None: nobody).

    Raises:
        RowRejected: One can't be stored.
    """
    try:
        if not all(each.delay is None or isfinite(each.delay) for each in settlements):
            raise ValueError("an infinite delay")
        if any(each.run_at is not None and each.run_at.utcoffset() is None for each in settlements):
            raise ValueError("run_at has no time zone")
        return [
            [each.id for each in settlements],
            [each.claims for each in settlements],
            [each.lease_id for each in settlements],
            [int(each.kind) for each in settlements],
            [None if each.output is None else each.output.decode() for each in settlements],
            unless_empty([each.outcome for each in settlements]),
            unless_empty([each.delay for each in settlements]),
            unless_empty([each.run_at for each in settlements]),
            unless_empty([None if each.error is None else each.error.encode().decode() for each in settlements]),
            note,
        ]
    except (ValueError, TypeError) as error:
        raise RowRejected(f"an outcome can't be stored: {error}") from None
