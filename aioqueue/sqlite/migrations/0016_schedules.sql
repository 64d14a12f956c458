-- oldest code: 7
-- Schedules, what became of their newest ticks, and the states of code that define them. Code from before decides no ticks.

CREATE TABLE schedule (
    name           TEXT    NOT NULL PRIMARY KEY CHECK (typeof(name) = 'text'),
    owner          TEXT,                            -- the registry whose code defines it; NULL for one put at run time
    job_type       TEXT    NOT NULL,
    template       TEXT    NOT NULL CHECK (json_valid(template)),    -- its job, without an id
    cron           TEXT,
    every          REAL,                            -- seconds
    timezone       TEXT    NOT NULL,
    catch_up       TEXT    NOT NULL,
    grace          REAL    NOT NULL,                -- seconds
    catch_up_limit INTEGER NOT NULL,
    overlap        TEXT    NOT NULL,
    version        INTEGER NOT NULL DEFAULT 1,
    since          INTEGER NOT NULL CHECK (typeof(since) = 'integer'),
    anchor         INTEGER NOT NULL CHECK (typeof(anchor) = 'integer'),
    next_at        INTEGER CHECK (next_at IS NULL OR typeof(next_at) = 'integer'),  -- NULL until a worker has worked it out
    last_at        INTEGER CHECK (last_at IS NULL OR typeof(last_at) = 'integer'),
    last_chain     TEXT,
    paused         INTEGER NOT NULL DEFAULT 0,
    reason         TEXT    NOT NULL DEFAULT '',
    by             TEXT    NOT NULL DEFAULT ''
);

CREATE INDEX schedule_due ON schedule (next_at, name) WHERE paused = 0;
CREATE INDEX schedule_owner ON schedule (owner, name) WHERE owner IS NOT NULL;

CREATE TABLE schedule_tick (
    schedule   TEXT    NOT NULL,
    nominal_at INTEGER NOT NULL CHECK (typeof(nominal_at) = 'integer'),
    decided_at INTEGER NOT NULL CHECK (typeof(decided_at) = 'integer'),
    outcome    INTEGER NOT NULL CHECK (outcome IN (1, 2, 3)),        -- enqueued, skipped, duplicate
    reason     TEXT    NOT NULL DEFAULT '',
    chain_id   TEXT,
    count      INTEGER NOT NULL DEFAULT 1,
    PRIMARY KEY (schedule, nominal_at)
) WITHOUT ROWID;

CREATE TABLE schedule_generation (
    owner      TEXT    NOT NULL,
    seen       INTEGER NOT NULL,                    -- in the order in which they were first seen
    digest     TEXT    NOT NULL,
    release    INTEGER,
    live_until INTEGER NOT NULL CHECK (typeof(live_until) = 'integer'),
    PRIMARY KEY (owner, seen)
) WITHOUT ROWID;
