-- The one table. internal_key ends where InnoDB's and TiDB's index keys end (3072 bytes, which
-- needs ROW_FORMAT=DYNAMIC), and is binary, because a collation would fold and pad keys.
-- MEDIUMBLOB, because BLOB ends at 64 KiB. The version comment is read by TiDB alone.
CREATE TABLE object (
  internal_key VARBINARY(3072) NOT NULL,
  object_value MEDIUMBLOB NOT NULL,
  PRIMARY KEY (internal_key) /*T![clustered_index] CLUSTERED */
) ENGINE=InnoDB ROW_FORMAT=DYNAMIC DEFAULT CHARSET=binary
