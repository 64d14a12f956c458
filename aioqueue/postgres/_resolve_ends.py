"""How chains that others wait for have ended: found in the archive, and stored once for all of them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson

from aioqueue.store_rules._causes import cause_of
from aioqueue.vocabulary._attempt_error import AttemptError
from aioqueue.vocabulary._blockers import ChainEnd

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence
    from uuid import UUID

    from aioqueue.postgres._connections_driver import Connection
    from aioqueue.postgres._options_schema import Schema

__all__ = ["ends_statements", "error_of", "store_deleted", "store_ends", "store_found_ends"]

# A continued step isn't an end, and of a chain with a live step there is none.
_FOUND = """SELECT last.chain_id, step.id, step.state, step.type, step.error
FROM (SELECT given.id AS chain_id,
             coalesce((SELECT a.id FROM @schema@.archive a WHERE a.chain_id = given.id ORDER BY a.position DESC LIMIT 1),
                      given.id) AS id
      FROM unnest($1::uuid[]) AS given(id)) AS last
CROSS JOIN LATERAL (
    SELECT a.id, a.state, a.type, a.finished_at,
           CASE WHEN a.state <> 4 THEN a.errors[array_upper(a.errors, 1)]::text END AS error
    FROM @schema@.archive a WHERE a.id = last.id ORDER BY a.finished_at DESC LIMIT 1) AS step
WHERE step.state IN (4, 6, 7)
  AND (SELECT true FROM @schema@.job j WHERE j.chain_id = last.chain_id LIMIT 1) IS NULL
  AND (SELECT true FROM @schema@.job j WHERE j.id = last.chain_id LIMIT 1) IS NULL"""

# Written also where it's there: that locks it, so that it isn't forgotten, nor told of by others meanwhile.
_STORED = """INSERT INTO @schema@.chain_end AS e (chain_id, state, type, output, cause)
SELECT given.chain_id, step.state, step.type, step.output, CASE WHEN step.state <> 4 THEN @cause@ END
FROM unnest($1::uuid[], $2::uuid[], $3::text[]) AS given(chain_id, id, cause)
CROSS JOIN LATERAL (
    SELECT a.state, a.type, CASE WHEN a.state = 4 THEN a.output END AS output
    FROM @schema@.archive a WHERE a.id = given.id ORDER BY a.finished_at DESC LIMIT 1) AS step
WHERE step.state IN (4, 6, 7) @needed@
ORDER BY given.chain_id
ON CONFLICT (chain_id) DO UPDATE SET state = excluded.state, type = excluded.type, output = @output@,
    cause = excluded.cause, take_along = false, ended_at = @ended_at@
RETURNING chain_id"""
_AWAITED = "(SELECT true FROM @schema@.blocker b WHERE b.chain_id = given.chain_id LIMIT 1)"

_DELETED = f"""INSERT INTO @schema@.chain_end AS e (chain_id, state, type, cause, take_along)
SELECT given.chain_id, 8, given.type, given.cause, $4::boolean
FROM unnest($1::uuid[], $2::text[], $3::text[]) AS given(chain_id, type, cause)
WHERE {_AWAITED}
ORDER BY given.chain_id
ON CONFLICT (chain_id) DO UPDATE SET @fields@ take_along = excluded.take_along
RETURNING chain_id"""
_GONE = "state = 8, type = coalesce(excluded.type, e.type), output = NULL, cause = excluded.cause,"


def ends_statements(schema: Schema) -> dict[str, str]:
    """All statements of this module, by name."""
    # A large output isn't written again for each that comes to wait for it.
    kept = "CASE e.state WHEN excluded.state THEN e.output ELSE excluded.output END"
    whole = {"@cause@": "given.cause", "@ended_at@": "e.ended_at", "@output@": kept}
    behind = {
        "@cause@": "step.type || ' ' || given.chain_id || ': ' || given.cause",
        "@ended_at@": "excluded.ended_at",
        "@output@": "excluded.output",
    }
    templates = {
        "ends_found": _FOUND,
        "ends_deleted": _DELETED.replace("@fields@", _GONE),
        "ends_removed": _DELETED.replace("@fields@", ""),
    }
    for name, marks in (
        ("ends_stored", {**whole, "@needed@": ""}),
        ("ends_needed", {**whole, "@needed@": f"AND {_AWAITED}"}),
        ("ends_settled", {**behind, "@needed@": f"AND {_AWAITED}"}),
    ):
        template = _STORED
        for mark, text in marks.items():
            template = template.replace(mark, text)
        templates[name] = template
    return {name: schema.render(template) for name, template in templates.items()}


async def store_found_ends(
    connection: Connection, statements: dict[str, str], chains: Collection[UUID], *, needed: bool = False
) -> set[UUID]:
    """Look which of these chains have ended, and store and lock how, within the connection's open transaction.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        chains: The chains' own ids.
        needed: Whether only those are stored for which somebody waits as far as this transaction sees.

    Returns:
        Those that have ended, and whose ends are stored.
    """
    if not chains:
        return set()
    rows = await connection.fetch(statements["ends_found"], list(chains))
    if not rows:
        return set()
    causes = [cause_of(ChainEnd(state), type_name, chain_id, error_of(text)) for chain_id, _, state, type_name, text in rows]
    name = "ends_needed" if needed else "ends_stored"
    stored = await connection.fetch(statements[name], [row[0] for row in rows], [row[1] for row in rows], causes)
    return {row[0] for row in stored}


async def store_ends(connection: Connection, statements: dict[str, str], ends: Sequence[tuple[UUID, UUID, str]]) -> set[UUID]:
    """Store how these chains have ended, if others wait for them: which ended in an earlier statement of this transaction.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        ends: For each the chain, its last step, and what `how_it_ended` says; empty for one that has completed.

    Returns:
        Those for which somebody waits.
    """
    if not ends:
        return set()
    columns = [list(column) for column in zip(*ends, strict=True)]
    return {row[0] for row in await connection.fetch(statements["ends_settled"], *columns)}


async def store_deleted(
    connection: Connection,
    statements: dict[str, str],
    chains: Mapping[UUID, str | None],
    *,
    take_along: bool = False,
    ended: bool = False,
) -> set[UUID]:
    """Store that these chains are gone, if others wait for them, within the connection's open transaction.

    Arguments:
        connection: In a transaction.
        statements: Those of this module, and maybe others.
        chains: The types of their last steps, where they're known, by chain.
        take_along: Whether those that wait for them are to be deleted too.
        ended: Whether they had ended before: then those that were told of that, and haven't been started, keep that end.

    Returns:
        Those for which somebody waits.
    """
    if not chains:
        return set()
    causes = [cause_of(ChainEnd.DELETED, type_name, chain_id) for chain_id, type_name in chains.items()]
    arguments = list(chains), list(chains.values()), causes, take_along
    name = "ends_removed" if ended else "ends_deleted"
    return {row[0] for row in await connection.fetch(statements[name], *arguments)}


def error_of(text: str | None) -> AttemptError | None:
    """Read an entry of a history, as text."""
    if text is None:
        return None
    try:
        value: object = orjson.loads(text)
    except orjson.JSONDecodeError:
        value = text
    return AttemptError.decode(value)
