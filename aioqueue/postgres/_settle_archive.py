"""How a live row gets into the archive, and how an error gets into a row's history."""

from __future__ import annotations

from aioqueue.store_rules._history import KEPT_ERRORS

__all__ = ["KEPT_KEY", "archive", "history"]

KEPT_KEY = "CASE WHEN NOT gone.until_started THEN gone.unique_key END"
"""The unique key that a row of `gone` takes along: one that was only its own until it started stays behind."""

# An array that somebody wrote with another shape can't be appended to: it's made flat first.
_HISTORY = f"""CASE WHEN {{error}} IS NULL THEN {{errors}}
                WHEN coalesce(array_ndims({{errors}}), 1) = 1 AND coalesce(array_lower({{errors}}, 1), 1) = 1
                THEN ({{errors}} || {{error}}::json)[greatest(1, cardinality({{errors}}) + 2 - {KEPT_ERRORS}):]
                ELSE array_append(ARRAY(SELECT unnest({{errors}}) LIMIT {KEPT_ERRORS - 1}), {{error}}::json) END"""

_ARCHIVE = """INSERT INTO @schema@.archive (id, type, priority, run_at, state, attempt, claims, lease_id, max_attempts,
        reschedules, timeout, chain_id, position, key, unique_key, created_at, started_at, finished_at, expires_at, outcome,
        trace, tags, retry, metadata, payload, output, errors, keep, webhook, origin, purge_at{settled_column})
    SELECT gone.id, gone.type, gone.priority, gone.run_at, {state}, gone.attempt, gone.claims, {lease_id},
           gone.max_attempts, gone.reschedules, gone.timeout, gone.chain_id, gone.position, gone.key, {KEPT_KEY},
           gone.created_at, gone.started_at, now(), gone.expires_at, {outcome}, gone.trace, gone.tags, gone.retry,
           gone.metadata, gone.payload, {output}::json,
           {errors}, gone.keep, gone.webhook, gone.origin,
           CASE WHEN gone.keep IS NOT NULL THEN now() + least(greatest(gone.keep, 0), 3e9) * interval '1 second' END{settled}"""


def history(errors: str, error: str) -> str:
    """An expression: the errors with one more, if there is one, and of them the newest.

    Arguments:
        errors: The column.
        error: JSON as text, or NULL.
    """
    return _HISTORY.format(errors=errors, error=error)


def archive(
    *, state: str, lease_id: str, outcome: str, output: str, error: str, settled_column: str = "", settled: str = ""
) -> str:
    """The head of a statement that stores rows of `gone`, which were deleted from the live ones, in the archive."""
    return _ARCHIVE.format(
        KEPT_KEY=KEPT_KEY,
        state=state,
        lease_id=lease_id,
        outcome=outcome,
        output=output,
        errors=history("gone.errors", error),
        settled_column=settled_column,
        settled=settled,
    )
