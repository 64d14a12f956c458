-- oldest code: 6
-- Whoever ends a chain that somebody is to be told of stores what he is told, with it.

-- One message to one receiver each. Those that wait are found along the partial indexes, which are empty otherwise.
CREATE TABLE @schema@.delivery (
    id uuid NOT NULL PRIMARY KEY,                   -- also the message's, for the receiver
    job_id uuid NOT NULL,
    chain_id uuid NOT NULL,
    job_type text NOT NULL,
    event text NOT NULL,
    url text NOT NULL,
    host text NOT NULL,                             -- with the port, if there is one, in lower case
    body bytea NOT NULL,                            -- exactly what is sent
    state smallint NOT NULL DEFAULT 1,              -- 1 pending, 4 delivered, 6 failed
    tries integer NOT NULL DEFAULT 0,
    created_at timestamptz NOT NULL,
    next_at timestamptz,                            -- while it's pending
    finished_at timestamptz,
    status integer,
    response text NOT NULL DEFAULT ''
) WITH (fillfactor = 80, autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 1000);

CREATE INDEX delivery_due ON @schema@.delivery (next_at, id) WHERE state = 1;
CREATE INDEX delivery_host ON @schema@.delivery (host, next_at, id) WHERE state = 1;
CREATE INDEX delivery_state ON @schema@.delivery (state, id);
CREATE INDEX delivery_chain ON @schema@.delivery (chain_id, id);
CREATE INDEX delivery_finished ON @schema@.delivery (finished_at) WHERE finished_at IS NOT NULL;

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
        EXECUTE format('GRANT %s ON %I.delivery TO %s', given.privileges, @schema_text@, given.grantee);
    END LOOP;
END
@body@;
