-- oldest code: 6
-- Where jobs come from, beside whoever enqueued them: the tick of a schedule, or a dry run; and workers of which only one may live.
-- Code from before goes on; it forgets where a chain comes from when it settles or continues one.

-- This stops everybody for a moment, and does so first, in the order in which claims and settlements take the tables.
ALTER TABLE @schema@.lease ADD COLUMN singleton text;
ALTER TABLE @schema@.job ADD COLUMN origin text;            -- JSON; NULL for most
ALTER TABLE @schema@.archive ADD COLUMN origin text;

CREATE UNIQUE INDEX lease_singleton ON @schema@.lease (singleton) WHERE singleton IS NOT NULL;

-- Stores those of the jobs that have an id here, as pending, in the order of ids; gives those that weren't there. A key that
-- somebody's open transaction holds, or an id, is waited for until that ends. Whoever stores several keys calls it in the order
-- of their hashes. What it knows beside what `enqueue_given` gives: `keep`, seconds for which the chain is kept after its end;
-- `webhook`, the URL that is told of that; and now `origin`, the text that says of which tick or dry run it is.
CREATE OR REPLACE FUNCTION @schema@.enqueue_insert(jobs json[], ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS @body@
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    made uuid[];
BEGIN
    WITH created AS (
        INSERT INTO @schema@.job (id, type, priority, run_at, expires_at, max_attempts, timeout, key, unique_key, until_started,
                                  created_at, trace, tags, retry, metadata, payload, keep, webhook, marked,
                                  origin)
        SELECT ids[g.place], g.type, coalesce(g.priority, 2::smallint), due.at, due.at + g.expires * interval '1 second',
               g.max_attempts, g.timeout, g.key, g.hashes[1], g.hashes IS NOT NULL AND g.until = 'started',
               clock, g.trace, g.tags, g.retry, g.metadata, g.payload, (jobs[g.place]->>'keep')::double precision,
               jobs[g.place]->>'webhook', jobs[g.place]->>'webhook' IS NOT NULL,
               jobs[g.place]->>'origin'
        FROM @schema@.enqueue_given(jobs) AS g CROSS JOIN LATERAL (
            SELECT greatest(clock, coalesce(g.run_at, clock + g.delay * interval '1 second', clock)) AS at) AS due
        WHERE ids[g.place] IS NOT NULL ORDER BY ids[g.place]
        ON CONFLICT DO NOTHING RETURNING id
    )
    SELECT array_agg(id) INTO made FROM created;
    RETURN coalesce(made, '{}');
END
@body@;

-- Gives a waiting first job what was given for another one. Its row is locked. It keeps what it waits for since it took a key over,
-- and nothing of what it had done, nor what kept it from being claimed.
CREATE OR REPLACE FUNCTION @schema@.enqueue_replace(job json, holder uuid) RETURNS void
LANGUAGE plpgsql AS @body@
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
BEGIN
    DELETE FROM @schema@.blocker b WHERE b.job_id = holder AND b.ordinal <> 1000000;
    DELETE FROM @schema@.phase p WHERE p.job_id = holder;
    DELETE FROM @schema@.progress p WHERE p.job_id = holder;
    UPDATE @schema@.job j
    SET type = g.type, key = g.key, priority = coalesce(g.priority, 2::smallint), run_at = due.at,
        expires_at = due.at + g.expires * interval '1 second', max_attempts = g.max_attempts, timeout = g.timeout,
        until_started = g.until = 'started', trace = g.trace, tags = g.tags, retry = g.retry, metadata = g.metadata,
        payload = g.payload, attempt = 0, reschedules = 0, started_at = NULL, open_blockers = waits.open,
        state = CASE WHEN waits.open > 0 THEN 0 ELSE 1 END, keep = (job->>'keep')::double precision, webhook = job->>'webhook',
        marked = j.marked OR job->>'webhook' IS NOT NULL, origin = job->>'origin', gate = NULL
    FROM @schema@.enqueue_given(ARRAY[job]) AS g
    CROSS JOIN (SELECT count(*)::integer AS open FROM @schema@.blocker b WHERE b.job_id = holder AND NOT b.resolved) AS waits
    CROSS JOIN LATERAL (
        SELECT coalesce(g.run_at, clock + g.delay * interval '1 second', clock) AS wanted, old.created_at
        FROM @schema@.job old WHERE old.id = holder) AS times
    CROSS JOIN LATERAL (
        SELECT greatest(clock, least(times.wanted, times.created_at + g.max_delay * interval '1 second')) AS at) AS due
    WHERE j.id = holder;
END
@body@;
