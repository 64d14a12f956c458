-- oldest code: 1
-- The oldest code that may run with the schema as this file leaves it, by the number of the newest migration it knows.

CREATE TABLE @schema@.job (
    id uuid NOT NULL PRIMARY KEY,
    type text NOT NULL,
    priority smallint NOT NULL DEFAULT 2 CHECK (priority BETWEEN 1 AND 4),
    run_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    state smallint NOT NULL DEFAULT 1,              -- 0 held, 1 pending, 2 running
    attempt integer NOT NULL DEFAULT 0,
    claims integer NOT NULL DEFAULT 0,
    lease_id bigint,                                -- the owner while running; then the last one that wrote
    max_attempts integer,
    reschedules integer NOT NULL DEFAULT 0,
    timeout double precision,                       -- seconds
    chain_id uuid,
    position integer NOT NULL DEFAULT 0,
    open_blockers integer NOT NULL DEFAULT 0,
    slow_settle boolean NOT NULL DEFAULT false,
    gate text,
    key text,
    unique_key uuid,                                -- the first 16 bytes of SHA-256 over length, type and key
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    started_at timestamptz,
    expires_at timestamptz,
    trace text,
    tags text[] NOT NULL DEFAULT '{}',
    retry json,
    metadata json NOT NULL DEFAULT '{}',
    payload json NOT NULL DEFAULT '{}',
    errors json[] NOT NULL DEFAULT '{}'
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_threshold = 1000);

CREATE INDEX job_ready ON @schema@.job (type, priority, run_at, id) WHERE state = 1;
CREATE INDEX job_lease ON @schema@.job (lease_id) INCLUDE (id) WHERE state = 2;
CREATE INDEX job_held ON @schema@.job (gate, priority, run_at, id) WHERE state = 0;
CREATE UNIQUE INDEX job_unique ON @schema@.job (unique_key) WHERE unique_key IS NOT NULL;
CREATE UNIQUE INDEX job_chain ON @schema@.job (chain_id) WHERE chain_id IS NOT NULL;
CREATE INDEX job_key ON @schema@.job (key, id) WHERE key IS NOT NULL;

CREATE TABLE @schema@.archive (
    id uuid NOT NULL,
    type text NOT NULL,
    priority smallint NOT NULL,
    run_at timestamptz NOT NULL,
    state smallint NOT NULL,                        -- 4 completed, 5 continued, 6 failed, 7 cancelled
    attempt integer NOT NULL,
    claims integer NOT NULL,
    lease_id bigint,
    max_attempts integer,
    reschedules integer NOT NULL,
    timeout double precision,
    chain_id uuid,
    position integer NOT NULL,
    key text,
    unique_key uuid,
    created_at timestamptz NOT NULL,
    started_at timestamptz,
    finished_at timestamptz NOT NULL,
    expires_at timestamptz,
    outcome text,
    trace text,
    tags text[] NOT NULL,
    retry json,
    metadata json NOT NULL,
    payload json NOT NULL,
    output json,
    errors json[] NOT NULL
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_insert_scale_factor = 0.1);

CREATE INDEX archive_id ON @schema@.archive (id);
CREATE INDEX archive_type ON @schema@.archive (type, state, id);
CREATE INDEX archive_finished ON @schema@.archive (state, finished_at);
CREATE INDEX archive_chain ON @schema@.archive (chain_id) WHERE chain_id IS NOT NULL;
CREATE INDEX archive_key ON @schema@.archive (key, id) WHERE key IS NOT NULL;

CREATE TABLE @schema@.lease (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    worker text NOT NULL,
    created_at timestamptz NOT NULL DEFAULT clock_timestamp(),
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 20);

CREATE TABLE @schema@.subscriber (
    id uuid NOT NULL PRIMARY KEY,
    expires_at timestamptz NOT NULL
) WITH (fillfactor = 50);

CREATE VIEW @schema@.jobs AS
SELECT job.id, job.type,
       CASE job.state
           WHEN 0 THEN 'blocked'
           WHEN 1 THEN CASE WHEN job.run_at <= now() THEN 'ready' ELSE 'scheduled' END
           WHEN 2 THEN 'running'
           ELSE job.state::text
       END AS state,
       job.priority, job.run_at, job.attempt, job.max_attempts, job.reschedules, lease.worker, job.key, job.tags,
       job.created_at, job.started_at, NULL::timestamptz AS finished_at, job.expires_at, NULL::text AS outcome,
       job.payload, job.metadata, NULL::json AS output, job.errors
FROM @schema@.job LEFT JOIN @schema@.lease ON job.state = 2 AND lease.id = job.lease_id
UNION ALL
SELECT id, type,
       CASE state WHEN 4 THEN 'completed' WHEN 5 THEN 'continued' WHEN 6 THEN 'failed' WHEN 7 THEN 'cancelled' ELSE state::text END,
       priority, run_at, attempt, max_attempts, reschedules, NULL, key, tags,
       created_at, started_at, finished_at, expires_at, outcome, payload, metadata, output, errors
FROM @schema@.archive;

-- For drivers other than our own, psql and triggers. `jobs` is an array of objects, or one object, with `type` and
-- optionally id, payload, priority, delay, run_at, expires, max_attempts, retry, timeout, key, unique, tags, metadata.
-- Payload, retry and metadata may be given as text that holds JSON: json's operators can't pass on "\u0000".
CREATE FUNCTION @schema@.enqueue_v1(jobs json, tell boolean DEFAULT true)
RETURNS TABLE (id uuid, created boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @body@
#variable_conflict use_column
DECLARE
    given json := CASE json_typeof(jobs) WHEN 'object' THEN json_build_array(jobs) ELSE jobs END;
    clock timestamptz := clock_timestamp();
    ids uuid[];
    flags boolean[];
    wanted record;
    stored uuid;
    note text;
BEGIN
    SELECT array_agg(coalesce((item.job->>'id')::uuid, encode(set_bit(set_bit(overlay(
               uuid_send(gen_random_uuid()) PLACING substring(int8send((extract(epoch FROM clock) * 1000)::bigint) FROM 3)
               FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid) ORDER BY item.place)
        INTO ids FROM json_array_elements(given) WITH ORDINALITY AS item(job, place);
    IF ids IS NULL THEN
        RETURN;
    END IF;
    flags := array_fill(false, ARRAY[cardinality(ids)]);
    FOR wanted IN
        SELECT item.place, item.job, item.hash
        FROM (SELECT place, job,
                     CASE WHEN coalesce((job->>'unique')::boolean, false) THEN
                         encode(substring(sha256(convert_to(
                             char_length(job->>'type') || ':' || (job->>'type') || (job->>'key'), 'UTF8')) FROM 1 FOR 16), 'hex')::uuid
                     END AS hash
              FROM json_array_elements(given) WITH ORDINALITY AS each(job, place)) AS item
        ORDER BY item.hash NULLS FIRST, item.place
    LOOP
        IF wanted.hash IS NULL AND coalesce((wanted.job->>'unique')::boolean, false) THEN
            RAISE EXCEPTION 'unique needs a key' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        LOOP
            INSERT INTO @schema@.job (id, type, priority, run_at, expires_at, max_attempts, timeout, key, unique_key,
                                      created_at, tags, retry, metadata, payload)
            SELECT ids[wanted.place], wanted.job->>'type', coalesce((wanted.job->>'priority')::smallint, 2::smallint), due.at,
                   due.at + (wanted.job->>'expires')::double precision * interval '1 second',
                   CASE WHEN wanted.job->'max_attempts' IS NULL THEN 10 ELSE (wanted.job->>'max_attempts')::integer END,
                   (wanted.job->>'timeout')::double precision, wanted.job->>'key', wanted.hash, clock,
                   CASE WHEN json_typeof(wanted.job->'tags') = 'array'
                        THEN ARRAY(SELECT json_array_elements_text(wanted.job->'tags')) ELSE '{}' END,
                   CASE json_typeof(wanted.job->'retry') WHEN 'string' THEN (wanted.job->>'retry')::json
                        WHEN 'object' THEN wanted.job->'retry'
                        -- a number alone counts too, with the worker's waits
                        ELSE CASE WHEN wanted.job->'max_attempts' IS NOT NULL THEN json '{}' END END,
                   CASE json_typeof(wanted.job->'metadata') WHEN 'string' THEN (wanted.job->>'metadata')::json
                        WHEN 'object' THEN wanted.job->'metadata' ELSE '{}' END,
                   CASE json_typeof(wanted.job->'payload') WHEN 'string' THEN (wanted.job->>'payload')::json
                        WHEN 'object' THEN wanted.job->'payload' ELSE '{}' END
            FROM (SELECT greatest(clock, coalesce((wanted.job->>'run_at')::timestamptz,
                      clock + (wanted.job->>'delay')::double precision * interval '1 second', clock)) AS at) AS due
            ON CONFLICT DO NOTHING RETURNING job.id INTO stored;
            IF FOUND THEN
                flags[wanted.place] := true;
                EXIT;
            END IF;
            -- Another transaction's row is seen by this second statement, not by the insert itself.
            SELECT job.id INTO stored FROM @schema@.job WHERE job.id = ids[wanted.place];
            IF NOT FOUND AND wanted.hash IS NOT NULL THEN
                SELECT job.id INTO stored FROM @schema@.job WHERE job.unique_key = wanted.hash;
            END IF;
            IF FOUND THEN
                ids[wanted.place] := stored;
                EXIT;
            END IF;
        END LOOP;
    END LOOP;
    IF tell THEN
        SELECT json_build_object('t', CASE WHEN octet_length(types.names::text) < 7000 THEN types.names END, 'd', types.delay)::text
            INTO note
            FROM (SELECT json_agg(DISTINCT each.job->>'type') AS names,
                         min(greatest(0, coalesce((each.job->>'delay')::double precision,
                             extract(epoch FROM (each.job->>'run_at')::timestamptz - clock)::double precision, 0))) AS delay
                  FROM json_array_elements(given) WITH ORDINALITY AS each(job, place)
                  WHERE flags[each.place]) AS types
            WHERE types.names IS NOT NULL AND types.delay <= 3600;
        IF note IS NOT NULL THEN
            PERFORM pg_notify('@channel@', note);
        END IF;
    END IF;
    RETURN QUERY SELECT result.id, result.created FROM unnest(ids, flags) WITH ORDINALITY AS result(id, created, place)
        ORDER BY result.place;
END
@body@;
