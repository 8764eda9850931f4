package enginetest

import "slices"

// Ability is what some tests need of a server, and not every product has.
type Ability string

// The abilities.
const (
	MyISAM          Ability = "tables of the engine MyISAM"
	RowFormat       Ability = "ROW_FORMAT"
	Rebuild         Ability = "OPTIMIZE TABLE"
	PreparedCounter Ability = "the status Prepared_stmt_count"
	Replicas        Ability = "a server that is read-only may be a replica, and behind"
	ConnectionLimit Ability = "a limit of connections by default"
	CreateProbe     Ability = "CREATE TABLE … LIKE is refused for lack of a right before it is for lack of a table"
	BackquotedNames Ability = "a backquote in the name of a database"
	CaseFolding     Ability = "a collation of ascii that ignores case"
	Serializable    Ability = "transactions at SERIALIZABLE"
	FlushSetting    Ability = "innodb_flush_log_at_trx_commit has an effect"
	ExecutionTime   Ability = "max_execution_time"
	StatementTime   Ability = "max_statement_time"
	SemiSynchronous Ability = "semi-synchronous replication without a plugin"
	// ChosenClustering: the primary key may be chosen not to be clustered.
	ChosenClustering Ability = "CLUSTERED"
)

// ReadOnly is the variable that makes a server of the product refuse to write.
func (p Product) ReadOnly() string {
	if p == tidb {
		return "tidb_super_read_only"
	}
	return "read_only"
}

// IdleTransaction is the variable that bounds how long a session leaves a transaction idle; empty if there is none.
func (p Product) IdleTransaction() string {
	return map[Product]string{MariaDB: "idle_transaction_timeout", tidb: "tidb_idle_transaction_timeout"}[p]
}

// lacking are the abilities that products do not have.
var lacking = map[Product][]Ability{
	MariaDB: {ExecutionTime, ChosenClustering},
	MySQL:   {StatementTime, SemiSynchronous, ChosenClustering},
	tidb: {MyISAM, RowFormat, Rebuild, PreparedCounter, Replicas, ConnectionLimit, CreateProbe, BackquotedNames,
		CaseFolding, Serializable, FlushSetting, StatementTime, SemiSynchronous},
}

// Can reports whether servers of the product have the ability. Tests ask this in place of the product's name.
func (p Product) Can(a Ability) bool { return !slices.Contains(lacking[p], a) }
