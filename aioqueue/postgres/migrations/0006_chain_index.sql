-- oldest code: 1
-- What the index with the positions is good for, this one isn't needed for any more. By itself, since it waits for everybody who
-- reads the archive.

DROP INDEX @schema@.archive_chain;
