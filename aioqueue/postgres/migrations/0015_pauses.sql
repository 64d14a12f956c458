-- oldest code: 6
-- What people have said isn't to be started for now. Code from before doesn't look at it: upgrade all workers before the first pause.

CREATE TABLE @schema@.pause (
    target text NOT NULL,                           -- all, type, key
    value text NOT NULL,                            -- the type's name, or the key; empty for all
    by text NOT NULL,
    reason text NOT NULL,
    at timestamptz NOT NULL DEFAULT clock_timestamp(),
    until timestamptz,
    PRIMARY KEY (target, value, by)
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
        EXECUTE format('GRANT %s ON %I.pause TO %s', given.privileges, @schema_text@, given.grantee);
    END LOOP;
END
@body@;
