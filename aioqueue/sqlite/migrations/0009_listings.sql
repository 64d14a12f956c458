-- oldest code: 7
-- What listings of jobs go along. A job that completes without a label and without an error enters none of these indexes.
-- They are made by one walk over the tables each: some ten seconds for five million jobs, in which nobody else writes.

-- By the label of the outcome.
CREATE INDEX archive_outcome ON archive (outcome, id) WHERE outcome IS NOT NULL;

-- By the type of the newest error.
CREATE INDEX job_error ON job
    (iif(typeof(errors) = 'text' AND json_valid(errors), json_extract(errors, '$[#-1].type'), NULL), id)
    WHERE errors <> '[]';
CREATE INDEX archive_error ON archive
    (iif(typeof(errors) = 'text' AND json_valid(errors), json_extract(errors, '$[#-1].type'), NULL), id)
    WHERE errors <> '[]';

-- What failed or was cancelled, by type and the time of its end.
CREATE INDEX archive_unsuccessful ON archive (type, state, finished_at, id) WHERE state IN (6, 7);

-- Blocked jobs by type.
CREATE INDEX job_blocked ON job (type, priority, run_at, id) WHERE state = 0;

-- Live jobs in a state that nobody knows, as they belong to what isn't asked for by its state: none, ordinarily.
CREATE INDEX job_odd ON job (id) WHERE state NOT IN (0, 1, 2);
