package tidbsim

import (
	"context"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pingcap/tidb/pkg/parser/ast"
	"github.com/pingcap/tidb/pkg/parser/test_driver"

	"github.com/go-sql-driver/mysql"
)

// commitControl is COMMIT. Its type lets isCommit recognize it.
type commitControl struct{ execute control }

func isCommit(compiled any) bool {
	_, ok := compiled.(commitControl)
	return ok
}

func compileControl(n ast.StmtNode) (any, error) {
	switch n := n.(type) {
	case *ast.BeginStmt:
		if n.ReadOnly || n.AsOf != nil || n.CausalConsistencyOnly {
			return nil, unsupported("START TRANSACTION", n)
		}
		mode := strings.ToLower(n.Mode)
		return control(func(ctx context.Context, s *session, _ []any) (*result, error) {
			return &result{}, s.start(ctx, mode)
		}), nil
	case *ast.CommitStmt:
		return commitControl{func(ctx context.Context, s *session, _ []any) (*result, error) {
			return &result{}, s.commit(ctx)
		}}, nil
	case *ast.RollbackStmt:
		return control(func(_ context.Context, s *session, _ []any) (*result, error) {
			s.rollback()
			return &result{}, nil
		}), nil
	case *ast.CreateTableStmt:
		return createTable(n)
	case *ast.DropTableStmt:
		return dropTable(n)
	case *ast.ShowStmt:
		return show(n)
	}
	return nil, unsupported("statement", n)
}

// ddl is a statement that changes the schema: it commits the session's transaction first.
func ddl(f func(c *Cluster) error) control {
	return func(ctx context.Context, s *session, _ []any) (*result, error) {
		if err := s.commit(ctx); err != nil {
			return nil, err
		}
		s.cluster.schema++
		return &result{}, f(s.cluster)
	}
}

var dataTypes = map[string]string{
	"varbinary(3072)": "varbinary", "mediumblob": "mediumblob", "bigint": "bigint", "tinyint(1)": "tinyint",
}

func createTable(n *ast.CreateTableStmt) (any, error) {
	name := n.Table.Name.O
	if like := n.ReferTable; like != nil {
		if _, known := layouts[like.Name.L]; known {
			return nil, unsupported("CREATE TABLE … LIKE", n)
		}
		// The source is looked for first.
		return nil, number(erNoSuchTable, "Table '%s.%s' doesn't exist", databaseName, like.Name.O)
	}
	layout, ok := layouts[name]
	if !ok || len(layout) != len(n.Cols) {
		return nil, unsupported("table "+name, n)
	}
	pk := false
	for i, c := range n.Cols {
		kind := strings.ToLower(c.Tp.CompactStr())
		if c.Name.Name.O != layout[i].name || dataTypes[strings.Fields(kind)[0]] != layout[i].dataType &&
			dataTypes[strings.TrimRight(kind, "(0123456789)")] != layout[i].dataType {
			return nil, unsupported("column "+c.Name.Name.O+" "+kind+" of", n)
		}
		notNull := false
		for _, o := range c.Options {
			switch o.Tp {
			case ast.ColumnOptionNotNull:
				notNull = true
			case ast.ColumnOptionPrimaryKey:
				pk = i == 0
			default:
				return nil, unsupported("column option of", n)
			}
		}
		if notNull != layout[i].notNull {
			return nil, unsupported("NULL of column", c)
		}
	}
	for _, k := range n.Constraints {
		pk = k.Tp == ast.ConstraintPrimaryKey && len(k.Keys) == 1 && k.Keys[0].Column.Name.O == layout[0].name &&
			k.Option != nil && k.Option.PrimaryKeyTp == ast.PrimaryKeyTypeClustered
	}
	if !pk {
		return nil, unsupported("primary key of", n)
	}
	ifNotExists := n.IfNotExists
	return ddl(func(c *Cluster) error {
		if c.tables[name] != nil {
			if ifNotExists {
				return nil
			}
			return number(erTableExists, "Table '%s.%s' already exists", databaseName, name)
		}
		c.nextTable += 2
		t := newTable(c.nextTable, name)
		t.columns, t.changed = layout, c.schema
		c.tables[name] = t
		return nil
	}), nil
}

func dropTable(n *ast.DropTableStmt) (any, error) {
	if n.IsView || len(n.Tables) != 1 {
		return nil, unsupported("DROP", n)
	}
	name, ifExists := n.Tables[0].Name.O, n.IfExists
	return ddl(func(c *Cluster) error {
		t := c.tables[name]
		if t == nil && !ifExists {
			return number(1051, "Unknown table '%s.%s'", databaseName, name)
		}
		if t != nil {
			t.changed = c.schema // for transactions in progress
			delete(c.tables, name)
		}
		return nil
	}), nil
}

// systemVariables are the global defaults.
var systemVariables = map[string]string{
	"autocommit": "ON", "unique_checks": "ON", "sql_mode": "ONLY_FULL_GROUP_BY,STRICT_TRANS_TABLES,NO_ZERO_IN_DATE,NO_ZERO_DATE,ERROR_FOR_DIVISION_BY_ZERO,NO_AUTO_CREATE_USER,NO_ENGINE_SUBSTITUTION",
	"innodb_lock_wait_timeout": "50", "lock_wait_timeout": "31536000", "max_allowed_packet": "67108864", "transaction_isolation": levelRepeatable,
	"character_set_client": "utf8mb4", "character_set_connection": "utf8mb4", "information_schema_stats_expiry": "86400",
	"version": serverVersion, "version_comment": "TiDB Server (Apache License 2.0) Community Edition, MySQL 8.0 compatible",
	"hostname": "tidbsim", "port": "4000", "server_id": "0", "wait_timeout": "28800", "interactive_timeout": "28800", "max_connections": "0",
	"read_only": "OFF", "super_read_only": "OFF", "transaction_read_only": "OFF", "innodb_read_only": "OFF", "log_bin": "OFF",
	"innodb_flush_log_at_trx_commit": "1", "sync_binlog": "0", "max_execution_time": "0",
	"tidb_txn_mode": "pessimistic", "tidb_retry_limit": "10", "tidb_constraint_check_in_place_pessimistic": "ON",
	"tidb_guarantee_linearizability": "ON", "tidb_low_resolution_tso": "OFF", "tidb_enable_external_ts_read": "OFF",
	"tidb_skip_isolation_level_check": "OFF", "tidb_super_read_only": "OFF", "tidb_restricted_read_only": "OFF",
	"tidb_txn_entry_size_limit": "0", "tidb_gc_life_time": "10m0s", "tidb_enable_metadata_lock": "ON",
}

// fixedVariables are those that the simulation cannot follow if they are changed.
var fixedVariables = map[string]string{
	"tidb_low_resolution_tso": "OFF", "tidb_enable_external_ts_read": "OFF", "tidb_guarantee_linearizability": "ON",
	"tidb_constraint_check_in_place_pessimistic": "ON", "autocommit": "ON",
}

func canonical(name string) string {
	name = strings.ToLower(name)
	if name == "tx_isolation" {
		return "transaction_isolation"
	}
	return name
}

// variable returns a system variable, as a number if it looks like one.
func (s *session) variable(name string, global bool) (any, error) {
	vars := s.vars
	if global {
		vars = s.cluster.globals
	}
	v, ok := vars[canonical(name)]
	if !ok {
		return nil, number(erUnknownVariable, "Unknown system variable '%s'", name)
	}
	if n, err := strconv.ParseInt(v, 10, 64); err == nil {
		return n, nil
	}
	return []byte(v), nil
}

func (s *scope) set(n *ast.SetStmt) (any, error) {
	type one struct {
		name  string
		value expr
	}
	var all []one
	for _, v := range n.Variables {
		if v.IsGlobal || v.IsInstance || !v.IsSystem || v.ExtendValue != nil {
			return nil, unsupported("SET of "+v.Name+" by", n)
		}
		e, err := s.compile(v.Value)
		if err != nil {
			return nil, err
		}
		all = append(all, one{canonical(v.Name), e})
	}
	return control(func(_ context.Context, sess *session, args []any) (*result, error) {
		e := &env{execution: &execution{session: sess, args: args}}
		for _, v := range all {
			value, err := v.value(e)
			if err != nil {
				return nil, err
			}
			if err := sess.set(v.name, value); err != nil {
				return nil, err
			}
		}
		return &result{}, nil
	}), nil
}

func (s *session) set(name string, value any) error {
	b, err := str(value)
	if err != nil {
		return err
	}
	text := string(b)
	oneShot := name == "tx_isolation_one_shot"
	if oneShot {
		name = "transaction_isolation"
	}
	before, ok := s.vars[name]
	if !ok {
		return number(erUnknownVariable, "Unknown system variable '%s'", name)
	}
	if before == "ON" || before == "OFF" {
		switch strings.ToUpper(text) {
		case "1", "ON":
			text = "ON"
		case "0", "OFF":
			text = "OFF"
		default:
			return number(1231, "Variable '%s' can't be set to the value of '%s'", name, text)
		}
	}
	if fixed, ok := fixedVariables[name]; ok && text != fixed {
		return number(erParse, "tidbsim: %s = %s is not simulated", name, text)
	}
	if name == "transaction_isolation" {
		text = strings.ToUpper(text)
		switch text {
		case levelCommitted, levelRepeatable:
		case levelSerializable:
			if s.vars["tidb_skip_isolation_level_check"] != "ON" {
				return number(erUnsupportedLevel, "The isolation level 'SERIALIZABLE' is not supported. Set tidb_skip_isolation_level_check=1 to skip this error")
			}
			text = levelRepeatable // snapshots instead
		default:
			return number(erUnsupportedLevel, "The isolation level '%s' is not supported. Set tidb_skip_isolation_level_check=1 to skip this error", text)
		}
		if oneShot {
			s.oneShot = text
			return nil
		}
	}
	s.vars[name] = text
	return nil
}

// advisory compiles SELECT GET_LOCK and SELECT RELEASE_LOCK; it returns nil for another
// statement. TiDB implements them by a row lock (pkg/session/advisory_locks.go).
func advisory(s *scope, n ast.StmtNode) any {
	q, ok := n.(*ast.SelectStmt)
	if !ok || q.From != nil || len(q.Fields.Fields) != 1 {
		return nil
	}
	call, ok := q.Fields.Fields[0].Expr.(*ast.FuncCallExpr)
	if !ok || call.FnName.L != "get_lock" && call.FnName.L != "release_lock" {
		return nil
	}
	args := make([]expr, len(call.Args))
	for i, a := range call.Args {
		var err error
		if args[i], err = s.compile(a); err != nil {
			return nil
		}
	}
	get := call.FnName.L == "get_lock"
	return control(func(ctx context.Context, s *session, values []any) (*result, error) {
		e := &env{execution: &execution{session: s, args: values}}
		v, err := args[0](e)
		if err != nil {
			return nil, err
		}
		b, err := str(v)
		if err != nil {
			return nil, err
		}
		name, answer := strings.ToLower(string(b)), int64(0)
		switch {
		case get:
			seconds, err := args[1](e)
			if err != nil {
				return nil, err
			}
			if answer, err = s.getLock(ctx, name, time.Duration(asInt(seconds))*time.Second); err != nil {
				return nil, err
			}
		case s.cluster.advisory[name] == s:
			delete(s.cluster.advisory, name)
			s.cluster.wake()
			answer = 1
		}
		return &result{columns: []string{call.FnName.O}, rows: [][]any{{answer}}}, nil
	})
}

// getLock returns 1 if it has got the lock, 0 if it has waited for too long.
func (s *session) getLock(ctx context.Context, name string, patience time.Duration) (int64, error) {
	deadline := time.Now().Add(patience)
	for {
		if owner := s.cluster.advisory[name]; owner == nil || owner == s {
			s.cluster.advisory[name] = s
			return 1, nil
		}
		left := time.Until(deadline)
		if left <= 0 {
			return 0, nil
		}
		if err := s.cluster.wait(ctx, left); err != nil {
			return 0, err
		}
		if s.gone {
			return 0, mysql.ErrInvalidConn
		}
	}
}

func show(n *ast.ShowStmt) (any, error) {
	like := ""
	if n.Pattern != nil {
		v, ok := n.Pattern.Pattern.(*test_driver.ValueExpr)
		if !ok || n.Pattern.Not {
			return nil, unsupported("SHOW … LIKE", n)
		}
		if like = v.GetString(); strings.ContainsAny(like, "%") && like != "%" {
			return nil, unsupported("pattern of SHOW", n)
		}
	}
	matches := func(name string) bool { return like == "" || like == "%" || strings.EqualFold(name, like) }
	switch n.Tp {
	case ast.ShowVariables:
		return showVariables(n, matches)
	case ast.ShowStatus:
		global := n.GlobalScope
		return control(func(_ context.Context, s *session, _ []any) (*result, error) {
			status := map[string]string{"Ssl_cipher": "", "Ssl_version": ""}
			if global {
				status["Threads_connected"] = strconv.Itoa(len(s.cluster.conns))
			}
			return pairs(status, matches), nil
		}), nil
	case ast.ShowTables:
		return control(func(_ context.Context, s *session, _ []any) (*result, error) {
			res := &result{columns: []string{"Tables_in_" + databaseName}}
			for _, name := range slices.Sorted(maps.Keys(s.cluster.tables)) {
				if matches(name) {
					res.rows = append(res.rows, []any{[]byte(name)})
				}
			}
			return res, nil
		}), nil
	case ast.ShowRegions:
		name := n.Table.Name.L
		return control(func(_ context.Context, s *session, _ []any) (*result, error) { return s.cluster.regions(name) }), nil
	}
	return nil, unsupported(fmt.Sprintf("SHOW %d", n.Tp), n)
}

func pairs(m map[string]string, matches func(string) bool) *result {
	res := &result{columns: []string{"Variable_name", "Value"}}
	for _, name := range slices.Sorted(maps.Keys(m)) {
		if matches(name) {
			res.rows = append(res.rows, []any{[]byte(name), []byte(m[name])})
		}
	}
	return res
}

func showVariables(n *ast.ShowStmt, matches func(string) bool) (any, error) {
	var where expr
	if n.Where != nil {
		s := &scope{tables: []scopeTable{{columns: []column{{name: "Variable_name"}, {name: "Value"}}}},
			params: placeholders(n)}
		var err error
		if where, err = s.compile(n.Where); err != nil {
			return nil, err
		}
	}
	global := n.GlobalScope
	return control(func(_ context.Context, s *session, args []any) (*result, error) {
		vars := maps.Clone(s.vars)
		if global {
			vars = maps.Clone(s.cluster.globals)
		}
		vars["tx_isolation"] = vars["transaction_isolation"]
		res := pairs(vars, matches)
		if where == nil {
			return res, nil
		}
		e := &env{execution: &execution{session: s, args: args}}
		var kept [][]any
		for _, r := range res.rows {
			e.columns = r
			v, err := where(e)
			if err != nil {
				return nil, err
			}
			if v == int64(1) {
				kept = append(kept, r)
			}
		}
		res.rows = kept
		return res, nil
	}), nil
}

// regions answers SHOW TABLE … REGIONS with the columns of TiDB 8.
func (c *Cluster) regions(name string) (*result, error) {
	t := c.tables[name]
	if t == nil {
		return nil, number(erNoSuchTable, "Table '%s.%s' doesn't exist", databaseName, name)
	}
	res := &result{columns: []string{"REGION_ID", "START_KEY", "END_KEY", "LEADER_ID", "LEADER_STORE_ID", "PEERS",
		"SCATTERING", "WRITTEN_BYTES",
		"READ_BYTES", "APPROXIMATE_SIZE(MB)", "APPROXIMATE_KEYS", "SCHEDULING_CONSTRAINTS", "SCHEDULING_STATE"}}
	starts := []string{fmt.Sprintf("t_%d_", t.id)}
	for _, key := range t.regions {
		starts = append(starts, fmt.Sprintf("t_%d_r_%x", t.id, encodeHandle(key)))
	}
	for i, start := range starts {
		end := ""
		if i+1 < len(starts) {
			end = starts[i+1]
		}
		leader := int64(1 + c.rnd.IntN(3))
		res.rows = append(res.rows, []any{int64(i + 2), []byte(start), []byte(end), 10*int64(i+2) + leader, leader,
			[]byte("1, 2, 3"), int64(0),
			int64(0), int64(0), int64(1), int64(0), []byte(""), []byte("")})
	}
	return res, nil
}

// encodeHandle is a clustered key of one string: the flag of bytes, then groups of eight,
// each with a marker (EncodeBytes in pkg/util/codec).
func encodeHandle(key string) []byte {
	coded := []byte{1}
	for i := 0; i <= len(key); i += 8 {
		group := make([]byte, 8)
		n := copy(group, key[i:])
		coded = append(append(coded, group...), byte(255-(8-n)))
	}
	return coded
}

// virtualTables are the tables of information_schema that are simulated.
var virtualTables = map[string][]column{
	"information_schema.tables": {
		{name: "table_schema"}, {name: "table_name"}, {name: "engine"}, {name: "data_length"}, {name: "index_length"},
		{name: "data_free"}, {name: "table_rows"},
	},
	"information_schema.columns": {
		{name: "table_schema"}, {name: "table_name"}, {name: "column_name"}, {name: "ordinal_position"}, {name: "data_type"},
		{name: "character_maximum_length"}, {name: "is_nullable"}, {name: "column_key"},
	},
}

// virtualRows calls emit for the rows of a virtual table that pass, in order.
func (p *part) virtualRows(x *execution, e *env, emit func() (bool, error)) error {
	var all [][]any
	c := x.txn.cluster
	for _, name := range slices.Sorted(maps.Keys(c.tables)) {
		t := c.tables[name]
		if p.table == "information_schema.tables" {
			rows, size := t.size()
			all = append(all, []any{[]byte(databaseName), []byte(name), []byte("InnoDB"), size, int64(0), int64(0), rows})
			continue
		}
		for i, col := range t.columns {
			nullable, key, length := "YES", "", any(nil)
			if col.notNull {
				nullable = "NO"
			}
			if i == t.pk {
				key = "PRI"
			}
			if col.length > 0 {
				length = col.length
			}
			all = append(all, []any{[]byte(databaseName), []byte(name), []byte(col.name), int64(i + 1), []byte(col.dataType),
				length, []byte(nullable), []byte(key)})
		}
	}
	type sorted struct {
		by  any
		row []any
	}
	var passed []sorted
	for _, r := range all {
		e.columns = r
		ok := true
		for _, cond := range p.where.rest {
			v, err := cond(e)
			if err != nil {
				return err
			}
			ok = ok && v == int64(1)
		}
		if !ok {
			continue
		}
		one := sorted{row: r}
		if p.order != nil {
			var err error
			if one.by, err = p.order(e); err != nil {
				return err
			}
		}
		passed = append(passed, one)
	}
	var failure error
	slices.SortStableFunc(passed, func(a, b sorted) int {
		if p.order == nil {
			return 0
		}
		n, err := compare(a.by, b.by)
		if err != nil {
			failure = err
		}
		return n
	})
	if failure != nil {
		return failure
	}
	for _, one := range passed {
		e.columns = one.row
		if more, err := emit(); err != nil || !more {
			return err
		}
	}
	return nil
}

// size returns the rows of t and their bytes, as statistics have them.
func (t *table) size() (rows, bytes int64) {
	t.rows.Ascend(func(r *record) bool {
		if newest := r.at(1<<64 - 1); newest != nil {
			rows++
			bytes += int64(encodedSize(r.key, newest))
		}
		return true
	})
	return rows, bytes
}
