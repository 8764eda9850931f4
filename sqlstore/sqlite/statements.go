package sqlite

import "github.com/sqlbrain/sqlbrain/sqlstore/sqldb"

// Statements implements sqldb.Engine.
func (*engine) Statements(sqldb.Info) *sqldb.Statements { return &statements }

// || makes TEXT, which no BLOB equals. A left join reads its left side first.
var join = "SELECT i.internal_key, i.object_value, v.object_value FROM object AS i LEFT JOIN object AS v" +
	" ON v.internal_key = CAST(" + sqldb.VersionMagic +
	" || substr(i.internal_key, 5, length(i.internal_key) - 12) || substr(i.object_value, " + sqldb.RowVersionAt +
	") AS BLOB)"

var statements = sqldb.Statements{
	Snapshot: []string{"BEGIN"},
	List:     join + " WHERE i.internal_key >= ? AND i.internal_key < ? ORDER BY i.internal_key LIMIT ?",
	Lookup:   join + " WHERE i.internal_key IN ",
	ListKeys: "SELECT internal_key, object_value FROM object WHERE internal_key >= ? AND internal_key < ? ORDER BY " +
		"internal_key LIMIT ?",
	// SQLite has no function from a byte to its number: an odd last hexadecimal
	// digit is a set lowest bit.
	Count: "SELECT COALESCE(SUM(substr(object_value, " + sqldb.RowVersionAt +
		") <= ? AND instr('02468ACE', substr(hex(substr(object_value, " + sqldb.FlagsAt + ")), 2, 1)) > 0), 0)," +
		" COALESCE(SUM(substr(object_value, " + sqldb.RowVersionAt +
		") > ?), 0) FROM object WHERE internal_key >= ? AND internal_key < ?",
	// SQLite permits no ORDER BY in a term of a compound SELECT.
	LatestAtOrBefore: "SELECT * FROM (SELECT ? AS n, internal_key, object_value FROM object WHERE internal_key >= ? AND " +
		"internal_key < ? ORDER BY internal_key DESC LIMIT 1)",
	Timestamp: "SELECT CAST(unixepoch('now', 'subsec') * 1000 AS INTEGER) * 1000",
}
