-- oldest code: 6
-- What happens to jobs is logged while somebody reads it. Code from before goes on: what it does isn't logged.

-- Who reads, and until when. While no row is valid nothing is logged: who writes looks here with the statement that does so.
CREATE TABLE @schema@.reader (
    id uuid NOT NULL PRIMARY KEY,
    expires_at timestamptz NOT NULL,
    told boolean NOT NULL,                          -- by a notification, once there is something to read
    logged_since timestamptz,                       -- from when on all of it is in the log; NULL until that is certain
    xid xid8 NOT NULL DEFAULT pg_current_xact_id()
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- Kept for minutes. Readers go by what has become visible, since a lower number may be committed later than a greater one.
CREATE TABLE @schema@.event (
    sequence bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    xid xid8 NOT NULL DEFAULT pg_current_xact_id(),
    visible pg_snapshot NOT NULL DEFAULT pg_current_snapshot(),  -- which transactions had ended: whoever has seen it has seen theirs
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    kind text NOT NULL,
    job_id uuid NOT NULL,
    chain_id uuid NOT NULL,
    type text NOT NULL,
    attempt integer NOT NULL,
    claims integer NOT NULL,
    delay double precision,                         -- seconds
    next_id uuid,
    outcome text,
    error text,                                     -- JSON, as in `job.errors`
    percent double precision,
    phase text,
    message text,
    status integer
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 5000, autovacuum_vacuum_insert_threshold = -1);

CREATE INDEX event_xid ON @schema@.event (xid);

-- Up to where the log is removed: what was visible at that time. One mark comes every half minute while somebody reads.
CREATE TABLE @schema@.event_mark (
    at timestamptz NOT NULL PRIMARY KEY,
    visible pg_snapshot NOT NULL,
    removed boolean NOT NULL DEFAULT false
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE FUNCTION @schema@.tell_readers() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @body@
BEGIN
    IF EXISTS (SELECT FROM @schema@.reader r WHERE r.told AND r.expires_at > now()) THEN
        PERFORM pg_notify('@channel@', '{"e": 1}');
    END IF;
    RETURN NULL;
END
@body@;

-- For each row: of a statement that logs nothing it costs nothing. The same note is sent once for a transaction.
CREATE TRIGGER tell_readers AFTER INSERT ON @schema@.event FOR EACH ROW EXECUTE FUNCTION @schema@.tell_readers();

-- Logs what this statement has done to live jobs: `happened`, or that they were stored. Called by statements that look whether
-- somebody reads; what they have changed is seen here.
CREATE FUNCTION @schema@.log_live(happened text, ids uuid[]) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @body@
BEGIN
    INSERT INTO @schema@.event (kind, job_id, chain_id, type, attempt, claims)
    SELECT coalesce(happened, CASE j.state WHEN 0 THEN 'blocked' ELSE 'enqueued' END), j.id, j.chain, j.type, j.attempt, j.claims
    FROM unnest(ids) WITH ORDINALITY AS given(id, place)
    CROSS JOIN LATERAL (SELECT j.*, coalesce(j.chain_id, j.id) AS chain FROM @schema@.job j WHERE j.id = given.id OFFSET 0) AS j
    ORDER BY given.place;
    RETURN NULL;
END
@body@;

-- The same of jobs that were settled: those that are archived by now, and those that are pending again. The other arguments are
-- what was given for all of them. What was recovered is logged as that before.
CREATE FUNCTION @schema@.log_settled(
    archived uuid[], returned uuid[], given_ids uuid[], kinds smallint[], errors text[], orphaned boolean) RETURNS text
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @body@
BEGIN
    WITH ended AS MATERIALIZED (
        SELECT a.* FROM unnest(archived) AS given(id)
        CROSS JOIN LATERAL (
            SELECT a.id, coalesce(a.chain_id, a.id) AS chain, a.type, a.state, a.attempt, a.claims, a.outcome,
                   CASE WHEN a.state IN (6, 7) THEN a.errors[array_upper(a.errors, 1)]::text END AS error
            FROM @schema@.archive a WHERE a.id = given.id ORDER BY a.finished_at DESC LIMIT 1) AS a
    ), next AS MATERIALIZED (
        SELECT ended.id AS of, j.* FROM ended
        CROSS JOIN LATERAL (
            SELECT j.id, j.type, j.state FROM @schema@.job j WHERE j.chain_id = ended.chain OFFSET 0) AS j
        WHERE ended.state = 5
    ), again AS MATERIALIZED (
        SELECT j.*, given.kind, given.error FROM unnest(returned) AS back(id)
        JOIN unnest(given_ids, kinds, errors) AS given(id, kind, error) ON given.id = back.id
        CROSS JOIN LATERAL (
            SELECT j.id, coalesce(j.chain_id, j.id) AS chain, j.type, j.attempt, j.claims,
                   extract(epoch FROM greatest(j.run_at, now()) - now())::float8 AS delay
            FROM @schema@.job j WHERE j.id = back.id OFFSET 0) AS j
    )
    INSERT INTO @schema@.event (kind, job_id, chain_id, type, attempt, claims, delay, next_id, outcome, error)
    SELECT 'reaped', id, chain, type, attempt, claims, NULL::float8, NULL::uuid, NULL, NULL FROM ended WHERE orphaned
    UNION ALL
    SELECT 'reaped', id, chain, type, attempt, claims, NULL, NULL, NULL, NULL FROM again WHERE orphaned
    UNION ALL
    SELECT CASE state WHEN 4 THEN 'completed' WHEN 5 THEN 'continued' WHEN 6 THEN 'failed' ELSE 'cancelled' END, id, chain, type,
           attempt, claims, NULL, (SELECT next.id FROM next WHERE next.of = ended.id), outcome, error
    FROM ended
    UNION ALL
    SELECT CASE kind WHEN 8 THEN 'retrying' ELSE 'rescheduled' END, id, chain, type, attempt, claims, delay, NULL, NULL, error
    FROM again
    UNION ALL
    SELECT CASE next.state WHEN 0 THEN 'blocked' ELSE 'enqueued' END, next.id, ended.chain, next.type, 0, 0, NULL, NULL, NULL, NULL
    FROM next JOIN ended ON ended.id = next.of;
    RETURN NULL;
END
@body@;

-- Whoever may write jobs may log what has become of them.
DO @body@
DECLARE
    given record;
BEGIN
    FOR given IN
        SELECT string_agg(DISTINCT acl.privilege_type, ', ') AS privileges,
               CASE acl.grantee WHEN 0 THEN 'PUBLIC' ELSE acl.grantee::regrole::text END AS grantee
        FROM pg_class c CROSS JOIN LATERAL aclexplode(c.relacl) AS acl
        WHERE c.oid = format('%I.job', @schema_text@)::regclass
          AND acl.privilege_type IN ('SELECT', 'INSERT', 'UPDATE', 'DELETE')
        GROUP BY acl.grantee
    LOOP
        EXECUTE format('GRANT %s ON %I.reader, %I.event, %I.event_mark TO %s',
                       given.privileges, @schema_text@, @schema_text@, @schema_text@, given.grantee);
        EXECUTE format('GRANT SELECT, INSERT ON %I.event TO %s', @schema_text@, given.grantee);
        EXECUTE format('GRANT SELECT ON %I.reader TO %s', @schema_text@, given.grantee);
        EXECUTE format('GRANT EXECUTE ON FUNCTION %1$I.log_live, %1$I.log_settled, %1$I.tell_readers TO %2$s',
                       @schema_text@, given.grantee);
    END LOOP;
END
@body@;

-- Stores jobs: see 0008. What it does now beside that is to log them, where somebody reads.
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
    IF EXISTS (SELECT FROM @schema@.reader r WHERE r.expires_at > now()) THEN
        INSERT INTO @schema@.event (kind, job_id, chain_id, type, attempt, claims)
        SELECT CASE j.state WHEN 0 THEN 'blocked' ELSE 'enqueued' END, j.id, coalesce(j.chain_id, j.id), j.type, j.attempt, j.claims
        FROM unnest(ids, fates) WITH ORDINALITY AS w(id, fate, place) JOIN @schema@.job j ON j.id = w.id
        WHERE w.fate IN ('stored', 'replaced') ORDER BY w.place;
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
