-- The one table. With a rowid, not clustered on the key as on the other engines: in a table WITHOUT ROWID a search compares
-- whole rows, and reads all overflow pages of each row it passes (measured at 4 KiB values: a page of 500 takes 18 ms
-- instead of 7). STRICT refuses a TEXT that an expression made out of blobs: SQLite sorts every TEXT before every BLOB, so
-- that such a row would be lost to all ranges.
CREATE TABLE object (
  internal_key BLOB NOT NULL PRIMARY KEY,
  object_value BLOB NOT NULL
) STRICT;
