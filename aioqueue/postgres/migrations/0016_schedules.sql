-- oldest code: 6
-- Schedules, what became of their newest ticks, and the states of code that define them. Code from before decides no ticks.

CREATE TABLE @schema@.schedule (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    owner text,                                     -- the registry whose code defines it; NULL for one put at run time
    job_type text NOT NULL,
    template text NOT NULL,                         -- JSON: its job, without an id
    cron text,
    every double precision,                         -- seconds
    timezone text NOT NULL,
    catch_up text NOT NULL,
    grace double precision NOT NULL,                -- seconds
    catch_up_limit integer NOT NULL,
    overlap text NOT NULL,
    version integer NOT NULL DEFAULT 1,
    since timestamptz NOT NULL DEFAULT clock_timestamp(),
    anchor timestamptz NOT NULL DEFAULT clock_timestamp(),
    next_at timestamptz,                            -- NULL until a worker has worked it out; infinite if there is none
    last_at timestamptz,
    last_chain uuid,
    paused boolean NOT NULL DEFAULT false,
    reason text NOT NULL DEFAULT '',
    by text NOT NULL DEFAULT ''
) WITH (fillfactor = 70);

CREATE INDEX schedule_due ON @schema@.schedule (next_at NULLS FIRST, name) WHERE NOT paused;
CREATE INDEX schedule_owner ON @schema@.schedule (owner, name) WHERE owner IS NOT NULL;

CREATE TABLE @schema@.schedule_tick (
    schedule text COLLATE "C" NOT NULL,
    nominal_at timestamptz NOT NULL,
    decided_at timestamptz NOT NULL,
    outcome smallint NOT NULL,                      -- 1 enqueued, 2 skipped, 3 duplicate
    reason text NOT NULL DEFAULT '',
    chain_id uuid,
    count integer NOT NULL DEFAULT 1,
    PRIMARY KEY (schedule, nominal_at)
);

CREATE TABLE @schema@.schedule_generation (
    owner text NOT NULL,
    seen integer NOT NULL,                          -- in the order in which they were first seen
    digest text NOT NULL,
    release bigint,
    live_until timestamptz NOT NULL,
    PRIMARY KEY (owner, seen)
);

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
        EXECUTE format('GRANT %1$s ON %2$I.schedule, %2$I.schedule_tick, %2$I.schedule_generation TO %3$s', given.privileges, @schema_text@, given.grantee);
    END LOOP;
END
@body@;
