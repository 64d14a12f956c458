-- oldest code: 6
-- Unique keys may be freed when a job is started, and kept for a while after its chain has completed.
-- Code from before goes on, for all jobs that have neither: its inserts meet the new index as they did the old one. It would give
-- the key of a job that frees it at its start to the chain's next step, and to whom it retries, and it doesn't look at windows:
-- producers and workers are upgraded before the first job is enqueued with one of these.

-- This stops everybody for a moment, and does so first: a weaker lock that grew would deadlock with a claim. The new index has an
-- entry for each unique job, but the whole table is read for it. Where that would take more than a second or two, it has to be
-- built before, beside the running workers, which can't be done in a migration's transaction.
ALTER TABLE @schema@.job ADD COLUMN IF NOT EXISTS until_started boolean NOT NULL DEFAULT false;  -- frees its key at the first claim

-- Whoever has the second column empty holds the key. Those that have freed it are there too, each by itself, and not left out:
-- so code that looks for a key alone finds it by this index, holders first.
DO @body@
DECLARE
    held regclass := to_regclass(format('%I.job_key_held', @schema_text@));
    job text := format('%I.job', @schema_text@);
    nobody text := '''00000000-0000-0000-0000-000000000000''::uuid';
    entries text := format('(unique_key, (CASE WHEN until_started AND claims > 0 THEN id ELSE %s END)) WHERE unique_key IS NOT NULL',
                           nobody);
BEGIN
    IF held IS NULL AND pg_relation_size(job::regclass) <= 1073741824 THEN
        EXECUTE format('CREATE UNIQUE INDEX job_key_held ON %s %s', job, entries);
    ELSIF NOT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = held), false) THEN
        RAISE EXCEPTION 'there are many jobs: first build an index beside the running workers, with psql, by %',
            format('ALTER TABLE %s ADD COLUMN IF NOT EXISTS until_started boolean NOT NULL DEFAULT false; ', job)
            || format('CREATE UNIQUE INDEX CONCURRENTLY job_key_held ON %s %s', job, entries)
            || CASE WHEN held IS NULL THEN '' ELSE format(' (after DROP INDEX %s, which is broken)', held) END
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
@body@;

DROP INDEX @schema@.job_unique;

-- Which chain has a key until when, even if it completes sooner. Only jobs with a window have one, and look here.
CREATE TABLE @schema@.dedup (
    key uuid NOT NULL PRIMARY KEY,                  -- as `unique_key`
    chain_id uuid NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE INDEX dedup_expires ON @schema@.dedup (expires_at);
