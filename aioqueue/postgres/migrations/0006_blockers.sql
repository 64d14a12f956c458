-- oldest code: 6
-- Jobs that wait for the ends of chains. Such a job and the live steps of what it waits for are marked: who settles a marked one
-- does more than code from before knows of, and that code would also run a job with null where an output belongs. So the mark
-- gets a new name: workers of older code that still run, whose settlements name the old one, stop with `StoreIncompatible` at
-- their next settlement (what they were running is recovered by newer ones), and none starts any more. One that is idle may still
-- claim: workers are upgraded before the first job is enqueued that waits for others. Producers of older code that are open go on.

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
    take_along boolean NOT NULL DEFAULT false,      -- those who wait are deleted, and not failed or started
    ended_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE INDEX chain_end_untold ON @schema@.chain_end (ended_at, chain_id) WHERE untold;

-- As `enqueue_v1`, and `blockers` of a job is an array of objects: `chain_id` (any job's id of a chain, or the `id` of a job that
-- comes before it in the array), and optionally `settled` and `places`. What hasn't ended is marked, by a write also where it's
-- marked already, so that whoever ends it at that moment is seen or sees who waits. What has completed counts at once; of what
-- has failed any worker tells within seconds. Rows that others have locked are waited for briefly (55P03). AQ001: there is no
-- such chain. AQ002: a job waits for itself, or for one behind it.
CREATE FUNCTION @schema@.enqueue_v2(jobs json, tell boolean DEFAULT true)
RETURNS TABLE (id uuid, created boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @body@
#variable_conflict use_column
DECLARE
    given json := CASE json_typeof(jobs) WHEN 'object' THEN json_build_array(jobs) ELSE jobs END;
    patience text := current_setting('lock_timeout');
    ids uuid[];
    flags boolean[];
    asked uuid[];
    chains uuid[];
    ended uuid[] := '{}';
    last record;
    reason json;
    how text;
    text_of text;
    note text;
BEGIN
    SELECT array_agg(stored.id ORDER BY stored.place), array_agg(stored.created ORDER BY stored.place) INTO ids, flags
        FROM @schema@.enqueue_v1(given, false) WITH ORDINALITY AS stored(id, created, place);
    IF ids IS NULL THEN
        RETURN;
    END IF;
    -- What waits is there as blocked, with all that it waits for: as it was given, or the chain that holds the unique key.
    WITH edge AS MATERIALIZED (
        SELECT ids[each.place] AS job_id, b.place::integer - 1 AS ordinal, (b.value->>'chain_id')::uuid AS chain_id,
               coalesce((b.value->>'settled')::boolean, false) AS settled,
               CASE json_typeof(b.value->'places') WHEN 'string' THEN (b.value->>'places')::json
                    WHEN 'array' THEN b.value->'places' ELSE '[]' END AS places,
               each.place,
               (SELECT min(other.place) FROM json_array_elements(given) WITH ORDINALITY AS other(job, place)
                WHERE (other.job->>'id')::uuid = (b.value->>'chain_id')::uuid) AS place_of_other
        FROM json_array_elements(given) WITH ORDINALITY AS each(job, place)
        CROSS JOIN LATERAL json_array_elements(
            CASE json_typeof(each.job->'blockers') WHEN 'array' THEN each.job->'blockers' ELSE '[]' END)
            WITH ORDINALITY AS b(value, place)
        WHERE flags[each.place]
    ), wrong AS MATERIALIZED (
        SELECT min(edge.job_id::text) AS job_id FROM edge WHERE edge.place_of_other >= edge.place
    ), added AS (
        INSERT INTO @schema@.blocker (job_id, ordinal, chain_id, settled, places)
        SELECT job_id, ordinal, coalesce(ids[place_of_other], chain_id), settled, places FROM edge
        WHERE (SELECT job_id FROM wrong) IS NULL
        ON CONFLICT (job_id, ordinal) DO UPDATE
        SET chain_id = excluded.chain_id, settled = excluded.settled, places = excluded.places, resolved = false
        RETURNING job_id, chain_id
    ), blocked AS (
        UPDATE @schema@.job j
        SET marked = true, open_blockers = waits.edges, state = CASE WHEN waits.edges > 0 THEN 0 ELSE j.state END
        FROM (SELECT own.id, (SELECT count(*) FROM added WHERE added.job_id = own.id) AS edges
              FROM unnest(ids, flags) AS own(id, made)
              WHERE own.made AND (own.id IN (SELECT job_id FROM added) OR own.id IN (SELECT chain_id FROM added))) AS waits
        WHERE j.id = waits.id
    )
    SELECT (SELECT job_id FROM wrong),
           ARRAY(SELECT DISTINCT chain_id FROM added EXCEPT SELECT own.id FROM unnest(ids, flags) AS own(id, made) WHERE own.made)
        INTO text_of, asked;
    IF text_of IS NOT NULL THEN
        RAISE EXCEPTION 'job % would wait for itself, or for one that comes after it', text_of USING ERRCODE = 'AQ002';
    END IF;
    PERFORM set_config('lock_timeout', '100ms', true);
    FOR look IN 1..20 LOOP
        EXIT WHEN cardinality(asked) = 0;
        WITH chain AS MATERIALIZED (
            SELECT given.id AS asked,
                   coalesce((SELECT coalesce(j.chain_id, j.id) FROM @schema@.job j WHERE j.id = given.id),
                            (SELECT coalesce(a.chain_id, a.id) FROM @schema@.archive a WHERE a.id = given.id LIMIT 1),
                            given.id) AS id
            FROM unnest(asked) AS given(id)
        ), named AS (
            UPDATE @schema@.blocker b SET chain_id = chain.id FROM chain
            WHERE chain.id <> chain.asked AND b.chain_id = chain.asked AND b.job_id = ANY(ids)
        ), live AS MATERIALIZED (
            SELECT coalesce((SELECT j.id FROM @schema@.job j WHERE j.chain_id = chain.id),
                            (SELECT j.id FROM @schema@.job j WHERE j.id = chain.id)) AS id
            FROM chain
        ), locked AS MATERIALIZED (
            SELECT j.id FROM @schema@.job j WHERE j.id = ANY(ARRAY(SELECT id FROM live)) ORDER BY j.id FOR NO KEY UPDATE
        ), marked AS (
            UPDATE @schema@.job j SET marked = true WHERE j.id = ANY(ARRAY(SELECT id FROM locked))
            RETURNING coalesce(j.chain_id, j.id) AS id
        ), left_over AS (
            DELETE FROM @schema@.chain_end e
            WHERE e.chain_id = ANY(ARRAY(SELECT id FROM marked)) AND (e.untold OR e.state = 8)
        )
        SELECT ARRAY(SELECT chain.id FROM chain WHERE chain.id NOT IN (SELECT id FROM marked) ORDER BY chain.id) INTO chains;
        asked := '{}';
        FOR last IN
            SELECT chain.id AS chain_id, step.id, step.type, step.state, step.errors
            FROM unnest(chains) AS chain(id)
            LEFT JOIN LATERAL (
                SELECT found.* FROM (
                    (SELECT a.id, a.type, a.state, a.position, a.errors FROM @schema@.archive a
                     WHERE a.chain_id = chain.id ORDER BY a.position DESC LIMIT 1)
                    UNION ALL
                    (SELECT a.id, a.type, a.state, a.position, a.errors FROM @schema@.archive a
                     WHERE a.id = chain.id AND a.chain_id IS NULL LIMIT 1)) AS found
                ORDER BY found.position DESC LIMIT 1) AS step ON true
        LOOP
            text_of := NULL;
            IF last.state IN (6, 7) THEN
                how := CASE last.state WHEN 6 THEN 'failed' ELSE 'cancelled' END;
                BEGIN
                    reason := (SELECT error FROM unnest(last.errors) WITH ORDINALITY AS history(error, place)
                               ORDER BY place DESC LIMIT 1);
                    IF reason->>'type' = 'BlockerFailed' THEN
                        text_of := regexp_replace(reason->>'message', '^it waited for ', '');
                    ELSIF reason->>'type' IS NOT NULL THEN
                        how := concat_ws(': ', how, reason->>'type', nullif(reason->>'message', ''));
                    END IF;
                EXCEPTION WHEN data_exception THEN
                    NULL;  -- an entry that isn't one of ours
                END;
                text_of := coalesce(text_of, format('%s %s: %s', last.type, last.chain_id, left(how, 1000)));
            END IF;
            IF last.state IN (4, 6, 7) THEN
                INSERT INTO @schema@.chain_end AS e (chain_id, state, type, output, cause)
                SELECT last.chain_id, a.state, a.type, CASE a.state WHEN 4 THEN a.output END, coalesce(text_of, '')
                FROM (SELECT * FROM @schema@.archive a WHERE a.id = last.id AND a.state IN (4, 6, 7) LIMIT 1) AS a
                ON CONFLICT (chain_id) DO UPDATE SET state = excluded.state, type = excluded.type,
                    output = CASE e.state WHEN excluded.state THEN e.output ELSE excluded.output END,
                    cause = CASE e.state WHEN excluded.state THEN e.cause ELSE excluded.cause END;
            ELSE
                -- Of a chain whose steps were purged.
                PERFORM FROM @schema@.chain_end e WHERE e.chain_id = last.chain_id AND e.state <> 8 FOR UPDATE;
            END IF;
            IF NOT FOUND THEN
                IF last.id IS NULL AND look > 1 THEN
                    RAISE EXCEPTION 'there is no job % to wait for', last.chain_id USING ERRCODE = 'AQ001';
                END IF;
                asked := asked || last.chain_id;
            ELSE
                ended := ended || last.chain_id;
            END IF;
        END LOOP;
    END LOOP;
    IF cardinality(asked) > 0 THEN
        RAISE EXCEPTION 'the chain of job % goes on so quickly that nothing can be made to wait for it', asked[1]
            USING ERRCODE = 'lock_not_available';
    END IF;
    -- Of a chain that lives again an end may be left over: only those count that were found, and locked, by this very call.
    WITH told AS (
        UPDATE @schema@.blocker b SET resolved = true FROM @schema@.chain_end e, unnest(ids, flags) AS own(id, made)
        WHERE own.made AND b.job_id = own.id AND e.chain_id = b.chain_id AND (e.state = 4 OR b.settled) AND NOT b.resolved
          AND e.chain_id = ANY(ended)
        RETURNING b.job_id
    ), counted AS (
        UPDATE @schema@.job j SET open_blockers = j.open_blockers - ends.count,
            state = CASE WHEN j.open_blockers = ends.count THEN 1 ELSE j.state END
        FROM (SELECT job_id AS id, count(*) FROM told GROUP BY job_id) AS ends WHERE j.id = ends.id
    )
    UPDATE @schema@.chain_end e SET untold = true WHERE NOT e.untold AND e.state <> 4 AND e.chain_id = ANY(ended) AND e.chain_id IN (
        SELECT b.chain_id FROM unnest(ids, flags) AS own(id, made) JOIN @schema@.blocker b ON b.job_id = own.id
        WHERE own.made AND NOT b.settled);
    PERFORM set_config('lock_timeout', patience, true);
    IF tell THEN
        SELECT json_build_object('t', CASE WHEN octet_length(types.names::text) < 7000 THEN types.names END, 'd', types.delay)::text
            INTO note
            FROM (SELECT json_agg(DISTINCT j.type) AS names,
                         min(greatest(0, extract(epoch FROM j.run_at - clock_timestamp())::double precision)) AS delay
                  FROM unnest(ids, flags) AS own(id, made) JOIN @schema@.job j ON j.id = own.id
                  WHERE own.made AND j.state = 1) AS types
            WHERE types.names IS NOT NULL AND types.delay <= 3600;
        IF note IS NOT NULL THEN
            PERFORM pg_notify('@channel@', note);
        END IF;
    END IF;
    RETURN QUERY SELECT result.id, result.created FROM unnest(ids, flags) WITH ORDINALITY AS result(id, created, place)
        ORDER BY result.place;
END
@body@;
