-- oldest code: 7
-- What happens to jobs is logged while somebody reads that. Triggers do so, whoever writes, also code from before: they're made
-- by the first reader and dropped with the last, so that nothing is paid while nobody reads.

CREATE TABLE reader (
    id         TEXT    NOT NULL PRIMARY KEY CHECK (typeof(id) = 'text'),
    expires_at INTEGER NOT NULL CHECK (typeof(expires_at) = 'integer')
) WITHOUT ROWID;

-- A number never comes again, and none is left out: the log reaches back to its first row.
CREATE TABLE event (
    sequence INTEGER PRIMARY KEY AUTOINCREMENT,
    kind     TEXT    NOT NULL,
    at       INTEGER NOT NULL,
    job_id   TEXT    NOT NULL,
    chain_id TEXT    NOT NULL,
    job_type TEXT    NOT NULL,
    attempt  INTEGER NOT NULL,
    claims   INTEGER NOT NULL,
    body     TEXT    NOT NULL
);

-- The newest number after which something has happened while nobody has read.
CREATE TABLE event_gap (
    one      INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
    sequence INTEGER NOT NULL
);
INSERT INTO event_gap (one, sequence) VALUES (1, 0);
