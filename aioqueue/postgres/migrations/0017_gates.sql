-- oldest code: 6
-- Gates: limits, rates, sequences and turns. Code from before doesn't look at them, though what it does leaves marks there: upgrade all
-- workers before the first limit.

-- This stops everybody for a moment, and does so first: a weaker lock that grew would deadlock with a claim.
ALTER TABLE @schema@.job ADD COLUMN IF NOT EXISTS gates text[];     -- where it waits or runs; empty for one that has only a sequence

-- Limits, by name: how many jobs may run at once, or start in a time.
CREATE TABLE @schema@.gate_limit (
    name text COLLATE "C" NOT NULL PRIMARY KEY,
    places integer NOT NULL CHECK (places >= 0),
    per double precision,                           -- seconds, for starts; NULL for jobs that run at once
    burst integer,                                  -- for starts
    defined text,                                   -- what code said last, as JSON; NULL for one that no code has
    changed boolean NOT NULL DEFAULT false          -- since then by somebody at run time
) WITH (fillfactor = 70);

-- Who runs at which gate: there while the job runs. Numbers of one gate rise in the order in which its lock was taken.
CREATE TABLE @schema@.gate_place (
    gate text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    job_id uuid NOT NULL,
    PRIMARY KEY (gate, number)
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX gate_place_job ON @schema@.gate_place (job_id);

-- What has left a gate, and hasn't let anybody else come yet.
CREATE TABLE @schema@.gate_mark (
    id bigint GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    gate text COLLATE "C" NOT NULL,
    freed integer NOT NULL DEFAULT 1
) WITH (autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);

-- Rates that have been used: the theoretical arrival time of the next start, and when those that wait are let come.
CREATE TABLE @schema@.gate_rate (
    gate text COLLATE "C" NOT NULL PRIMARY KEY,
    arrival timestamptz NOT NULL,
    wake_at timestamptz
) WITH (fillfactor = 50, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX gate_rate_wake ON @schema@.gate_rate (wake_at) WHERE wake_at IS NOT NULL;

-- Chains that are in a sequence, in its order. One that has failed stays until its job leaves the archive, or lives again.
CREATE TABLE @schema@.gate_member (
    chain_id uuid NOT NULL PRIMARY KEY,
    sequence text COLLATE "C" NOT NULL,
    number bigint GENERATED ALWAYS AS IDENTITY,
    strict boolean NOT NULL DEFAULT false,
    block boolean NOT NULL DEFAULT false,
    failed boolean NOT NULL DEFAULT false
) WITH (fillfactor = 90, autovacuum_vacuum_scale_factor = 0.02, autovacuum_vacuum_threshold = 1000);
CREATE INDEX gate_member_sequence ON @schema@.gate_member (sequence, number);

-- Whatever a job at gates does but begin to run leaves marks, whoever has it do so.
CREATE FUNCTION @schema@.left_gates() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @body@
DECLARE
    gone boolean := TG_OP = 'DELETE';
    chain uuid := coalesce(OLD.chain_id, OLD.id);
    sequence_gate text;
BEGIN
    IF OLD.state = 2 THEN
        DELETE FROM @schema@.gate_place p WHERE p.job_id = OLD.id;
    END IF;
    IF OLD.state IN (1, 2) THEN
        INSERT INTO @schema@.gate_mark (gate)
        SELECT left_gate FROM unnest(OLD.gates) AS left_gate
        WHERE gone OR NEW.state <> 0 OR NEW.gate IS DISTINCT FROM left_gate;
    END IF;
    SELECT 'sequence=' || m.sequence INTO sequence_gate FROM @schema@.gate_member m WHERE m.chain_id = chain;
    IF FOUND THEN
        IF gone OR NEW.state <> 0 OR NEW.gate IS DISTINCT FROM sequence_gate THEN
            INSERT INTO @schema@.gate_mark (gate) VALUES (sequence_gate);
        END IF;
        IF gone AND EXISTS (SELECT FROM @schema@.archive a WHERE a.id = OLD.id AND a.state = 6) THEN
            UPDATE @schema@.gate_member m SET failed = true WHERE m.chain_id = chain;
        ELSIF gone AND NOT EXISTS (SELECT FROM @schema@.archive a WHERE a.id = OLD.id AND a.state = 5) THEN
            DELETE FROM @schema@.gate_member m WHERE m.chain_id = chain;
        END IF;
    END IF;
    PERFORM pg_notify('@channel@', '{"g":true}');
    RETURN NULL;
END
@body@;

CREATE TRIGGER left_gates_deleted AFTER DELETE ON @schema@.job FOR EACH ROW WHEN (OLD.gates IS NOT NULL)
    EXECUTE FUNCTION @schema@.left_gates();
CREATE TRIGGER left_gates_moved AFTER UPDATE OF state, run_at ON @schema@.job FOR EACH ROW
    WHEN (OLD.gates IS NOT NULL AND NEW.state <> 2
          AND (OLD.state <> NEW.state OR NEW.run_at > OLD.run_at))
    EXECUTE FUNCTION @schema@.left_gates();

CREATE FUNCTION @schema@.left_archive() RETURNS trigger
LANGUAGE plpgsql SET search_path = pg_catalog, pg_temp AS @body@
BEGIN
    WITH gone AS (
        DELETE FROM @schema@.gate_member m WHERE m.chain_id = coalesce(OLD.chain_id, OLD.id) AND m.failed RETURNING m.sequence, m.block
    )
    INSERT INTO @schema@.gate_mark (gate) SELECT 'sequence=' || sequence FROM gone WHERE block;
    RETURN NULL;
END
@body@;

CREATE TRIGGER left_archive AFTER DELETE ON @schema@.archive FOR EACH ROW WHEN (OLD.state = 6)
    EXECUTE FUNCTION @schema@.left_archive();

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
        EXECUTE format('GRANT %1$s ON %2$I.gate_limit, %2$I.gate_place, %2$I.gate_mark, %2$I.gate_rate, %2$I.gate_member TO %3$s',
                       given.privileges, @schema_text@, given.grantee);
    END LOOP;
END
@body@;
