package mysql

import (
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// Statements implements sqldb.Engine.
func (e *engine) Statements(info sqldb.Info) *sqldb.Statements {
	if info.Product == productTiDB {
		return &tidbStatements
	}
	return &statements
}

// A left join reads its left side first.
var join = "SELECT i.internal_key, i.object_value, v.object_value FROM object AS i LEFT JOIN object AS v" +
	" ON v.internal_key = CONCAT(" + sqldb.VersionMagic +
	", SUBSTRING(i.internal_key, 5, LENGTH(i.internal_key) - 12), SUBSTRING(i.object_value, " + sqldb.RowVersionAt + "))"

var statements = sqldb.Statements{
	// A consistent snapshot needs REPEATABLE READ; SET without SESSION is for
	// the next transaction only.
	Snapshot: []string{"SET TRANSACTION ISOLATION LEVEL REPEATABLE READ", "START TRANSACTION WITH CONSISTENT SNAPSHOT"},
	List:     join + " WHERE i.internal_key >= ? AND i.internal_key < ? ORDER BY i.internal_key LIMIT ?",
	Lookup:   join + " WHERE i.internal_key IN ",
	ListKeys: "SELECT internal_key, object_value FROM object WHERE internal_key >= ? AND internal_key < ? " +
		"ORDER BY internal_key LIMIT ?",
	// TiDB has its storage execute ASCII, and not ORD: it would get every row.
	Count: "SELECT COALESCE(SUM(SUBSTRING(object_value, " + sqldb.RowVersionAt +
		") <= ? AND ASCII(SUBSTRING(object_value, " +
		sqldb.FlagsAt + ")) & 1 = 0), 0)," +
		" COALESCE(SUM(SUBSTRING(object_value, " + sqldb.RowVersionAt +
		") > ?), 0) FROM object WHERE internal_key >= ? AND internal_key < ?",
	// Not a derived table, which the server would write to disk because of its blobs.
	LatestAtOrBefore: "(SELECT ? AS n, internal_key, object_value FROM object WHERE internal_key >= ? AND internal_key " +
		"< ? ORDER BY internal_key DESC LIMIT 1)",
	Timestamp: "SELECT TIMESTAMPDIFF(MICROSECOND, '1970-01-01', UTC_TIMESTAMP(6))",
}
