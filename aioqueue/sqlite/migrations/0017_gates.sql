-- oldest code: 7
-- Gates: limits, rates, sequences and turns. Code from before doesn't look at them, though what it does leaves marks there: upgrade all
-- workers before the first limit.

ALTER TABLE job ADD COLUMN gates TEXT;              -- where it waits or runs, a JSON array; empty for one that has only a sequence

-- From one gate to the next, and at each from one type to the next. Jobs that aren't held at one don't enter it.
CREATE INDEX job_at_gate ON job (gate, type, priority, run_at, id) WHERE state = 0 AND open_blockers = 0 AND gate IS NOT NULL;

-- Limits, by name: how many jobs may run at once, or start in a time.
CREATE TABLE gate_limit (
    name    TEXT    NOT NULL PRIMARY KEY CHECK (typeof(name) = 'text'),
    places  INTEGER NOT NULL CHECK (typeof(places) = 'integer' AND places >= 0),
    per     REAL,                                   -- seconds, for starts; NULL for jobs that run at once
    burst   INTEGER,                                -- for starts
    defined TEXT,                                   -- what code said last, as JSON; NULL for one that no code has
    changed INTEGER NOT NULL DEFAULT 0              -- since then by somebody at run time
) WITHOUT ROWID;

-- Who runs at which gate: there while the job runs.
CREATE TABLE gate_place (
    gate   TEXT NOT NULL CHECK (typeof(gate) = 'text'),
    job_id TEXT NOT NULL,                           -- as odd as the job's
    PRIMARY KEY (gate, job_id)
) WITHOUT ROWID;
CREATE INDEX gate_place_job ON gate_place (job_id);

-- What has left a gate, and hasn't let anybody else come yet.
CREATE TABLE gate_mark (
    id    INTEGER PRIMARY KEY AUTOINCREMENT,        -- none comes again: by that it's told that there are new ones
    gate  TEXT    NOT NULL CHECK (typeof(gate) = 'text'),
    freed INTEGER NOT NULL DEFAULT 1 CHECK (typeof(freed) = 'integer')
);

-- Rates that have been used: the theoretical arrival time of the next start, and when those that wait are let come.
CREATE TABLE gate_rate (
    gate    TEXT    NOT NULL PRIMARY KEY CHECK (typeof(gate) = 'text'),
    arrival INTEGER NOT NULL CHECK (typeof(arrival) = 'integer'),
    wake_at INTEGER CHECK (wake_at IS NULL OR typeof(wake_at) = 'integer')
) WITHOUT ROWID;
CREATE INDEX gate_rate_wake ON gate_rate (wake_at) WHERE wake_at IS NOT NULL;

-- Chains that are in a sequence, in its order. One that has failed, or was cancelled, stays until its job leaves the archive, or lives
-- again. Claims don't pass those.
CREATE TABLE gate_member (
    number   INTEGER PRIMARY KEY AUTOINCREMENT,
    chain_id TEXT    NOT NULL UNIQUE CHECK (typeof(chain_id) = 'text'),
    sequence TEXT    NOT NULL CHECK (typeof(sequence) = 'text'),
    strict   INTEGER NOT NULL DEFAULT 0 CHECK (strict IN (0, 1)),
    block    INTEGER NOT NULL DEFAULT 0 CHECK (block IN (0, 1)),
    ended    INTEGER NOT NULL DEFAULT 0 CHECK (ended IN (0, 6, 7))   -- 6 failed, 7 cancelled
);
CREATE INDEX gate_member_sequence ON gate_member (sequence, number) WHERE ended = 0;
CREATE INDEX gate_member_failed ON gate_member (sequence, number) WHERE ended = 6 AND block = 1;
