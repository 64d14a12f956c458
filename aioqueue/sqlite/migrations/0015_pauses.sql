-- oldest code: 7
-- What people have said isn't to be started for now. Code from before doesn't look at it: upgrade all workers before the first pause.
-- The new index of jobs is made by one walk over those that aren't finished: a few seconds for a million, in which nobody else writes.

CREATE TABLE pause (
    target TEXT    NOT NULL CHECK (target IN ('all', 'type', 'key')),
    value  TEXT    NOT NULL CHECK (typeof(value) = 'text'),          -- the type's name, or the key; empty for all
    by     TEXT    NOT NULL CHECK (typeof(by) = 'text'),
    reason TEXT    NOT NULL CHECK (typeof(reason) = 'text'),
    at     INTEGER NOT NULL CHECK (typeof(at) = 'integer'),
    until  INTEGER CHECK (until IS NULL OR typeof(until) = 'integer'),
    PRIMARY KEY (target, value, by)
) WITHOUT ROWID;

CREATE INDEX pause_until ON pause (until) WHERE until IS NOT NULL;

-- Jobs that are held though they wait for no chain, such as those with a paused key; `gate` says what holds them.
CREATE INDEX job_parked ON job (type, priority, run_at, id) WHERE state = 0 AND open_blockers = 0;

DROP VIEW jobs;
CREATE VIEW jobs AS
SELECT id, type,
       CASE state WHEN 0 THEN CASE WHEN open_blockers = 0 THEN 'held' ELSE 'blocked' END WHEN 2 THEN 'running' WHEN 1 THEN
           CASE WHEN run_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000
                THEN 'ready' ELSE 'scheduled' END
           ELSE 'unknown' END AS state,
       priority, attempt, max_attempts, key, tags, metadata, payload, NULL AS output, NULL AS outcome, errors,
       (SELECT worker FROM lease WHERE lease.id = job.lease_id AND job.state = 2) AS worker,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', run_at / 1000000.0, 'unixepoch') AS run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') AS started_at,
       NULL AS finished_at,
       coalesce(chain_id, id) AS chain_id, position, CASE WHEN state = 0 AND open_blockers = 0 THEN gate END AS held_by, origin
FROM job
UNION ALL
SELECT id, type,
       CASE state WHEN 4 THEN 'completed' WHEN 5 THEN 'continued' WHEN 6 THEN 'failed' WHEN 7 THEN 'cancelled'
                  ELSE 'unknown' END,
       priority, attempt, max_attempts, key, tags, metadata, payload, output, outcome, errors,
       NULL,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', run_at / 1000000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch'),
       strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch'),
       coalesce(chain_id, id), position, NULL, origin
FROM archive;
