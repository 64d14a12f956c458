-- oldest code: 7
-- Why a job's chain was asked to end, while that hasn't happened yet: only of jobs that are running, whose workers hear of it.
-- A worker of older code that runs such a job isn't told of it, and may make it pending again, or go on with its chain: what is
-- pending with a request is ended by newer code, the next step of a chain runs. Upgrade all workers before anybody cancels.

ALTER TABLE job ADD COLUMN cancel_reason TEXT;

CREATE INDEX job_asked ON job (id) WHERE cancel_reason IS NOT NULL;
