-- oldest code: 7
-- What people have said isn't to be started for now. Code from before doesn't look at it: upgrade all workers before the first pause.

CREATE TABLE pause (
    target TEXT    NOT NULL CHECK (target IN ('all', 'type', 'key')),
    value  TEXT    NOT NULL CHECK (typeof(value) = 'text'),          -- the type's name, or the key; empty for all
    by     TEXT    NOT NULL CHECK (typeof(by) = 'text'),
    reason TEXT    NOT NULL CHECK (typeof(reason) = 'text'),
    at     INTEGER NOT NULL CHECK (typeof(at) = 'integer'),
    until  INTEGER CHECK (until IS NULL OR typeof(until) = 'integer'),
    PRIMARY KEY (target, value, by)
) WITHOUT ROWID;
