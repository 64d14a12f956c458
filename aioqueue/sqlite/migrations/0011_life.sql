-- oldest code: 7
-- What is kept beside jobs: their phases and progress, what their handlers have logged, how long they're kept, whom to tell of
-- their ends, and who ran them. Code from before keeps nothing of it, and removes none of it with a job.

-- Seconds that a chain is kept after its end, and who is told of the end. Plain jobs have neither, and enter no index: it's made by one
-- walk over the archive, some seconds for five million jobs, in which nobody else writes.
ALTER TABLE job ADD COLUMN keep REAL;
ALTER TABLE job ADD COLUMN webhook TEXT;
ALTER TABLE archive ADD COLUMN keep REAL;
ALTER TABLE archive ADD COLUMN webhook TEXT;
ALTER TABLE archive ADD COLUMN purge_at INTEGER;

CREATE INDEX archive_purge ON archive (purge_at, id) WHERE purge_at IS NOT NULL;

-- The rows of these stay with a finished job, and go with it. The checks keep out what nothing else writes than somebody by
-- hand, as the rows are read in batches. They have rowids, as results and lines may be long.
CREATE TABLE phase (
    job_id      TEXT    NOT NULL CHECK (typeof(job_id) = 'text'),
    name        TEXT    NOT NULL CHECK (typeof(name) = 'text'),
    state       INTEGER NOT NULL CHECK (state IN (2, 4, 6)),         -- 2 running, 4 completed, 6 failed
    claims      INTEGER NOT NULL CHECK (typeof(claims) = 'integer'),  -- the claim that wrote it
    result      TEXT    CHECK (result IS NULL OR (typeof(result) = 'text' AND json_valid(result))),
    started_at  INTEGER NOT NULL CHECK (typeof(started_at) = 'integer'),
    finished_at INTEGER CHECK (finished_at IS NULL OR typeof(finished_at) = 'integer'),
    PRIMARY KEY (job_id, name)
);

CREATE TABLE progress (
    job_id  TEXT    NOT NULL PRIMARY KEY CHECK (typeof(job_id) = 'text'),
    claims  INTEGER NOT NULL CHECK (typeof(claims) = 'integer'),
    percent REAL    NOT NULL CHECK (percent BETWEEN 0 AND 100),
    message TEXT    CHECK (message IS NULL OR typeof(message) = 'text'),
    phase   TEXT    CHECK (phase IS NULL OR typeof(phase) = 'text'),
    phases  TEXT    NOT NULL CHECK (typeof(phases) = 'text' AND json_valid(phases)),
    at      INTEGER NOT NULL CHECK (typeof(at) = 'integer')
) WITHOUT ROWID;

CREATE TABLE job_log (
    job_id  TEXT    NOT NULL CHECK (typeof(job_id) = 'text'),
    claims  INTEGER NOT NULL CHECK (typeof(claims) = 'integer'),
    attempt INTEGER NOT NULL CHECK (typeof(attempt) = 'integer'),
    lines   TEXT    NOT NULL CHECK (typeof(lines) = 'text' AND json_valid(lines)),
    PRIMARY KEY (job_id, claims)
);

-- Whose leases there were, so that finished jobs show who ran them: one row for each lease, and nothing for a job.
CREATE TABLE past_lease (
    id        INTEGER NOT NULL PRIMARY KEY,
    worker    TEXT    NOT NULL,
    opened_at INTEGER NOT NULL
);

CREATE INDEX past_lease_opened ON past_lease (opened_at);

INSERT INTO past_lease (id, worker, opened_at)
SELECT id, CAST(worker AS TEXT), iif(typeof(opened_at) = 'integer', opened_at,
    CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000)
FROM lease;

-- What one process at a time does.
CREATE TABLE duty (
    name       TEXT    NOT NULL PRIMARY KEY,
    holder     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL
) WITHOUT ROWID;
