-- oldest code: 7
-- A unique key that is kept only until its job is started is free with the first claim: the index no longer counts such a row.
-- It keeps its key in the index, beside its id, so that code from before goes on finding keys with it: by a row that has been
-- started too, for that code. Such code also gives the key of a started job to the next step of its chain, and refuses to do
-- so where another job has taken the key meanwhile: upgrade all workers before anybody enqueues with until="started".
-- The index is made anew in about a second for a million unfinished jobs with unique keys, in which nobody else writes.

ALTER TABLE job ADD COLUMN until_started INTEGER NOT NULL DEFAULT 0;

DROP INDEX job_unique;
CREATE UNIQUE INDEX job_unique ON job (unique_key, CASE WHEN claims = 0 OR NOT until_started THEN '' ELSE id END)
    WHERE unique_key IS NOT NULL;

-- Until when a unique key is kept for a chain that has completed: only of jobs that were enqueued with a window.
CREATE TABLE dedup (
    key        TEXT    NOT NULL PRIMARY KEY CHECK (typeof(key) = 'text'),      -- as job.unique_key
    chain_id   TEXT    NOT NULL CHECK (typeof(chain_id) = 'text'),
    expires_at INTEGER NOT NULL CHECK (typeof(expires_at) = 'integer')
) WITHOUT ROWID;

CREATE INDEX dedup_expiring ON dedup (expires_at);
