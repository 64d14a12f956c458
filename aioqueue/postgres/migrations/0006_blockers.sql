-- oldest code: 6
-- Jobs that wait for the ends of chains. Such a job and the live steps of what it waits for are marked: who settles a marked one
-- does more than code from before knows of, and that code would also run a job with null where an output belongs. So the mark
-- gets a new name: workers of older code that still run, whose settlements name the old one, stop with `StoreIncompatible` at
-- their next settlement (what they were running is recovered by newer ones), and none starts any more. Producers of older code
-- that are open go on.

-- The view comes first, as whoever reads it locks it and then the tables.
CREATE OR REPLACE VIEW @schema@.jobs AS
SELECT job.id, job.type,
       CASE job.state
           WHEN 0 THEN 'blocked'
           WHEN 1 THEN CASE WHEN job.run_at <= now() THEN 'ready' ELSE 'scheduled' END
           WHEN 2 THEN 'running'
           ELSE job.state::text
       END AS state,
       job.priority, job.run_at, job.attempt, job.max_attempts, job.reschedules, lease.worker, job.key, job.tags,
       job.created_at, job.started_at, NULL::timestamptz AS finished_at, job.expires_at, NULL::text AS outcome,
       job.payload, job.metadata, NULL::json AS output, job.errors, coalesce(job.chain_id, job.id) AS chain_id, job.position,
       job.open_blockers
FROM @schema@.job LEFT JOIN @schema@.lease ON job.state = 2 AND lease.id = job.lease_id
UNION ALL
SELECT id, type,
       CASE state WHEN 4 THEN 'completed' WHEN 5 THEN 'continued' WHEN 6 THEN 'failed' WHEN 7 THEN 'cancelled' ELSE state::text END,
       priority, run_at, attempt, max_attempts, reschedules, NULL, key, tags,
       created_at, started_at, finished_at, expires_at, outcome, payload, metadata, output, errors,
       coalesce(chain_id, id), position, 0
FROM @schema@.archive;

-- This stops everybody for a moment, and does so first: a weaker lock that grew would deadlock with a claim. The index has next
-- to no entries, but the whole table is read for it. Where that would take more than a second or two, it has to be built
-- before, beside the running workers, which can't be done in a migration's transaction.
ALTER TABLE @schema@.job RENAME COLUMN slow_settle TO marked;

DO @body@
DECLARE
    expiring regclass := to_regclass(format('%I.job_expiring', @schema_text@));
    job text := format('%I.job', @schema_text@);
    conditions text := 'expires_at IS NOT NULL AND state < 2 AND attempt = 0 AND reschedules = 0';
BEGIN
    IF expiring IS NULL AND pg_relation_size(job::regclass) <= 1073741824 THEN
        EXECUTE format('CREATE INDEX job_expiring ON %s (expires_at) WHERE %s', job, conditions);
    ELSIF NOT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = expiring), false) THEN
        RAISE EXCEPTION 'there are many jobs: first build an index beside the running workers, with psql, by %',
            format('CREATE INDEX CONCURRENTLY job_expiring ON %s (expires_at) WHERE %s', job, conditions)
            || CASE WHEN expiring IS NULL THEN '' ELSE format(' (after DROP INDEX %s, which is broken)', expiring) END
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
@body@;

-- Which chains a job waits for. A row is there while its job is live, or may be retried.
CREATE TABLE @schema@.blocker (
    job_id uuid NOT NULL,
    ordinal integer NOT NULL,                       -- from 0, as they were given
    chain_id uuid NOT NULL,
    settled boolean NOT NULL DEFAULT false,         -- runs however the chain ends
    resolved boolean NOT NULL DEFAULT false,        -- the end is counted in the job's open_blockers
    places json NOT NULL DEFAULT '[]',              -- where the end stands in the payload
    PRIMARY KEY (job_id, ordinal)
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

CREATE INDEX blocker_chain ON @schema@.blocker (chain_id, job_id);

-- How a chain that others wait for has ended, once for all of them, until the last of them has ended too.
CREATE TABLE @schema@.chain_end (
    chain_id uuid NOT NULL PRIMARY KEY,
    state smallint NOT NULL,                        -- 4 completed, 6 failed, 7 cancelled, 8 deleted
    type text,
    output json,
    cause text,                                     -- what became of the first job that didn't complete
    untold boolean NOT NULL DEFAULT false,          -- some who wait for it haven't been told
    take_along boolean NOT NULL DEFAULT false,      -- who needs the output is deleted, and not failed
    ended_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE INDEX chain_end_untold ON @schema@.chain_end (ended_at, chain_id) WHERE untold;
