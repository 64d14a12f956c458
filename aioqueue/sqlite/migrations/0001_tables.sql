-- oldest code: 1
--
-- Times are integer microseconds since 1970, UTC. Ids are UUIDs as lower-case text, whose order is theirs.
-- WITHOUT ROWID: a row is found by its id in one step, and the indexes that end in the id need nothing beside it.

CREATE TABLE job (
    id             TEXT    NOT NULL PRIMARY KEY CHECK (length(id) = 36),
    type           TEXT    NOT NULL,
    priority       INTEGER NOT NULL CHECK (priority BETWEEN 1 AND 4),
    state          INTEGER NOT NULL,                -- 0 held, 1 pending, 2 running
    run_at         INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    started_at     INTEGER,
    expires_at     INTEGER,
    attempt        INTEGER NOT NULL DEFAULT 0,
    max_attempts   INTEGER,
    claims         INTEGER NOT NULL DEFAULT 0,
    reschedules    INTEGER NOT NULL DEFAULT 0,
    lease_id       INTEGER,
    settled_claims INTEGER,                         -- the newest settlement that was written: its fence and its kind,
    settled_lease  INTEGER,                         -- so that repeating it answers as the first time did
    settled_kind   INTEGER,
    chain_id       TEXT,                            -- NULL: a chain of its own
    position       INTEGER NOT NULL DEFAULT 0,
    key            TEXT,
    unique_key     TEXT,
    gate           TEXT,
    open_blockers  INTEGER NOT NULL DEFAULT 0,
    slow_settle    INTEGER NOT NULL DEFAULT 0,
    trace          TEXT,
    retry          TEXT,
    timeout        REAL,
    tags           TEXT    NOT NULL DEFAULT '[]',
    metadata       TEXT    NOT NULL DEFAULT '{}',
    errors         TEXT    NOT NULL DEFAULT '[]',
    payload        TEXT    NOT NULL
) WITHOUT ROWID;

CREATE INDEX job_ready ON job (type, priority, run_at, id) WHERE state = 1;
CREATE INDEX job_running ON job (lease_id, id) WHERE state = 2;
CREATE INDEX job_held ON job (gate, priority, run_at, id) WHERE state = 0;
CREATE UNIQUE INDEX job_unique ON job (unique_key) WHERE unique_key IS NOT NULL;
CREATE INDEX job_chain ON job (chain_id) WHERE chain_id IS NOT NULL;
CREATE INDEX job_key ON job (key, id) WHERE key IS NOT NULL;

CREATE TABLE archive (
    id             TEXT    NOT NULL PRIMARY KEY,
    type           TEXT    NOT NULL,
    priority       INTEGER NOT NULL,
    state          INTEGER NOT NULL,                -- 4 completed, 5 continued, 6 failed, 7 cancelled
    run_at         INTEGER NOT NULL,
    created_at     INTEGER NOT NULL,
    started_at     INTEGER,
    finished_at    INTEGER NOT NULL,
    expires_at     INTEGER,
    attempt        INTEGER NOT NULL,
    max_attempts   INTEGER,
    claims         INTEGER NOT NULL,
    reschedules    INTEGER NOT NULL,
    settled_claims INTEGER,
    settled_lease  INTEGER,
    settled_kind   INTEGER,
    chain_id       TEXT,
    position       INTEGER NOT NULL,
    key            TEXT,
    unique_key     TEXT,
    trace          TEXT,
    retry          TEXT,
    timeout        REAL,
    tags           TEXT    NOT NULL,
    metadata       TEXT    NOT NULL,
    errors         TEXT    NOT NULL,
    outcome        TEXT,
    output         TEXT,
    payload        TEXT    NOT NULL
) WITHOUT ROWID;

CREATE INDEX archive_type ON archive (type, state, id);
CREATE INDEX archive_chain ON archive (chain_id) WHERE chain_id IS NOT NULL;
CREATE INDEX archive_key ON archive (key, id) WHERE key IS NOT NULL;

-- clock and boot: what the clock showed beside the time since the machine's start, so that a clock that was set
-- doesn't end the leases of living workers.
CREATE TABLE lease (
    id         INTEGER PRIMARY KEY AUTOINCREMENT,
    worker     TEXT    NOT NULL,
    expires_at INTEGER NOT NULL,
    clock      INTEGER NOT NULL DEFAULT 0,
    boot       TEXT
);

CREATE VIEW jobs AS
SELECT id, type,
       CASE state WHEN 0 THEN 'blocked' WHEN 2 THEN 'running' WHEN 1 THEN
           CASE WHEN run_at <= CAST(round((julianday('now') - 2440587.5) * 86400000.0) AS INTEGER) * 1000
                THEN 'ready' ELSE 'scheduled' END
           ELSE 'unknown' END AS state,
       priority, attempt, max_attempts, key, tags, metadata, payload, NULL AS output, NULL AS outcome, errors,
       (SELECT worker FROM lease WHERE lease.id = job.lease_id AND job.state = 2) AS worker,
       strftime('%Y-%m-%dT%H:%M:%fZ', created_at / 1000000.0, 'unixepoch') AS created_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', run_at / 1000000.0, 'unixepoch') AS run_at,
       strftime('%Y-%m-%dT%H:%M:%fZ', started_at / 1000000.0, 'unixepoch') AS started_at,
       NULL AS finished_at
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
       strftime('%Y-%m-%dT%H:%M:%fZ', finished_at / 1000000.0, 'unixepoch')
FROM archive;
