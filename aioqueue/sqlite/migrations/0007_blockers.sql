-- oldest code: 7
-- Jobs that wait for the ends of chains. Such a job and the live steps of what it waits for are marked: who settles a marked one
-- does more than code from before knows of, and that code would also run a job with null where an output belongs. So the index
-- by which jobs are claimed gets a new name, and the mark too: workers of older code that still run stop with
-- `StoreIncompatible` at their next claim, and write what they were running, but for next steps of chains; what they don't tell
-- is found by newer ones. No older code can be opened any more. Producers of older code that are open go on.
-- The new index takes a few seconds for a million pending jobs, in which nobody else writes.

DROP INDEX job_ready;
CREATE INDEX job_due ON job (type, priority, run_at, id) WHERE state = 1;

ALTER TABLE job RENAME COLUMN slow_settle TO marked;

-- What is to be discarded unless it's started in time.
CREATE INDEX job_expiring ON job (expires_at)
    WHERE expires_at IS NOT NULL AND state < 2 AND attempt = 0 AND reschedules = 0;

-- Which chains a job waits for. A row is there while its job is live, or may be retried.
-- The checks keep out what nothing else writes than somebody by hand, as these rows are read in batches.
CREATE TABLE blocker (
    job_id   TEXT    NOT NULL CHECK (typeof(job_id) = 'text'),
    ordinal  INTEGER NOT NULL CHECK (typeof(ordinal) = 'integer'),   -- from 0, as they were given
    chain_id TEXT    NOT NULL CHECK (typeof(chain_id) = 'text'),
    settled  INTEGER NOT NULL DEFAULT 0 CHECK (settled IN (0, 1)),   -- runs however the chain ends
    resolved INTEGER NOT NULL DEFAULT 0 CHECK (resolved IN (0, 1)),  -- the end is counted in the job's open_blockers
    places   TEXT    NOT NULL DEFAULT '[]' CHECK (typeof(places) = 'text' AND json_valid(places)),
    PRIMARY KEY (job_id, ordinal)
) WITHOUT ROWID;                                                     -- places: where the end stands in the payload

CREATE INDEX blocker_chain ON blocker (chain_id, resolved, job_id);

-- How a chain that others wait for has ended, once for all of them, until the last of them has ended too.
CREATE TABLE chain_end (
    chain_id   TEXT    NOT NULL PRIMARY KEY CHECK (typeof(chain_id) = 'text'),
    state      INTEGER NOT NULL CHECK (state IN (4, 6, 7, 8)),       -- 4 completed, 6 failed, 7 cancelled, 8 deleted
    type       TEXT    CHECK (type IS NULL OR typeof(type) = 'text'),
    output     TEXT    CHECK (output IS NULL OR typeof(output) = 'text'),
    cause      TEXT    CHECK (cause IS NULL OR typeof(cause) = 'text'),  -- what became of the first job that didn't complete
    untold     INTEGER NOT NULL DEFAULT 0 CHECK (untold IN (0, 1)),  -- some who wait for it haven't been told
    take_along INTEGER NOT NULL DEFAULT 0 CHECK (take_along IN (0, 1)),  -- who waits for it is deleted too
    ended_at   INTEGER NOT NULL CHECK (typeof(ended_at) = 'integer')
) WITHOUT ROWID;

CREATE INDEX chain_end_untold ON chain_end (ended_at, chain_id) WHERE untold = 1;
