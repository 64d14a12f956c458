-- oldest code: 6
-- The life of a job: its phases and progress, what its handler logs, how long its chain is kept, and who is told of its end.
-- Code from before goes on, for all jobs that have none of it: it forgets how long a chain is kept, and who is to be told, when it
-- settles or continues one. Workers are upgraded before the first job is enqueued with one of these.

-- This stops everybody for a moment, and does so first: a weaker lock that grew would deadlock with a claim. The new index has
-- an entry for each finished job that says how long it's kept, but the whole archive is read for it. Where that would take more than
-- a second or two, it has to be built before, beside the running workers, which can't be done in a migration's transaction.
ALTER TABLE @schema@.job
    ADD COLUMN IF NOT EXISTS keep double precision,         -- seconds after its chain's end; NULL leaves it to its state's age
    ADD COLUMN IF NOT EXISTS webhook text;                  -- the URL that is told of its chain's end; such a row is marked, too
ALTER TABLE @schema@.archive
    ADD COLUMN IF NOT EXISTS keep double precision,
    ADD COLUMN IF NOT EXISTS webhook text,
    ADD COLUMN IF NOT EXISTS purge_at timestamptz,          -- finished_at + keep
    ADD COLUMN IF NOT EXISTS settled_kind smallint;         -- what a settlement had said that gave way to a request to end

DO @body@
DECLARE
    archive text := format('%I.archive', @schema_text@);
    purge regclass := to_regclass(format('%I.archive_purge', @schema_text@));
    entries text := '(purge_at, id) WHERE purge_at IS NOT NULL';
BEGIN
    IF purge IS NULL AND pg_relation_size(archive::regclass) <= 419430400 THEN
        EXECUTE format('CREATE INDEX archive_purge ON %s %s', archive, entries);
    ELSIF NOT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = purge), false) THEN
        RAISE EXCEPTION 'there are many finished jobs: first build an index beside the running workers, with psql, by %',
            CASE WHEN purge IS NULL THEN '' ELSE format(E'\nDROP INDEX %s;', purge) END
            || format(E'\nALTER TABLE %s ADD COLUMN IF NOT EXISTS purge_at timestamptz;', archive)
            || format(E'\nCREATE INDEX CONCURRENTLY archive_purge ON %s %s;', archive, entries)
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
@body@;

-- Beside the jobs' rows, which workers' words about running jobs never rewrite. They stay with a finished job, and go with it.
CREATE TABLE @schema@.phase (
    job_id uuid NOT NULL,
    name text NOT NULL,
    state smallint NOT NULL,                                -- 2 running, 4 completed, 6 failed
    claims integer NOT NULL,                                -- of the job when it was written: a later one's counts
    started_at timestamptz NOT NULL,
    finished_at timestamptz,
    result json,
    PRIMARY KEY (job_id, name)
) WITH (fillfactor = 70, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

CREATE TABLE @schema@.progress (
    job_id uuid NOT NULL PRIMARY KEY,
    claims integer NOT NULL,
    percent double precision NOT NULL,
    at timestamptz NOT NULL,
    message text,
    phase text,
    phases text[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- What handlers have logged: of the newest claims of a job.
CREATE TABLE @schema@.job_log (
    job_id uuid NOT NULL,
    claims integer NOT NULL,
    attempt integer NOT NULL,
    lines json NOT NULL,
    PRIMARY KEY (job_id, claims)
);

-- What one process at a time does.
CREATE TABLE @schema@.duty (
    name text NOT NULL PRIMARY KEY,
    holder text NOT NULL,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

-- Whose each lease was, for some time after its end: a job's row has the id of the lease that wrote it last.
CREATE TABLE @schema@.past_lease (
    id bigint NOT NULL PRIMARY KEY,
    worker text NOT NULL,
    opened_at timestamptz NOT NULL DEFAULT clock_timestamp()
);

CREATE INDEX past_lease_opened ON @schema@.past_lease (opened_at);

INSERT INTO @schema@.past_lease (id, worker, opened_at) SELECT id, worker, created_at FROM @schema@.lease;

-- Whoever may read or write jobs may do so with these: they're looked at and written together.
DO @body@
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT string_agg(DISTINCT acl.privilege_type, ', ') AS privileges,
               CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS grantee
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS acl
        WHERE c.oid IN (format('%I.job', @schema_text@)::regclass, format('%I.archive', @schema_text@)::regclass)
          AND acl.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        GROUP BY acl.grantee
    LOOP
        EXECUTE format('GRANT %1$s ON %2$I.phase, %2$I.progress, %2$I.job_log, %2$I.duty, %2$I.past_lease TO %3$s',
                       given.privileges, @schema_text@, given.grantee);
    END LOOP;
END
@body@;

-- Stores those of the jobs that have an id here, as pending, in the order of ids; gives those that weren't there. A key that
-- somebody's open transaction holds, or an id, is waited for until that ends. Whoever stores several keys calls it in the order
-- of their hashes. What it knows now beside what `enqueue_given` gives: `keep`, seconds for which the chain is kept after its end, and
-- `webhook`, the URL that is told of that.
CREATE OR REPLACE FUNCTION @schema@.enqueue_insert(jobs json[], ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS @body@
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    made uuid[];
BEGIN
    WITH created AS (
        INSERT INTO @schema@.job (id, type, priority, run_at, expires_at, max_attempts, timeout, key, unique_key, until_started,
                                  created_at, trace, tags, retry, metadata, payload, keep, webhook, marked)
        SELECT ids[g.place], g.type, coalesce(g.priority, 2::smallint), due.at, due.at + g.expires * interval '1 second',
               g.max_attempts, g.timeout, g.key, g.hashes[1], g.hashes IS NOT NULL AND g.until = 'started',
               clock, g.trace, g.tags, g.retry, g.metadata, g.payload, (jobs[g.place]->>'keep')::double precision,
               jobs[g.place]->>'webhook', jobs[g.place]->>'webhook' IS NOT NULL
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
-- and nothing of what it had done.
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
        marked = j.marked OR job->>'webhook' IS NOT NULL
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
