-- oldest code: 6
-- What people have said isn't to be started for now. Code from before doesn't look at it: upgrade all workers before the first pause.

-- The view comes first, as whoever reads it locks it and then the tables.
CREATE OR REPLACE VIEW @schema@.jobs AS
SELECT job.id, job.type,
       CASE job.state
           WHEN 0 THEN CASE WHEN job.open_blockers > 0 THEN 'blocked' ELSE 'held' END
           WHEN 1 THEN CASE WHEN job.run_at <= now() THEN 'ready' ELSE 'scheduled' END
           WHEN 2 THEN 'running'
           ELSE job.state::text
       END AS state,
       job.priority, job.run_at, job.attempt, job.max_attempts, job.reschedules, lease.worker, job.key, job.tags,
       job.created_at, job.started_at, NULL::timestamptz AS finished_at, job.expires_at, NULL::text AS outcome,
       job.payload, job.metadata, NULL::json AS output, job.errors, coalesce(job.chain_id, job.id) AS chain_id, job.position,
       job.open_blockers, CASE job.state WHEN 0 THEN job.gate END AS held_by, job.origin
FROM @schema@.job LEFT JOIN @schema@.lease ON job.state = 2 AND lease.id = job.lease_id
UNION ALL
SELECT id, type,
       CASE state WHEN 4 THEN 'completed' WHEN 5 THEN 'continued' WHEN 6 THEN 'failed' WHEN 7 THEN 'cancelled' ELSE state::text END,
       priority, run_at, attempt, max_attempts, reschedules, NULL, key, tags,
       created_at, started_at, finished_at, expires_at, outcome, payload, metadata, output, errors,
       coalesce(chain_id, id), position, 0, NULL, origin
FROM @schema@.archive;

CREATE TABLE @schema@.pause (
    target text NOT NULL,                           -- all, type, key
    value text NOT NULL,                            -- the type's name, or the key; empty for all
    by text NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    until timestamptz,
    PRIMARY KEY (target, value, by)
) WITH (autovacuum_vacuum_scale_factor = 0.05, autovacuum_vacuum_threshold = 100);

CREATE INDEX pause_until ON @schema@.pause (until) WHERE until IS NOT NULL;

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
        EXECUTE format('GRANT %s ON %I.pause TO %s', given.privileges, @schema_text@, given.grantee);
    END LOOP;
END
@body@;
