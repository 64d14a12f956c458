-- oldest code: 1
-- A chain's steps are found in their order, and its last one at once, however many there are. The view shows where a job is
-- in its chain. `enqueue_v1` answers with the chain's id where a chain holds the unique key.
-- Code from before runs its jobs, a chain's last steps too. It tells nobody of a chain's end, never sees it where it waits for
-- the result of a job that was continued, and what it's told to retry, bring forward or delete is one step: producers and
-- workers are upgraded before the first handler returns a call, and before chains are operated on.

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
       job.payload, job.metadata, NULL::json AS output, job.errors, coalesce(job.chain_id, job.id) AS chain_id, job.position
FROM @schema@.job LEFT JOIN @schema@.lease ON job.state = 2 AND lease.id = job.lease_id
UNION ALL
SELECT id, type,
       CASE state WHEN 4 THEN 'completed' WHEN 5 THEN 'continued' WHEN 6 THEN 'failed' WHEN 7 THEN 'cancelled' ELSE state::text END,
       priority, run_at, attempt, max_attempts, reschedules, NULL, key, tags,
       created_at, started_at, finished_at, expires_at, outcome, payload, metadata, output, errors,
       coalesce(chain_id, id), position
FROM @schema@.archive;

-- For drivers other than our own, psql and triggers. `jobs` is an array of objects, or one object, with `type` and
-- optionally id, payload, priority, delay, run_at, expires, max_attempts, retry, timeout, key, unique, aliases, tags, metadata, trace.
-- Trace is W3C's `traceparent` and `tracestate`, as an object or as text; what is too long isn't stored.
-- Payload, retry and metadata may be given as text that holds JSON: json's operators can't pass on "\u0000".
CREATE OR REPLACE FUNCTION @schema@.enqueue_v1(jobs json, tell boolean DEFAULT true)
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
                             char_length(coalesce(job->'aliases'->>0, job->>'type')) || ':' ||
                             coalesce(job->'aliases'->>0, job->>'type') || (job->>'key'), 'UTF8')) FROM 1 FOR 16), 'hex')::uuid
                     END AS hash
              FROM json_array_elements(given) WITH ORDINALITY AS each(job, place)) AS item
        ORDER BY item.hash NULLS FIRST, item.place
    LOOP
        IF wanted.hash IS NULL AND coalesce((wanted.job->>'unique')::boolean, false) THEN
            RAISE EXCEPTION 'unique needs a key' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF json_typeof(CASE json_typeof(wanted.job->'payload') WHEN 'string' THEN (wanted.job->>'payload')::json
                            ELSE wanted.job->'payload' END) NOT IN ('object', 'null')
           OR json_typeof(CASE json_typeof(wanted.job->'metadata') WHEN 'string' THEN (wanted.job->>'metadata')::json
                               ELSE wanted.job->'metadata' END) NOT IN ('object', 'null')
           OR json_typeof(CASE json_typeof(wanted.job->'retry') WHEN 'string' THEN (wanted.job->>'retry')::json
                               ELSE wanted.job->'retry' END) NOT IN ('object', 'null')
           OR json_typeof(wanted.job->'tags') NOT IN ('array', 'null') THEN
            RAISE EXCEPTION 'payload, metadata and retry must be objects (or their text), and tags an array'
                USING ERRCODE = 'invalid_parameter_value';
        END IF;
        -- PostgreSQL takes NaN for greater than infinity.
        IF NOT coalesce(isfinite((wanted.job->>'run_at')::timestamptz), true)
           OR NOT coalesce(abs((wanted.job->>'delay')::double precision) < 'infinity', true)
           OR NOT coalesce(abs((wanted.job->>'expires')::double precision) < 'infinity', true)
           OR NOT coalesce(abs((wanted.job->>'timeout')::double precision) < 'infinity', true) THEN
            RAISE EXCEPTION 'run_at, delay, expires and timeout must be finite' USING ERRCODE = 'invalid_parameter_value';
        END IF;
        IF wanted.hash IS NOT NULL AND json_typeof(wanted.job->'aliases') = 'array' THEN
            SELECT coalesce(job.chain_id, job.id) INTO stored FROM @schema@.job WHERE job.unique_key IN (
                SELECT encode(substring(sha256(convert_to(char_length(name) || ':' || name || (wanted.job->>'key'), 'UTF8'))
                              FROM 1 FOR 16), 'hex')::uuid
                FROM (SELECT wanted.job->>'type' AS name UNION ALL SELECT json_array_elements_text(wanted.job->'aliases')) AS names
            ) LIMIT 1;
            IF FOUND THEN
                ids[wanted.place] := stored;
                CONTINUE;
            END IF;
        END IF;
        LOOP
            INSERT INTO @schema@.job (id, type, priority, run_at, expires_at, max_attempts, timeout, key, unique_key,
                                      created_at, trace, tags, retry, metadata, payload)
            SELECT ids[wanted.place], wanted.job->>'type', coalesce((wanted.job->>'priority')::smallint, 2::smallint), due.at,
                   due.at + (wanted.job->>'expires')::double precision * interval '1 second',
                   CASE WHEN wanted.job->'max_attempts' IS NULL THEN 10 ELSE (wanted.job->>'max_attempts')::integer END,
                   (wanted.job->>'timeout')::double precision, wanted.job->>'key', wanted.hash, clock,
                   CASE WHEN char_length(wanted.job->>'trace') <= 1024 THEN wanted.job->>'trace' END,
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
                SELECT coalesce(job.chain_id, job.id) INTO stored FROM @schema@.job WHERE job.unique_key = wanted.hash;
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

-- Nothing is settled while this index is built: that reads the whole archive, though none of what is there goes into it. Where
-- that would take more than a few seconds it has to be built before, beside the running workers, which can't be done in a
-- migration's transaction. The index without positions isn't needed for anything beside it. A later release drops that one:
-- it waits for everybody who reads the archive.
DO @body@
DECLARE
    steps regclass := to_regclass(format('%I.archive_steps', @schema_text@));
    archive text := format('%I.archive', @schema_text@);
BEGIN
    IF steps IS NULL AND pg_relation_size(archive::regclass) <= 1073741824 THEN
        CREATE INDEX archive_steps ON @schema@.archive (chain_id, position) WHERE chain_id IS NOT NULL;
    ELSIF NOT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = steps), false) THEN
        RAISE EXCEPTION 'the archive is large: first build an index beside the running workers, with psql, by %',
            format('CREATE INDEX CONCURRENTLY archive_steps ON %s (chain_id, position) WHERE chain_id IS NOT NULL', archive)
            || CASE WHEN steps IS NULL THEN '' ELSE format(' (after DROP INDEX %s, which is broken)', steps) END
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
@body@;
