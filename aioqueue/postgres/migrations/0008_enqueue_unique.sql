-- oldest code: 6
-- `enqueue_v2` takes how a unique key is kept, ids of the caller's choice, and what is only stored because others wait for it.
-- `enqueue_v1` is the same by now. What is named enqueue_ beside these two is theirs alone: none of it checks what it's given,
-- and each says what it relies on. Locks are taken in the order in which all inserts take them: unique keys by their hashes (the
-- new rows, and of those that are replaced or taken over the live rows, for which nobody waits long), marks of live rows by id,
-- blockers.

-- What stands for a key in the tables. Reads nothing.
CREATE FUNCTION @schema@.enqueue_hash(type text, key text) RETURNS uuid
LANGUAGE sql STABLE AS @body@
SELECT encode(substring(sha256(convert_to(char_length(type) || ':' || type || key, 'UTF8')) FROM 1 FOR 16), 'hex')::uuid
@body@;

-- What the jobs say, a row for each: `hashes` are those of its key under all names of its type, the one that is stored first; none
-- for one that isn't unique. `problem` says why it can't be stored. Reads nothing.
CREATE FUNCTION @schema@.enqueue_given(jobs json[])
RETURNS TABLE (place integer, id uuid, type text, names text[], payload json, priority smallint, delay double precision,
               run_at timestamptz, expires double precision, max_attempts integer, retry json, timeout double precision, key text,
               hashes uuid[], until text, seconds double precision, on_conflict text, max_delay double precision,
               chosen_id boolean, implied boolean, tags text[], metadata json, trace text, blockers json, problem text)
LANGUAGE sql STABLE AS @body@
SELECT each.place::integer, g.id, g.type, n.names, v.payload, g.priority, g.delay, g.run_at, g.expires,
       -- left out isn't the same as null, which is no limit
       CASE WHEN each.job->'max_attempts' IS NULL THEN 10 ELSE g.max_attempts END,
       -- a number alone counts too, with the worker's waits
       CASE WHEN json_typeof(v.retry) = 'object' THEN v.retry WHEN each.job->'max_attempts' IS NOT NULL THEN json '{}' END,
       g.timeout, g.key,
       CASE WHEN u.is_unique THEN ARRAY(SELECT @schema@.enqueue_hash(names.name, g.key)
                                        FROM unnest(n.names) WITH ORDINALITY AS names(name, place) ORDER BY names.place) END,
       u.until, u.seconds, u.on_conflict, g.max_delay, coalesce(g.chosen_id, false), coalesce(g.implied, false),
       CASE WHEN json_typeof(g.tags) = 'array' THEN ARRAY(SELECT json_array_elements_text(g.tags)) ELSE '{}' END,
       v.metadata, CASE WHEN char_length(g.trace) <= 1024 THEN g.trace END,
       CASE WHEN json_typeof(g.blockers) = 'array' AND g.blockers::text <> '[]' THEN g.blockers END,
       CASE
           WHEN g.type IS NULL THEN 'a job needs a type'
           WHEN json_typeof(v.payload) NOT IN ('object', 'null') OR json_typeof(v.metadata) NOT IN ('object', 'null')
                OR json_typeof(v.retry) NOT IN ('object', 'null') OR json_typeof(g.tags) NOT IN ('array', 'null')
               THEN 'payload, metadata and retry must be objects (or their text), and tags an array'
           -- PostgreSQL takes NaN for greater than infinity.
           WHEN NOT coalesce(isfinite(g.run_at), true) OR NOT coalesce(abs(g.delay) < 'infinity', true)
                OR NOT coalesce(abs(g.expires) < 'infinity', true) OR NOT coalesce(abs(g.timeout) < 'infinity', true)
               THEN 'run_at, delay, expires and timeout must be finite'
           WHEN g.chosen_id AND g.id IS NULL THEN 'chosen_id needs an id'
           WHEN NOT coalesce(g.max_delay >= 0 AND g.max_delay < 'infinity', true) THEN 'max_delay must be a number of seconds'
           WHEN g.max_delay IS NOT NULL AND g.blockers::text <> '[]' THEN 'max_delay is for jobs that wait for no others'
           WHEN NOT u.is_unique THEN NULL
           WHEN g.key IS NULL THEN 'unique needs a key'
           WHEN u.other IS NOT NULL THEN format('unique has until, window and on_conflict, and no %I', u.other)
           WHEN u.until NOT IN ('started', 'finished') THEN format('until must be "started" or "finished", not "%s"', u.until)
           WHEN u.on_conflict NOT IN ('return', 'replace', 'raise')
               THEN format('on_conflict must be "return", "replace" or "raise", not "%s"', u.on_conflict)
           WHEN NOT coalesce(u.seconds > 0 AND u.seconds < 'infinity', true) THEN 'window must be a positive number of seconds'
           WHEN u.seconds IS NOT NULL AND u.until = 'started'
               THEN 'a window counts what has finished, and until "started" frees the key before: give one of them'
       END
FROM unnest(jobs) WITH ORDINALITY AS each(job, place)
CROSS JOIN LATERAL json_to_record(each.job) AS g(
    id uuid, type text, payload json, priority smallint, delay double precision, run_at timestamptz, expires double precision,
    max_attempts integer, retry json, timeout double precision, key text, "unique" json, aliases json, max_delay double precision,
    chosen_id boolean, implied boolean, tags json, metadata json, trace text, blockers json)
CROSS JOIN LATERAL (
    SELECT coalesce(CASE WHEN json_typeof(g.payload) = 'string' THEN (g.payload #>> '{}')::json ELSE g.payload END, '{}') AS payload,
           coalesce(CASE WHEN json_typeof(g.metadata) = 'string' THEN (g.metadata #>> '{}')::json ELSE g.metadata END, '{}')
               AS metadata,
           CASE WHEN json_typeof(g.retry) = 'string' THEN (g.retry #>> '{}')::json ELSE g.retry END AS retry) AS v
CROSS JOIN LATERAL (
    SELECT CASE WHEN json_typeof(g.aliases) = 'array'
                THEN ARRAY(SELECT json_array_elements_text(g.aliases)) || g.type ELSE ARRAY[g.type] END AS names) AS n
CROSS JOIN LATERAL (
    SELECT CASE WHEN json_typeof(g."unique") = 'object' THEN true ELSE coalesce((g."unique" #>> '{}')::boolean, false) END
               AS is_unique,
           coalesce(CASE WHEN json_typeof(g."unique") = 'object' THEN g."unique"->>'until' END, 'finished') AS until,
           CASE WHEN json_typeof(g."unique") = 'object' THEN (g."unique"->>'window')::double precision END AS seconds,
           coalesce(CASE WHEN json_typeof(g."unique") = 'object' THEN g."unique"->>'on_conflict' END, 'return') AS on_conflict,
           CASE WHEN json_typeof(g."unique") = 'object' THEN
               (SELECT min(name) FROM json_object_keys(g."unique") AS name WHERE name NOT IN ('until', 'window', 'on_conflict'))
           END AS other) AS u
@body@;

-- Which of these ids are there, live or finished, as a job's or as a chain's; and of what type, where that job is left.
CREATE FUNCTION @schema@.enqueue_present(ids uuid[]) RETURNS TABLE (id uuid, type text)
LANGUAGE sql STABLE AS @body@
SELECT given.id, step.type
FROM unnest(ids) AS given(id)
LEFT JOIN LATERAL (
    SELECT j.type FROM @schema@.job j WHERE j.id = given.id
    UNION ALL SELECT a.type FROM @schema@.archive a WHERE a.id = given.id LIMIT 1) AS step ON true
WHERE step.type IS NOT NULL OR EXISTS (SELECT FROM @schema@.job c WHERE c.chain_id = given.id)
   OR EXISTS (SELECT FROM @schema@.archive c WHERE c.chain_id = given.id)
@body@;

-- The live job that holds one of these keys, and its chain. It isn't locked: by the next statement somebody else may hold the key.
CREATE FUNCTION @schema@.enqueue_holder(hashes uuid[]) RETURNS TABLE (id uuid, chain_id uuid)
LANGUAGE sql STABLE AS @body@
SELECT j.id, coalesce(j.chain_id, j.id) FROM @schema@.job j
WHERE j.unique_key = ANY(hashes) AND NOT (j.until_started AND j.claims > 0) LIMIT 1
@body@;

-- Whether a chain has completed: then no step of it is live, and its last one says so. Locks nothing.
CREATE FUNCTION @schema@.enqueue_completed(chain uuid) RETURNS boolean
LANGUAGE plpgsql STABLE AS @body@
BEGIN
    RETURN coalesce((SELECT a.state = 4 FROM @schema@.archive a WHERE a.chain_id = chain ORDER BY a.position DESC LIMIT 1),
                    (SELECT a.state = 4 FROM @schema@.archive a WHERE a.id = chain LIMIT 1), false);
END
@body@;

-- Stores those of the jobs that have an id here, as pending, in the order of ids; gives those that weren't there. A key that
-- somebody's open transaction holds, or an id, is waited for until that ends. Whoever stores several keys calls it in the order
-- of their hashes.
CREATE FUNCTION @schema@.enqueue_insert(jobs json[], ids uuid[]) RETURNS uuid[]
LANGUAGE plpgsql AS @body@
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
    made uuid[];
BEGIN
    WITH created AS (
        INSERT INTO @schema@.job (id, type, priority, run_at, expires_at, max_attempts, timeout, key, unique_key, until_started,
                                  created_at, trace, tags, retry, metadata, payload)
        SELECT ids[g.place], g.type, coalesce(g.priority, 2::smallint), due.at, due.at + g.expires * interval '1 second',
               g.max_attempts, g.timeout, g.key, g.hashes[1], g.hashes IS NOT NULL AND g.until = 'started',
               clock, g.trace, g.tags, g.retry, g.metadata, g.payload
        FROM @schema@.enqueue_given(jobs) AS g CROSS JOIN LATERAL (
            SELECT greatest(clock, coalesce(g.run_at, clock + g.delay * interval '1 second', clock)) AS at) AS due
        WHERE ids[g.place] IS NOT NULL ORDER BY ids[g.place]
        ON CONFLICT DO NOTHING RETURNING id
    )
    SELECT array_agg(id) INTO made FROM created;
    RETURN coalesce(made, '{}');
END
@body@;

-- Keeps a key until the end of a window, for a chain that holds it by now; or gives the completed chain whose window isn't over.
-- The chain's row has been stored in this transaction, or is locked, by an earlier statement: so nobody else has come this far, and
-- who held the key before has ended, and is seen here. `anyway`: its holder hasn't ended, and windows of others don't count.
CREATE FUNCTION @schema@.enqueue_window(hashes uuid[], chain uuid, seconds double precision, anyway boolean) RETURNS uuid
LANGUAGE plpgsql AS @body@
DECLARE
    clock timestamptz := clock_timestamp();
    holder uuid;
BEGIN
    IF NOT anyway THEN
        SELECT d.chain_id INTO holder FROM @schema@.dedup d
        WHERE d.key = ANY(hashes[2:]) AND d.expires_at > clock AND @schema@.enqueue_completed(d.chain_id) LIMIT 1;
        IF FOUND THEN
            RETURN holder;
        END IF;
    END IF;
    INSERT INTO @schema@.dedup AS d (key, chain_id, expires_at) VALUES (hashes[1], chain, clock + seconds * interval '1 second')
    ON CONFLICT (key) DO UPDATE SET chain_id = excluded.chain_id, expires_at = excluded.expires_at
    WHERE anyway OR NOT (d.expires_at > clock AND @schema@.enqueue_completed(d.chain_id));
    IF NOT FOUND THEN
        SELECT d.chain_id INTO holder FROM @schema@.dedup d WHERE d.key = hashes[1];
    END IF;
    RETURN holder;
END
@body@;

-- Gives a waiting first job what was given for another one. Its row is locked. It keeps what it waits for since it took a key over.
CREATE FUNCTION @schema@.enqueue_replace(job json, holder uuid) RETURNS void
LANGUAGE plpgsql AS @body@
#variable_conflict use_column
DECLARE
    clock timestamptz := clock_timestamp();
BEGIN
    DELETE FROM @schema@.blocker b WHERE b.job_id = holder AND b.ordinal <> 1000000;
    UPDATE @schema@.job j
    SET type = g.type, key = g.key, priority = coalesce(g.priority, 2::smallint), run_at = due.at,
        expires_at = due.at + g.expires * interval '1 second', max_attempts = g.max_attempts, timeout = g.timeout,
        until_started = g.until = 'started', trace = g.trace, tags = g.tags, retry = g.retry, metadata = g.metadata,
        payload = g.payload, attempt = 0, reschedules = 0, started_at = NULL, open_blockers = waits.open,
        state = CASE WHEN waits.open > 0 THEN 0 ELSE 1 END
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

-- Stores a job that takes a key from its holder, whose row is locked, and waits for the end of that one's chain, however it ends.
-- False if the job is there already: then nothing has changed.
CREATE FUNCTION @schema@.enqueue_take_over(job json, own uuid, holder uuid) RETURNS boolean
LANGUAGE plpgsql AS @body@
#variable_conflict use_column
DECLARE
    held uuid;
    chain uuid;
BEGIN
    SELECT j.unique_key, coalesce(j.chain_id, j.id) INTO held, chain FROM @schema@.job j WHERE j.id = holder;
    UPDATE @schema@.job j SET unique_key = NULL, marked = true WHERE j.id = holder;
    IF @schema@.enqueue_insert(ARRAY[job], ARRAY[own]) = '{}' THEN
        UPDATE @schema@.job j SET unique_key = held WHERE j.id = holder;
        RETURN false;
    END IF;
    -- That a live chain has ended can only be left over: from one with the same id that was deleted.
    DELETE FROM @schema@.chain_end e WHERE e.chain_id = chain AND (e.untold OR e.state = 8);
    INSERT INTO @schema@.blocker (job_id, ordinal, chain_id, settled, places) VALUES (own, 1000000, chain, true, '[]')
    ON CONFLICT (job_id, ordinal) DO UPDATE SET chain_id = excluded.chain_id, settled = true, places = '[]', resolved = false;
    UPDATE @schema@.job j SET marked = true, open_blockers = 1, state = 0 WHERE j.id = own;
    RETURN true;
END
@body@;

-- Stores one job with a unique key or a chosen id, unless that is there. `fate` is: stored; replaced, with `id` the holder's;
-- held, with `id` whoever's it is; duplicate, or other type, with `id` the reason, which are errors if the job is wanted at all.
-- Callers go in the order of hashes. The row of a holder that is replaced or taken over is waited for for a tenth of a second.
CREATE FUNCTION @schema@.enqueue_one(job json, own uuid, OUT id uuid, OUT fate text)
LANGUAGE plpgsql AS @body@
#variable_conflict use_column
DECLARE
    patience text := current_setting('lock_timeout');
    wanted record;
    there record;
    kept uuid;
BEGIN
    SELECT * INTO wanted FROM @schema@.enqueue_given(ARRAY[job]) AS g;
    -- Each statement sees what the one before has waited for.
    LOOP
        IF wanted.chosen_id THEN
            SELECT p.type INTO there FROM @schema@.enqueue_present(ARRAY[own]) AS p;
        ELSE
            SELECT NULL::text AS type INTO there FROM @schema@.job j WHERE j.id = own;
        END IF;
        IF FOUND THEN
            id := own;
            fate := CASE WHEN there.type = ANY(wanted.names) OR there.type IS NULL THEN 'held' ELSE 'other type' END;
            RETURN;
        END IF;
        SELECT h.id, h.chain_id INTO there FROM @schema@.enqueue_holder(wanted.hashes) AS h;
        IF NOT FOUND THEN
            CONTINUE WHEN @schema@.enqueue_insert(ARRAY[job], ARRAY[own]) = '{}';
            IF wanted.chosen_id AND EXISTS (SELECT FROM @schema@.archive a WHERE a.id = own OR a.chain_id = own) THEN
                -- It was written, run and archived while this waited for it.
                DELETE FROM @schema@.job j WHERE j.id = own;
                CONTINUE;
            END IF;
            IF wanted.seconds IS NOT NULL THEN
                kept := @schema@.enqueue_window(wanted.hashes, own, wanted.seconds, false);
            END IF;
            IF kept IS NOT NULL THEN
                DELETE FROM @schema@.job j WHERE j.id = own;
            END IF;
            id := coalesce(kept, own);
            fate := CASE WHEN kept IS NULL THEN 'stored' WHEN wanted.on_conflict = 'raise' THEN 'duplicate' ELSE 'held' END;
            RETURN;
        END IF;
        IF wanted.on_conflict <> 'replace' THEN
            id := there.chain_id;
            fate := CASE wanted.on_conflict WHEN 'raise' THEN 'duplicate' ELSE 'held' END;
            RETURN;
        END IF;
        PERFORM set_config('lock_timeout', '100ms', true);
        SELECT j.id, coalesce(j.chain_id, j.id) AS chain_id, j.position, j.state INTO there FROM @schema@.job j
        WHERE j.id = there.id AND j.unique_key = ANY(wanted.hashes) AND NOT (j.until_started AND j.claims > 0) FOR UPDATE;
        PERFORM set_config('lock_timeout', patience, true);
        CONTINUE WHEN there.id IS NULL;
        IF there.position = 0 AND there.state IN (0, 1) THEN
            PERFORM @schema@.enqueue_replace(job, there.id);
            id := there.chain_id;
            fate := 'replaced';
        ELSIF @schema@.enqueue_take_over(job, own, there.id) THEN
            id := own;
            fate := 'stored';
        ELSE
            CONTINUE;
        END IF;
        IF wanted.seconds IS NOT NULL THEN
            PERFORM @schema@.enqueue_window(wanted.hashes, id, wanted.seconds, true);
        END IF;
        RETURN;
    END LOOP;
END
@body@;

-- Decides about the jobs with a unique key or a chosen id, which are `to_decide`, by places and in the order of the hashes, and
-- then which jobs are stored only since others wait for them, and aren't needed. `simple` are those whose keys are the only
-- thing to look at. Fates are those of `enqueue_one`, unneeded, and none for what is still to be stored. `left_out` are places
-- of jobs that aren't needed as far as is known: where it turns out otherwise, or one was stored that isn't needed, an error
-- says which ones they are, so that the caller undoes all of it and tries again (AQ099).
CREATE FUNCTION @schema@.enqueue_decide(
    given json[], own uuid[], to_decide integer[], simple integer[], any_implied boolean, left_out integer[],
    OUT ids uuid[], OUT fates text[])
LANGUAGE plpgsql AS @body@
#variable_conflict use_column
DECLARE
    turn integer;
    each record;
    decided record;
    unneeded integer[];
    surplus integer[];
BEGIN
    ids := own;
    fates := array_fill(NULL::text, ARRAY[cardinality(own)]);
    FOREACH turn IN ARRAY to_decide LOOP
        CONTINUE WHEN turn = ANY(left_out);
        -- Most keys are free.
        IF turn = ANY(simple) THEN
            IF @schema@.enqueue_insert(given[turn:turn], own[turn:turn]) <> '{}' THEN
                fates[turn] := 'stored';
                CONTINUE;
            END IF;
        END IF;
        SELECT one.id, one.fate INTO decided FROM @schema@.enqueue_one(given[turn], own[turn]) AS one;
        ids[turn] := decided.id;
        fates[turn] := decided.fate;
    END LOOP;
    IF any_implied THEN
        WITH RECURSIVE job AS MATERIALIZED (
            SELECT g.place, g.implied, g.blockers, g.hashes IS NOT NULL OR g.chosen_id AS special
            FROM @schema@.enqueue_given(given) AS g
        ), edge AS MATERIALIZED (
            SELECT job.place, other.place AS needs
            FROM job CROSS JOIN LATERAL json_array_elements(job.blockers) AS b(value)
            JOIN (SELECT o.id, min(o.place)::integer AS place FROM unnest(own) WITH ORDINALITY AS o(id, place) GROUP BY o.id) AS other
                ON other.id = (b.value->>'chain_id')::uuid
        ), needed(place) AS (
            SELECT job.place FROM job WHERE NOT job.implied
            UNION
            SELECT edge.needs FROM needed JOIN edge ON edge.place = needed.place
            WHERE coalesce(fates[needed.place], 'stored') IN ('stored', 'replaced')
        )
        SELECT coalesce(array_agg(job.place), '{}'),
               coalesce(array_agg(job.place) FILTER (WHERE job.special AND (fates[job.place] IN ('stored', 'replaced')
                                                                            OR job.place = ANY(left_out))), '{}')
            INTO unneeded, surplus
            FROM job WHERE job.place NOT IN (SELECT needed.place FROM needed);
        IF NOT (surplus <@ left_out AND left_out <@ surplus) THEN
            RAISE EXCEPTION '%', surplus USING ERRCODE = 'AQ099';
        END IF;
        FOR each IN SELECT place FROM unnest(unneeded) AS place LOOP
            ids[each.place] := own[each.place];
            fates[each.place] := 'unneeded';
        END LOOP;
    END IF;
    IF fates && '{duplicate, other type}' THEN
        SELECT g.type, g.key, w.id, w.fate INTO each
            FROM unnest(ids, fates) WITH ORDINALITY AS w(id, fate, place) JOIN @schema@.enqueue_given(given) AS g ON g.place = w.place
            WHERE w.fate IN ('duplicate', 'other type') ORDER BY w.place LIMIT 1;
        IF each.fate = 'duplicate' THEN
            RAISE EXCEPTION 'the key % of % is held by the chain %', to_json(each.key), each.type, each.id
                USING ERRCODE = 'AQ003', DETAIL = each.id::text;
        ELSIF each.fate = 'other type' THEN
            RAISE EXCEPTION 'the job % is there already, and is no %', each.id, each.type USING ERRCODE = 'AQ004', DETAIL = each.id::text;
        END IF;
    END IF;
END
@body@;

-- Gives the jobs of a batch what they wait for. Their rows are stored or locked, and their fates known; of two for one row the
-- later one counts. What hasn't ended is marked, by a write also where it's marked already, so that whoever ends it at that
-- moment is seen or sees who waits. What has completed counts at once; of what has failed any worker tells within seconds. Rows
-- that others have locked are waited for for a tenth of a second.
CREATE FUNCTION @schema@.enqueue_blockers(given json[], own uuid[], ids uuid[], fates text[]) RETURNS void
LANGUAGE plpgsql AS @body@
#variable_conflict use_column
DECLARE
    patience text := current_setting('lock_timeout');
    waiting uuid[];
    rewritten uuid[];
    asked uuid[];
    chains uuid[];
    ended uuid[] := '{}';
    last record;
    reason json;
    how text;
    text_of text;
BEGIN
    -- What waits is there as blocked, with all that it waits for: as it was given, or the chain that holds the unique key.
    WITH written AS MATERIALIZED (
        SELECT w.id, max(w.place)::integer AS place, bool_or(w.fate = 'replaced') AS replaced
        FROM unnest(ids, fates) WITH ORDINALITY AS w(id, fate, place)
        WHERE w.fate IN ('stored', 'replaced') GROUP BY w.id
    ), edge AS MATERIALIZED (
        SELECT written.id AS job_id, written.replaced, b.place::integer - 1 AS ordinal,
               coalesce(ids[other.place], (b.value->>'chain_id')::uuid) AS chain_id,
               coalesce((b.value->>'settled')::boolean, false) AS settled,
               CASE json_typeof(b.value->'places') WHEN 'string' THEN (b.value->>'places')::json
                    WHEN 'array' THEN b.value->'places' ELSE '[]' END AS places
        FROM written JOIN @schema@.enqueue_given(given) AS g ON g.place = written.place
        CROSS JOIN LATERAL json_array_elements(g.blockers) WITH ORDINALITY AS b(value, place)
        LEFT JOIN (SELECT o.id, min(o.place) AS place FROM unnest(own) WITH ORDINALITY AS o(id, place) GROUP BY o.id) AS other
            ON other.id = (b.value->>'chain_id')::uuid
    ), left_over AS (
        -- of a job with the same id that was deleted by SQL
        DELETE FROM @schema@.blocker b USING (SELECT job_id, max(ordinal) AS last FROM edge GROUP BY job_id) AS added
        WHERE b.job_id = added.job_id AND b.ordinal > added.last AND b.ordinal < 1000000
    ), added AS (
        INSERT INTO @schema@.blocker (job_id, ordinal, chain_id, settled, places)
        SELECT job_id, ordinal, chain_id, settled, places FROM edge
        ON CONFLICT (job_id, ordinal) DO UPDATE
        SET chain_id = excluded.chain_id, settled = excluded.settled, places = excluded.places, resolved = false
        RETURNING job_id, chain_id
    ), blocked AS (
        UPDATE @schema@.job j
        SET marked = true, open_blockers = j.open_blockers + waits.edges,
            state = CASE WHEN j.open_blockers + waits.edges > 0 THEN 0 ELSE j.state END
        FROM (SELECT written.id, count(added.job_id) AS edges FROM written LEFT JOIN added ON added.job_id = written.id
              WHERE written.id IN (SELECT job_id FROM added) OR written.id IN (SELECT chain_id FROM added)
              GROUP BY written.id) AS waits
        WHERE j.id = waits.id
    )
    SELECT ARRAY(SELECT DISTINCT job_id FROM edge), ARRAY(SELECT DISTINCT job_id FROM edge WHERE replaced),
           ARRAY(SELECT DISTINCT chain_id FROM edge EXCEPT SELECT id FROM written)
        INTO waiting, rewritten, asked;
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
            WHERE chain.id <> chain.asked AND b.chain_id = chain.asked AND b.job_id = ANY(waiting)
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
    PERFORM @schema@.enqueue_refuse_circles(rewritten, waiting);
    -- Of a chain that lives again an end may be left over: only those count that were found, and locked, by this very call.
    WITH told AS (
        UPDATE @schema@.blocker b SET resolved = true FROM @schema@.chain_end e
        WHERE b.job_id = ANY(waiting) AND e.chain_id = b.chain_id AND (e.state = 4 OR b.settled) AND NOT b.resolved
          AND e.chain_id = ANY(ended)
        RETURNING b.job_id
    ), counted AS (
        UPDATE @schema@.job j SET open_blockers = j.open_blockers - ends.count,
            state = CASE WHEN j.open_blockers = ends.count THEN 1 ELSE j.state END
        FROM (SELECT job_id AS id, count(*) FROM told GROUP BY job_id) AS ends WHERE j.id = ends.id
    )
    UPDATE @schema@.chain_end e SET untold = true WHERE NOT e.untold AND e.state <> 4 AND e.chain_id = ANY(ended) AND e.chain_id IN (
        SELECT b.chain_id FROM @schema@.blocker b WHERE b.job_id = ANY(waiting) AND NOT b.settled);
    PERFORM set_config('lock_timeout', patience, true);
END
@body@;

-- Refuses that one of these jobs, which were replaced, waits for itself through whatever others. Only such edges can close a
-- circle, as nobody waits for a new job yet. All edges of the batch are stored, and what they lead to was marked by an earlier
-- statement: so if what is waited for waits for nothing, there's no circle. If it does wait, those who write such edges come
-- here one by one.
CREATE FUNCTION @schema@.enqueue_refuse_circles(replaced uuid[], waiting uuid[]) RETURNS void
LANGUAGE plpgsql AS @body@
DECLARE
    circle uuid;
BEGIN
    IF cardinality(replaced) = 0 THEN
        RETURN;
    END IF;
    IF current_setting('transaction_isolation') IN ('repeatable read', 'serializable') THEN
        RAISE EXCEPTION 'a job that is replaced may wait for itself unseen in a % transaction: begin it as READ COMMITTED',
            upper(current_setting('transaction_isolation')) USING ERRCODE = 'invalid_transaction_state';
    END IF;
    IF NOT EXISTS (
        SELECT FROM @schema@.blocker b JOIN @schema@.job j ON (j.id = b.chain_id OR j.chain_id = b.chain_id) AND j.state + 0 = 0
        JOIN @schema@.blocker behind ON behind.job_id = j.id AND NOT behind.resolved
        WHERE b.job_id = ANY(waiting) AND NOT b.resolved) THEN
        RETURN;
    END IF;
    PERFORM pg_advisory_xact_lock(@cycles_lock@);
    WITH RECURSIVE reached(start, id) AS (
        SELECT b.job_id, b.chain_id FROM @schema@.blocker b WHERE b.job_id = ANY(replaced) AND NOT b.resolved
        UNION
        SELECT reached.start, edge.chain_id FROM reached CROSS JOIN LATERAL (
            SELECT b.chain_id
            FROM (SELECT j.id FROM @schema@.job j WHERE j.chain_id = reached.id AND j.state + 0 = 0
                  UNION ALL SELECT j.id FROM @schema@.job j WHERE j.id = reached.id AND j.state + 0 = 0) AS live
            CROSS JOIN LATERAL (
                SELECT b.chain_id FROM @schema@.blocker b WHERE b.job_id = live.id AND NOT b.resolved OFFSET 0) AS b) AS edge
    )
    SELECT start INTO circle FROM reached WHERE id = start LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'job % would wait for itself: what it waits for waits for it', circle USING ERRCODE = 'AQ002';
    END IF;
END
@body@;

-- Refuses that a job waits for itself, or for one that comes after it in the array. Reads nothing.
CREATE FUNCTION @schema@.enqueue_refuse_order(given json[], own uuid[]) RETURNS void
LANGUAGE plpgsql AS @body@
DECLARE
    wrong uuid;
BEGIN
    SELECT own[g.place] INTO wrong
        FROM @schema@.enqueue_given(given) AS g CROSS JOIN LATERAL json_array_elements(g.blockers) AS b(value)
        JOIN (SELECT o.id, min(o.place) AS place FROM unnest(own) WITH ORDINALITY AS o(id, place) GROUP BY o.id) AS other
            ON other.id = (b.value->>'chain_id')::uuid
        WHERE other.place >= g.place ORDER BY g.place LIMIT 1;
    IF FOUND THEN
        RAISE EXCEPTION 'job % would wait for itself, or for one that comes after it', wrong USING ERRCODE = 'AQ002';
    END IF;
END
@body@;

-- For drivers other than our own, psql and triggers: stores jobs, and says of each, in order, whose id is there for it and
-- whether it was created. `jobs` is an array of objects, or one object, with `type` and optionally these:
--   payload, metadata, retry   objects, or text that holds them: json's operators can't pass on "\u0000"
--   priority, tags, key, timeout, max_attempts, trace (W3C's traceparent and tracestate; what is too long isn't stored)
--   delay or run_at, expires   seconds, a time, seconds
--   id                         what is unfinished with it is left as it is. One that has finished isn't looked for, unless with
--   chosen_id                  true: whoever gives the same id again means the same job, so that repeating a call is safe whenever
--                              that happens. Another type's job with it is an error (AQ004)
--   unique, aliases            true, or an object: `until` "finished" (the default) or "started", `window` in seconds, and `on_conflict`
--                              "return" (the default; the id is that of the chain that holds the key), "replace" or "raise" (AQ003,
--                              whose detail is the chain's id). Aliases are older names of the type, under which a key counts too
--   max_delay                  seconds after the creation of a job that is replaced in which it is due at the latest
--   blockers                   an array of objects: `chain_id` (any job's id of a chain, or the `id` of a job that comes before it in
--                              the array), and optionally `settled` and `places`. AQ001: there is no such chain. AQ002: a job waits
--                              for itself, or for one behind it
--   implied                    true: it's only stored since others of the array wait for it, if one of these is
-- Rows that others have locked are waited for briefly (55P03), but for unique keys, for which `lock_timeout` counts.
CREATE OR REPLACE FUNCTION @schema@.enqueue_v2(jobs json, tell boolean DEFAULT true)
RETURNS TABLE (id uuid, created boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp
-- As on our own connections: nothing is better off reading a whole table, and planning takes longer than all else.
SET plan_cache_mode = force_generic_plan SET enable_seqscan = off SET enable_bitmapscan = off SET jit = off AS @body@
#variable_conflict use_column
DECLARE
    given json[] := ARRAY(
        SELECT value FROM json_array_elements(CASE json_typeof(jobs) WHEN 'object' THEN json_build_array(jobs) ELSE jobs END));
    clock timestamptz := clock_timestamp();
    own uuid[];
    ids uuid[];
    fates text[];
    made uuid[];
    order_of integer[];
    left_out integer[] := '{}';
    batch record;
    note text;
BEGIN
    SELECT array_agg(coalesce(g.id, encode(set_bit(set_bit(overlay(
               uuid_send(gen_random_uuid()) PLACING substring(int8send((extract(epoch FROM clock) * 1000)::bigint) FROM 3)
               FROM 1 FOR 6), 52, 1), 53, 1), 'hex')::uuid) ORDER BY g.place) AS ids,
           (array_agg(g.problem ORDER BY g.place) FILTER (WHERE g.problem IS NOT NULL))[1] AS problem,
           array_agg(g.place ORDER BY g.hashes[1] NULLS FIRST, CASE WHEN g.hashes IS NULL THEN g.id END, g.place)
               FILTER (WHERE g.hashes IS NOT NULL OR g.chosen_id) AS to_decide,
           array_agg(g.place) FILTER (WHERE cardinality(g.hashes) = 1 AND g.seconds IS NULL AND NOT g.chosen_id) AS simple,
           bool_or(g.implied) AS implies, bool_or((g.hashes IS NOT NULL OR g.chosen_id) AND g.implied) AS may_undo,
           bool_or(g.blockers IS NOT NULL) AS waits
        INTO batch FROM @schema@.enqueue_given(given) AS g;
    IF batch.problem IS NOT NULL THEN
        RAISE EXCEPTION '%', batch.problem USING ERRCODE = 'invalid_parameter_value';
    ELSIF batch.ids IS NULL THEN
        RETURN;
    END IF;
    own := batch.ids;
    IF batch.waits THEN
        PERFORM @schema@.enqueue_refuse_order(given, own);
    END IF;
    IF batch.to_decide IS NULL AND NOT batch.implies THEN
        ids := own;
        made := @schema@.enqueue_insert(given, ids);
    ELSE
        order_of := coalesce(batch.to_decide, '{}');
        -- What turns out not to be needed may have replaced others: then all of it is undone, and decided again without it.
        FOR look IN 1..20 LOOP
            IF NOT batch.may_undo THEN
                SELECT d.ids, d.fates INTO ids, fates
                    FROM @schema@.enqueue_decide(given, own, order_of, batch.simple, batch.implies, '{}') AS d;
                EXIT;
            END IF;
            BEGIN
                SELECT d.ids, d.fates INTO ids, fates
                    FROM @schema@.enqueue_decide(given, own, order_of, batch.simple, true, left_out) AS d;
                EXIT;
            EXCEPTION WHEN SQLSTATE 'AQ099' THEN
                left_out := SQLERRM::integer[];
            END;
        END LOOP;
        IF ids IS NULL THEN
            RAISE EXCEPTION 'keys change hands so quickly that it can''t be said which jobs are needed'
                USING ERRCODE = 'lock_not_available';
        END IF;
        made := @schema@.enqueue_insert(given, ARRAY(
            SELECT CASE WHEN w.fate IS NULL THEN w.id END FROM unnest(ids, fates) WITH ORDINALITY AS w(id, fate, place)
            ORDER BY w.place));
    END IF;
    IF fates IS NULL AND cardinality(made) = cardinality(ids) THEN
        fates := array_fill('stored'::text, ARRAY[cardinality(ids)]);
    ELSE
        -- Of two with the same id the first one was stored.
        SELECT array_agg(coalesce(w.fate, CASE WHEN m.id IS NOT NULL AND w.nth = 1 THEN 'stored' ELSE 'held' END) ORDER BY w.place)
            INTO fates
            FROM (SELECT o.id, o.fate, o.place, row_number() OVER (PARTITION BY o.id, o.fate ORDER BY o.place) AS nth
                  FROM unnest(ids, coalesce(fates, '{}')) WITH ORDINALITY AS o(id, fate, place)) AS w
            LEFT JOIN unnest(made) AS m(id) ON m.id = w.id;
    END IF;
    IF batch.waits THEN
        PERFORM @schema@.enqueue_blockers(given, own, ids, fates);
    END IF;
    IF tell THEN
        SELECT json_build_object('t', CASE WHEN octet_length(types.names::text) < 7000 THEN types.names END, 'd', types.delay)::text
            INTO note
            FROM (SELECT json_agg(DISTINCT j.type) AS names,
                         min(greatest(0, extract(epoch FROM j.run_at - clock_timestamp())::double precision)) AS delay
                  FROM unnest(ids, fates) AS w(id, fate) JOIN @schema@.job j ON j.id = w.id
                  WHERE w.fate IN ('stored', 'replaced') AND j.state + 0 = 1) AS types
            WHERE types.names IS NOT NULL AND types.delay <= 3600;
        IF note IS NOT NULL THEN
            PERFORM pg_notify('@channel@', note);
        END IF;
    END IF;
    RETURN QUERY SELECT w.id, w.fate = 'stored' FROM unnest(ids, fates) WITH ORDINALITY AS w(id, fate, place) ORDER BY w.place;
END
@body@;

-- What producers from before call, whose jobs have less to say.
CREATE OR REPLACE FUNCTION @schema@.enqueue_v1(jobs json, tell boolean DEFAULT true)
RETURNS TABLE (id uuid, created boolean)
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @body@
BEGIN
    RETURN QUERY SELECT stored.id, stored.created FROM @schema@.enqueue_v2(jobs, tell) AS stored;
END
@body@;
