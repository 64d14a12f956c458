"""The SQL, in one place.

Batches go in as one JSON array and come out as one, so that a statement is one step for any number of jobs: each step
gives up Python's interpreter lock and has to get it back from a busy event loop.
"""

from __future__ import annotations

__all__ = [
    "ARCHIVE_OWNED",
    "CLAIM_PICK",
    "CLAIM_TAKE",
    "DELETE_LIVE",
    "JOB_COLUMNS",
    "LEASE_VALID",
    "NOW",
    "SETTLE_FATE",
    "SETTLE_OWNED",
    "SETTLE_OWNED_ORPHANED",
    "SETTLE_PENDING",
]

NOW = "(CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)"
"""Microseconds since 1970 by the database's clock, which counts milliseconds."""

LEASE_END = "(lease.expires_at + iif(lease.boot = :boot AND abs(:clock - lease.clock) > 500000, :clock - lease.clock, 0))"
"""When a lease ends: a wall clock that was set since the lease's last renewal is set back in the comparison."""

LEASE_VALID = f"{LEASE_END} > {NOW}"

# -- producers ----------------------------------------------------------------------------------------------------

INSERT_LOOK = f"""
SELECT {NOW},
       (SELECT json_group_array(id) FROM (
           SELECT id FROM job WHERE id IN (SELECT value FROM json_each(:ids))
           UNION ALL SELECT id FROM archive WHERE id IN (SELECT value FROM json_each(:ids)))),
       (SELECT json_group_object(unique_key, CAST(id AS TEXT)) FROM job
        WHERE unique_key IS NOT NULL AND unique_key IN (SELECT value FROM json_each(:keys)))
"""

INSERT = """
INSERT INTO job (id, type, priority, state, run_at, created_at, expires_at, max_attempts, retry, timeout, key, unique_key,
                 tags, metadata, payload)
SELECT n ->> 0, n ->> 1, n ->> 2, 1, n ->> 3, :now, n ->> 4, n ->> 5, n ->> 6, n ->> 7, n ->> 8, n ->> 9,
       n ->> 10, n ->> 11, n ->> 12
FROM (SELECT value AS n FROM json_each(:rows))
"""

# -- workers ------------------------------------------------------------------------------------------------------

_CLAIMED = """job.id, CAST(job.type AS TEXT), CAST(job.payload AS TEXT), job.priority, CAST(job.attempt AS INTEGER),
    job.claims, job.lease_id, job.created_at, job.run_at, job.started_at, CAST(job.max_attempts AS INTEGER),
    CAST(job.retry AS TEXT), CAST(job.timeout AS REAL), job.expires_at, job.reschedules, CAST(job.key AS TEXT),
    CAST(job.tags AS TEXT), CAST(job.metadata AS TEXT)"""
"""Cast, where a strange value can be read as something harmless."""

CLAIM_PICK = f"""
SELECT {NOW},
    (SELECT json_group_array(asked.value) FROM json_each(:leases) AS asked
     WHERE NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = asked.value AND {LEASE_VALID})),
    (SELECT json_group_array(json_array({_CLAIMED})) FROM (
        SELECT head.value ->> 1 AS id
        FROM json_each(:types) AS lane, json_each('[1,2,3,4]') AS urgency, json_each((
            SELECT json_group_array(json_array(run_at, id)) FROM (
                SELECT run_at, id FROM job INDEXED BY job_ready
                WHERE state = 1 AND type = lane.value AND priority = urgency.value AND run_at <= {NOW}
                ORDER BY run_at, id LIMIT :limit))) AS head
        ORDER BY urgency.value, head.value ->> 0, head.value ->> 1 LIMIT :limit) AS picked
     CROSS JOIN job ON job.id = picked.id)
"""
"""A lane for each type and priority, in its own range of the index: no other backlog is looked at."""

CLAIM_TAKE = """
UPDATE job SET state = 2, attempt = attempt + 1, claims = claims + 1, lease_id = :lease, started_at = :now
WHERE id IN (SELECT value FROM json_each(:ids))
"""

CLAIM_GIVE = """
UPDATE job SET lease_id = taken.value ->> 1 FROM json_each(:rows) AS taken WHERE job.id = taken.value ->> 0
"""
"""For the few types that have a lease of their own."""

_OWNED = """
SELECT {now}, (SELECT json_group_array(json_array(job.id, CAST(job.type AS TEXT)))
FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
WHERE job.state = 2 AND job.claims = s.value ->> 1 AND coalesce(job.lease_id, 0) = s.value ->> 2 AND {lease})
"""

SETTLE_OWNED = _OWNED.format(now=NOW, lease="EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id)")
SETTLE_OWNED_ORPHANED = _OWNED.format(
    now=NOW, lease=f"NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id AND {LEASE_VALID})"
)

_ERRORS = """CASE WHEN s.value ->> 5 IS NULL THEN job.errors ELSE (
    SELECT json_insert(CASE WHEN json_array_length(e) >= 20 THEN json_remove(e, '$[0]') ELSE e END,
                       '$[#]', json(s.value ->> 5))
    FROM (SELECT iif(json_valid(job.errors) AND typeof(job.errors) = 'text' AND json_type(job.errors) = 'array',
                     job.errors, '[]') AS e)) END"""

ARCHIVE_OWNED = f"""
INSERT OR REPLACE INTO archive (id, type, priority, state, run_at, created_at, started_at, finished_at, expires_at, attempt,
                     max_attempts, claims, reschedules, settled_claims, settled_lease, settled_kind, chain_id, position,
                     key, unique_key, trace, retry, timeout, tags, metadata, errors, outcome, output, payload)
SELECT job.id, job.type, job.priority, s.value ->> 3, job.run_at, job.created_at, job.started_at, :now, job.expires_at,
       job.attempt, job.max_attempts, job.claims, job.reschedules, job.claims, s.value ->> 2,
       (s.value ->> 3) + :orphaned, job.chain_id, job.position, job.key, job.unique_key, job.trace, job.retry,
       job.timeout, job.tags, job.metadata, {_ERRORS}, s.value ->> 6, s.value ->> 7, job.payload
FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
"""
"""In place of an earlier end of the same job: somebody may have copied it back from the archive."""

DELETE_LIVE = "DELETE FROM job WHERE id IN (SELECT value ->> 0 FROM json_each(:rows))"

SETTLE_PENDING = f"""
UPDATE job SET state = 1, lease_id = NULL, run_at = s.value ->> 4, errors = {_ERRORS},
    attempt = job.attempt - (s.value ->> 3 = 9), reschedules = job.reschedules + (s.value ->> 3 = 9),
    settled_claims = job.claims, settled_lease = s.value ->> 2, settled_kind = (s.value ->> 3) + :orphaned
FROM json_each(:rows) AS s WHERE job.id = s.value ->> 0
"""

SETTLE_FATE = """
SELECT json_group_array(json_array(s.key, s.value ->> 0,
    CAST(job.state AS INTEGER), CAST(job.claims AS INTEGER), CAST(job.settled_claims AS INTEGER),
    CAST(job.settled_lease AS INTEGER), CAST(job.settled_kind AS INTEGER), CAST(archive.state AS INTEGER),
    CAST(archive.claims AS INTEGER), CAST(archive.settled_claims AS INTEGER), CAST(archive.settled_lease AS INTEGER),
    CAST(archive.settled_kind AS INTEGER)))
FROM json_each(:rows) AS s
LEFT JOIN job ON job.id = s.value ->> 0 LEFT JOIN archive ON archive.id = s.value ->> 0
"""

RELEASE_OWNED = f"""
SELECT {NOW}, (SELECT json_group_array(json_array(job.id, CAST(job.type AS TEXT)))
FROM json_each(:rows) AS s CROSS JOIN job ON job.id = s.value ->> 0
WHERE job.state = 2 AND job.claims = s.value ->> 1 AND job.lease_id = :lease
  AND EXISTS (SELECT 1 FROM lease WHERE lease.id = :lease))
"""

RELEASE_ALL = f"""
SELECT {NOW}, (SELECT json_group_array(json_array(CAST(id AS TEXT), CAST(type AS TEXT))) FROM job INDEXED BY job_running
WHERE state = 2 AND lease_id = :lease)
"""

RELEASE = """
UPDATE job SET state = 1, lease_id = NULL, attempt = attempt - 1, run_at = :now,
    started_at = iif(attempt <= 1 AND reschedules = 0, NULL, started_at)
WHERE id IN (SELECT value ->> 0 FROM json_each(:rows))
"""

# -- leases -------------------------------------------------------------------------------------------------------

LEASE_OPEN = f"""
INSERT INTO lease (id, worker, expires_at, clock, boot, extra)
VALUES (:lease, :worker, {NOW} + :duration, :clock, :boot, :extra)
"""

LEASE_RENEW = f"UPDATE lease SET expires_at = {NOW} + :duration, clock = :clock, boot = :boot WHERE id = :lease"

LEASE_HOLDS = """
SELECT json_group_array(json_array(id, claims)) FROM job INDEXED BY job_running WHERE state = 2 AND lease_id = :lease
"""

LEASE_OLDEST_EXPIRED = f"""
SELECT id FROM lease WHERE {LEASE_END} <= {NOW} - :grace AND id NOT IN (SELECT value FROM json_each(:own))
ORDER BY expires_at, id LIMIT 1
"""

LEASE_DELETE = "DELETE FROM lease WHERE id = :lease"

LEASES_DELETE = "DELETE FROM lease WHERE id IN (SELECT value FROM json_each(:leases))"

ORPHANS = f"""
SELECT {NOW}, (SELECT json_group_array(json_array({_CLAIMED})) FROM (
    SELECT id FROM job INDEXED BY job_running
    WHERE state = 2 AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id)
      AND coalesce(lease_id, 0) NOT IN (SELECT value FROM json_each(:own))
    ORDER BY started_at, id LIMIT :limit) AS orphan CROSS JOIN job ON job.id = orphan.id)
"""

NEXT_DUE = f"""
WITH RECURSIVE holder(id) AS (
    SELECT (SELECT min(lease_id) FROM job INDEXED BY job_running WHERE state = 2)
    UNION ALL
    SELECT (SELECT min(lease_id) FROM job INDEXED BY job_running WHERE state = 2 AND lease_id > holder.id)
    FROM holder WHERE holder.id IS NOT NULL)
SELECT
    (SELECT min(due) FROM (
        SELECT (SELECT run_at FROM job INDEXED BY job_ready
                WHERE state = 1 AND type = lane.value AND priority = urgency.value ORDER BY run_at LIMIT 1) AS due
        FROM json_each(:types) AS lane, json_each('[1,2,3,4]') AS urgency)
     WHERE due < 9e999) - {NOW},
    (SELECT min({LEASE_END}) FROM lease WHERE id NOT IN (SELECT value FROM json_each(:own))) - {NOW},
    EXISTS (SELECT 1 FROM job INDEXED BY job_running WHERE state = 2 AND lease_id IS NULL)
    OR EXISTS (SELECT 1 FROM holder WHERE id IS NOT NULL AND id NOT IN (SELECT value FROM json_each(:own))
            AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = holder.id))
"""
"""Of the running jobs only their leases are looked at, from one to the next in the index."""

# -- looking and operating ----------------------------------------------------------------------------------------

JOB_COLUMNS = """id, type, state, priority, payload, created_at, run_at, started_at, {finished_at}, attempt, max_attempts,
    {worker}, {output}, {outcome}, errors, key, tags, metadata, timeout, expires_at, reschedules"""

LIVE = "SELECT " + JOB_COLUMNS.format(
    finished_at="NULL",
    worker="(SELECT worker FROM lease WHERE lease.id = job.lease_id AND job.state = 2)",
    output="NULL",
    outcome="NULL",
)

ARCHIVED = "SELECT " + JOB_COLUMNS.format(finished_at="finished_at", worker="NULL", output="output", outcome="outcome")

FETCH = f"""
{ARCHIVED}, {NOW} FROM archive WHERE id IN (SELECT value FROM json_each(:ids))
UNION ALL {LIVE}, {NOW} FROM job WHERE id IN (SELECT value FROM json_each(:ids))
"""
"""Live ones last: they count where somebody has copied a job back from the archive."""

RETRY_INSERT = """
INSERT INTO job (id, type, priority, state, run_at, created_at, max_attempts, claims, chain_id, position, key, unique_key,
                 trace, retry, timeout, tags, metadata, errors, payload)
SELECT id, type, priority, 1, :now, created_at, max_attempts, claims, chain_id, position, key, unique_key,
       trace, retry, timeout, tags, metadata, errors, payload
FROM archive WHERE id = :id
"""

# -- rows that can't be read --------------------------------------------------------------------------------------

_ID = "iif(:blob, :raw, CAST(:raw AS TEXT))"
"""An id of any kind, as its bytes."""

HEAD_IDS = f"""
SELECT typeof(id) = 'blob', CAST(id AS BLOB), run_at FROM job INDEXED BY job_ready
WHERE state = 1 AND type = :type AND priority = :priority AND run_at <= {NOW} ORDER BY run_at, id LIMIT :limit
"""

ORPHAN_IDS = """
SELECT typeof(id) = 'blob', CAST(id AS BLOB) FROM job INDEXED BY job_running
WHERE state = 2 AND NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = job.lease_id)
  AND coalesce(lease_id, 0) NOT IN (SELECT value FROM json_each(:own))
ORDER BY started_at, id LIMIT :limit
"""

HELD_IDS = """
SELECT typeof(id) = 'blob', CAST(id AS BLOB) FROM job INDEXED BY job_running WHERE state = 2 AND lease_id = :lease
"""

ODD_READ = f"SELECT {_CLAIMED}, job.state FROM job WHERE id = {_ID}"

LEASES_LOOK = f"""
SELECT {NOW}, (SELECT json_group_array(asked.value) FROM json_each(:leases) AS asked
               WHERE NOT EXISTS (SELECT 1 FROM lease WHERE lease.id = asked.value AND {LEASE_VALID}))
"""


def _sound(column: str, instead: str, condition: str = "true") -> str:
    return f"iif(typeof({column}) = 'integer' AND {condition}, {column}, {instead})"


_COUNTER = "{0} BETWEEN 0 AND 2147483646"

ODD_ARCHIVE = f"""
INSERT OR REPLACE INTO archive (id, type, priority, state, run_at, created_at, started_at, finished_at, expires_at, attempt,
    max_attempts, claims, reschedules, chain_id, position, key, unique_key, trace, retry, timeout, tags, metadata, errors,
    payload)
SELECT :id, CAST(type AS TEXT), {_sound("priority", "2")}, 6, {_sound("run_at", ":now")}, {_sound("created_at", ":now")},
    {_sound("started_at", "NULL")}, :now, {_sound("expires_at", "NULL")},
    {_sound("attempt", "0", _COUNTER.format("attempt"))}, {_sound("max_attempts", "NULL")},
    {_sound("claims", "1073741823", _COUNTER.format("claims"))},
    {_sound("reschedules", "0", _COUNTER.format("reschedules"))},
    CAST(chain_id AS TEXT), {_sound("position", "0")}, CAST(key AS TEXT), CAST(unique_key AS TEXT), CAST(trace AS TEXT),
    CAST(retry AS TEXT), iif(typeof(timeout) = 'real' AND abs(timeout) < 9e999, timeout, NULL), CAST(tags AS TEXT),
    CAST(metadata AS TEXT), (
        SELECT json_insert(CASE WHEN json_array_length(e) >= 20 THEN json_remove(e, '$[0]') ELSE e END, '$[#]', json(:error))
        FROM (SELECT iif(json_valid(job.errors) AND typeof(job.errors) = 'text' AND json_type(job.errors) = 'array',
                         job.errors, '[]') AS e)),
    CAST(payload AS TEXT)
FROM job WHERE id = {_ID} AND state = :state AND (:state = 1 OR lease_id IS :lease)
"""
"""As a failed job that can be read, and retried. Its fence is beyond all that were given out."""

ODD_DELETE = f"DELETE FROM job WHERE id = {_ID}"
