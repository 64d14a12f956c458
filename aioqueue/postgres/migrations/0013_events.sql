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
    horizon xid8 NOT NULL DEFAULT pg_snapshot_xmin(pg_current_snapshot()),  -- all transactions before had ended
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
    END LOOP;
END
@body@;
