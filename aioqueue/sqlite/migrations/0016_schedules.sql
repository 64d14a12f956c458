-- oldest code: 7
-- Schedules, what became of their newest ticks, and the states of code that define them. Code from before decides no ticks.
-- The checks keep out what nothing else writes than somebody by hand, as the rows are read in batches.

CREATE TABLE schedule (
    name           TEXT    NOT NULL PRIMARY KEY CHECK (typeof(name) = 'text'),
    owner          TEXT    CHECK (owner IS NULL OR typeof(owner) = 'text'),  -- the registry whose code defines it; NULL for
    job_type       TEXT    NOT NULL CHECK (typeof(job_type) = 'text'),       -- one put at run time
    template       TEXT    NOT NULL CHECK (typeof(template) = 'text' AND json_valid(template)),  -- its job, without an id
    cron           TEXT    CHECK (cron IS NULL OR typeof(cron) = 'text'),
    every          REAL    CHECK (every IS NULL OR typeof(every) = 'real'),  -- seconds
    timezone       TEXT    NOT NULL CHECK (typeof(timezone) = 'text'),
    catch_up       TEXT    NOT NULL CHECK (catch_up IN ('latest', 'none', 'all')),
    grace          REAL    NOT NULL CHECK (typeof(grace) = 'real'),          -- seconds
    catch_up_limit INTEGER NOT NULL CHECK (typeof(catch_up_limit) = 'integer'),
    overlap        TEXT    NOT NULL CHECK (overlap IN ('allow', 'skip')),
    version        INTEGER NOT NULL DEFAULT 1 CHECK (typeof(version) = 'integer'),
    since          INTEGER NOT NULL CHECK (typeof(since) = 'integer'),
    anchor         INTEGER NOT NULL CHECK (typeof(anchor) = 'integer'),
    next_at        INTEGER CHECK (next_at IS NULL OR typeof(next_at) = 'integer'),  -- NULL until a worker has worked it out;
    last_at        INTEGER CHECK (last_at IS NULL OR typeof(last_at) = 'integer'),  -- the end of the year 9999 if there is none
    last_chain     TEXT    CHECK (last_chain IS NULL OR typeof(last_chain) = 'text'),
    paused         INTEGER NOT NULL DEFAULT 0 CHECK (paused IN (0, 1)),
    reason         TEXT    NOT NULL DEFAULT '' CHECK (typeof(reason) = 'text'),
    by             TEXT    NOT NULL DEFAULT '' CHECK (typeof(by) = 'text')
) WITHOUT ROWID;

CREATE INDEX schedule_due ON schedule (next_at, name) WHERE paused = 0;
CREATE INDEX schedule_owner ON schedule (owner, name) WHERE owner IS NOT NULL;

CREATE TABLE schedule_tick (
    schedule   TEXT    NOT NULL CHECK (typeof(schedule) = 'text'),
    nominal_at INTEGER NOT NULL CHECK (typeof(nominal_at) = 'integer'),
    decided_at INTEGER NOT NULL CHECK (typeof(decided_at) = 'integer'),
    outcome    INTEGER NOT NULL CHECK (outcome IN (1, 2, 3)),        -- enqueued, skipped, duplicate
    reason     TEXT    NOT NULL DEFAULT '' CHECK (typeof(reason) = 'text'),
    chain_id   TEXT    CHECK (chain_id IS NULL OR typeof(chain_id) = 'text'),
    count      INTEGER NOT NULL DEFAULT 1 CHECK (typeof(count) = 'integer'),
    PRIMARY KEY (schedule, nominal_at)
) WITHOUT ROWID;

CREATE TABLE schedule_generation (
    owner      TEXT    NOT NULL CHECK (typeof(owner) = 'text'),
    seen       INTEGER NOT NULL CHECK (typeof(seen) = 'integer'),    -- in the order in which they were first seen
    digest     TEXT    NOT NULL CHECK (typeof(digest) = 'text'),
    release    INTEGER CHECK (release IS NULL OR typeof(release) = 'integer'),
    live_until INTEGER NOT NULL CHECK (typeof(live_until) = 'integer'),
    PRIMARY KEY (owner, seen)
) WITHOUT ROWID;
