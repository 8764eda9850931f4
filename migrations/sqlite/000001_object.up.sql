-- The one table, clustered on its key. STRICT refuses a TEXT that an expression made out of blobs:
-- SQLite sorts every TEXT before every BLOB, so that such a row would be lost to all ranges.
CREATE TABLE object (
  internal_key BLOB NOT NULL,
  object_value BLOB NOT NULL,
  PRIMARY KEY (internal_key)
) STRICT, WITHOUT ROWID;
