-- oldest code: 6
-- Listings find what is rare: among finished jobs what didn't complete, what has a label for statistics, what has an error; among
-- unfinished ones what is blocked. A job that waits for nothing and completes without a label or an error enters none of these
-- indexes. Code from before goes on.

-- Nothing is settled while they're built: that reads the whole archive three times, and the live jobs once. Where it would take more
-- than a second or two they have to be built before, beside the running workers, which can't be done in a migration's transaction.
DO @body@
DECLARE
    job text := format('%I.job', @schema_text@);
    archive text := format('%I.archive', @schema_text@);
    -- What refuses longer keys mustn't refuse the job: entries are cut.
    label text := 'left(outcome, 200)';
    -- The type of the newest error as it's written in JSON, where nothing else can look like it.
    error text := format('left(substring(errors[array_upper(errors, 1)]::text FROM %L), 200)', '"type"\s*:\s*"((?:[^"\\]|\\.)*)"');
    wanted record;
    found regclass;
    missing text := '';
BEGIN
    FOR wanted IN
        SELECT * FROM (VALUES
            ('job_blocked', job, '(type, id) WHERE state = 0'),
            ('archive_uncompleted', archive, '((state + 0), id) WHERE state > 4'),
            ('archive_outcome', archive, format('((%s), id) WHERE outcome IS NOT NULL', label)),
            ('archive_error', archive, format('((%s), id) WHERE cardinality(errors) > 0', error))) AS each(name, place, entries)
    LOOP
        found := to_regclass(format('%I.%I', @schema_text@, wanted.name));
        IF found IS NULL AND pg_relation_size(wanted.place::regclass) <= 419430400 THEN
            EXECUTE format('CREATE INDEX %I ON %s %s', wanted.name, wanted.place, wanted.entries);
        ELSIF NOT coalesce((SELECT indisvalid FROM pg_index WHERE indexrelid = found), false) THEN
            missing := missing || CASE WHEN found IS NULL THEN '' ELSE format(E'\nDROP INDEX %s;', found) END
                || format(E'\nCREATE INDEX CONCURRENTLY %I ON %s %s;', wanted.name, wanted.place, wanted.entries);
        END IF;
    END LOOP;
    IF missing <> '' THEN
        RAISE EXCEPTION 'there are many jobs: first build what is missing beside the running workers, with psql, by %', missing
            USING ERRCODE = 'object_not_in_prerequisite_state';
    END IF;
END
@body@;
