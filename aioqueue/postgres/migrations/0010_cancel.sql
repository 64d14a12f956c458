-- oldest code: 6
-- Chains may be asked to end. Code from before goes on: workers of it neither hear of a request nor look at it when they write how an
-- attempt ended, so that their jobs may become pending again. Newer workers end those within seconds, unless somebody has started them.

-- This stops everybody for a moment, and does so first: a weaker lock that grew would deadlock with a claim.
ALTER TABLE @schema@.job ADD COLUMN IF NOT EXISTS cancel_reason text;  -- its chain was asked to end; such a row is marked, too

-- Which chains were asked to end and haven't yet: running ones, and those whose row somebody held. Almost always it's empty.
CREATE TABLE @schema@.cancel_request (
    chain_id uuid NOT NULL PRIMARY KEY,
    reason text NOT NULL,
    requested_at timestamptz NOT NULL DEFAULT clock_timestamp()
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

-- Whoever may read or write jobs may do so with these: they're looked at and written together.
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
        EXECUTE format('GRANT %s ON %I.cancel_request TO %s', given.privileges, @schema_text@, given.grantee);
    END LOOP;
END
@body@;
