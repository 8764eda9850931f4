package tidbsim

import (
	"bytes"
	"encoding/binary"
	"slices"
	"strings"

	"github.com/pingcap/tidb/pkg/parser/ast"
)

// keyOf returns the key of a row whose first column is v.
func keyOf(v any) (string, error) {
	switch v := v.(type) {
	case []byte:
		return string(v), nil
	case int64:
		return string(binary.BigEndian.AppendUint64(nil, uint64(v)^1<<63)), nil
	}
	return "", unsupported("key", v)
}

func (x *execution) table(name string) (*table, error) {
	t := x.txn.cluster.tables[name]
	if t == nil {
		return nil, number(erNoSuchTable, "Table '%s.%s' doesn't exist", databaseName, name)
	}
	return t, nil
}

// execute implements change: a query with FOR UPDATE locks.
func (q *query) execute(x *execution) (*result, error) {
	res := &result{columns: q.parts[0].names}
	for _, p := range q.parts {
		if err := p.execute(x, res); err != nil {
			return nil, err
		}
	}
	return res, nil
}

func (p *part) execute(x *execution, res *result) error {
	e := &env{execution: x}
	limit, offset := -1, 0
	if p.limit != nil {
		n, err := p.limit(e)
		if err != nil {
			return err
		}
		limit = asInt(n)
	}
	if p.offset != nil {
		n, err := p.offset(e)
		if err != nil {
			return err
		}
		offset = asInt(n)
	}
	if len(p.aggregates) > 0 {
		e.sums = make([]any, len(p.aggregates))
		for i, a := range p.aggregates {
			if a.name == "count" {
				e.sums[i] = int64(0)
			}
		}
	}
	first := len(res.rows)
	emit := func() (bool, error) {
		if len(p.aggregates) > 0 {
			for i, a := range p.aggregates {
				if err := a.add(e, i); err != nil {
					return false, err
				}
			}
			return true, nil
		}
		if offset > 0 {
			offset--
			return true, nil
		}
		if limit >= 0 && len(res.rows)-first >= limit {
			return false, nil
		}
		out, err := p.project(e)
		res.rows = append(res.rows, out)
		return err == nil && (limit < 0 || len(res.rows)-first < limit), err
	}
	if err := p.source(x, e, emit); err != nil {
		return err
	}
	if len(p.aggregates) > 0 {
		out, err := p.project(e)
		res.rows = append(res.rows, out)
		return err
	}
	return nil
}

func (p *part) project(e *env) ([]any, error) {
	out := make([]any, len(p.fields))
	for i, f := range p.fields {
		v, err := f(e)
		if err != nil {
			return nil, err
		}
		out[i] = v
	}
	return out, nil
}

// source calls emit for each row, with its columns in e.
func (p *part) source(x *execution, e *env, emit func() (bool, error)) error {
	if p.table == "" {
		_, err := emit()
		return err
	}
	if p.virtual {
		return p.virtualRows(x, e, emit)
	}
	t, err := x.table(p.table)
	if err != nil {
		return err
	}
	return p.where.each(x, t, e, p.desc, p.locks, func(_ string, r row) (bool, error) {
		if p.join == nil {
			return emit()
		}
		v, err := p.join(e)
		if err != nil {
			return false, err
		}
		joined := make(row, p.joined)
		if v != nil {
			key, err := keyOf(v)
			if err != nil {
				return false, err
			}
			found, err := x.get(t, key)
			if err != nil {
				return false, err
			}
			if found != nil {
				joined = found
			}
		}
		e.columns = append(slices.Clone([]any(r)), joined...)
		return emit()
	})
}

// each calls f with the rows of t that pass, in the order of their keys.
func (w *filter) each(x *execution, t *table, e *env, desc, locks bool, f func(key string, r row) (bool, error)) error {
	visit := func(key string, r row) (bool, error) {
		e.columns = r
		for _, cond := range w.rest {
			v, err := cond(e)
			if err != nil || v != int64(1) {
				return err == nil, err
			}
		}
		if locks {
			x.txn.wants = append(x.txn.wants, want{rowKey: rowKey{t, key}, ifExists: x.txn.committed})
		}
		return f(key, r)
	}
	if w.points == nil {
		return w.scan(x, t, e, desc, visit)
	}
	keys := make([]string, 0, len(w.points))
	for _, point := range w.points {
		v, err := point(e)
		if err != nil {
			return err
		}
		if v == nil {
			continue
		}
		key, err := keyOf(v)
		if err != nil {
			return err
		}
		keys = append(keys, key)
	}
	slices.Sort(keys)
	keys = slices.Compact(keys)
	if desc {
		slices.Reverse(keys)
	}
	for _, key := range keys {
		r, err := x.get(t, key)
		if err != nil {
			return err
		}
		if r == nil {
			if locks && !x.txn.committed {
				x.txn.wants = append(x.txn.wants, want{rowKey: rowKey{t, key}})
			}
			continue
		}
		if more, err := visit(key, r); err != nil || !more {
			return err
		}
	}
	return nil
}

func (w *filter) scan(x *execution, t *table, e *env, desc bool, visit func(string, row) (bool, error)) error {
	lo, hi := "", (*string)(nil)
	if w.lo != nil {
		v, err := w.lo(e)
		if err != nil {
			return err
		}
		if lo, err = keyOf(v); err != nil {
			return err
		}
	}
	if w.hi != nil {
		v, err := w.hi(e)
		if err != nil {
			return err
		}
		bound, err := keyOf(v)
		if err != nil {
			return err
		}
		hi = &bound
	}
	return x.scan(t, lo, hi, desc, visit)
}

func asInt(v any) int {
	switch n := v.(type) {
	case int64:
		return int(n)
	case uint64:
		return int(n)
	}
	return 0
}

// insert is INSERT … VALUES, or INSERT … SELECT.
type insert struct {
	table   string
	columns []int    // of the values
	rows    [][]expr // nil: from
	from    *query
	// update are the assignments of ON DUPLICATE KEY UPDATE; nil: none.
	update []assignment
}

type assignment struct {
	column int
	value  expr
}

func (s *scope) insert(n *ast.InsertStmt) (*insert, error) {
	if n.IsReplace || n.IgnoreErr || len(n.TableHints) > 0 || len(n.PartitionNames) > 0 {
		return nil, unsupported("INSERT", n)
	}
	name, columns, err := s.target(n.Table)
	if err != nil {
		return nil, err
	}
	p := &insert{table: name}
	for _, c := range n.Columns {
		i := columnIndex(columns, c.Name.L)
		if i < 0 {
			return nil, number(erUnknownColumn, "Unknown column '%s'", c.Name.O)
		}
		p.columns = append(p.columns, i)
	}
	if len(p.columns) != len(columns) {
		return nil, unsupported("INSERT without all columns", n)
	}
	for _, list := range n.Lists {
		values := make([]expr, len(list))
		for i, v := range list {
			if values[i], err = s.compile(v); err != nil {
				return nil, err
			}
		}
		p.rows = append(p.rows, values)
	}
	if n.Select != nil {
		inner, ok := n.Select.(*ast.SelectStmt)
		if !ok || len(n.OnDuplicate) > 0 {
			return nil, unsupported("INSERT … SELECT", n.Select)
		}
		p.from, err = s.query(inner)
		return p, err
	}
	p.update, err = s.assignments(n.OnDuplicate, columns)
	return p, err
}

// target returns the one table that a change names.
func (s *scope) target(n *ast.TableRefsClause) (string, []column, error) {
	p := &part{}
	if err := s.from(p, n.TableRefs); err != nil {
		return "", nil, err
	}
	if p.virtual || p.join != nil {
		return "", nil, unsupported("change of", n)
	}
	return p.table, s.tables[0].columns, nil
}

func (s *scope) assignments(list []*ast.Assignment, columns []column) ([]assignment, error) {
	var all []assignment
	for _, a := range list {
		i := columnIndex(columns, a.Column.Name.L)
		if i <= 0 {
			return nil, unsupported("assignment to "+a.Column.Name.O+" of", a)
		}
		e, err := s.compile(a.Expr)
		if err != nil {
			return nil, err
		}
		all = append(all, assignment{i, e})
	}
	return all, nil
}

// fits checks a value against its column, as in strict mode.
func fits(c column, v any) error {
	if v == nil && c.notNull {
		return number(1048, "Column '%s' cannot be null", c.name)
	}
	b, isString := v.([]byte)
	if isString != (c.length > 0) {
		return unsupported("value of column "+c.name+":", v)
	}
	if isString && int64(len(b)) > c.length {
		return number(erDataTooLong, "Data too long for column '%s'", c.name)
	}
	return nil
}

func (p *insert) execute(x *execution) (*result, error) {
	t, err := x.table(p.table)
	if err != nil {
		return nil, err
	}
	if !strings.Contains(x.session.vars["sql_mode"], "STRICT_TRANS_TABLES") {
		return nil, unsupported("sql_mode", x.session.vars["sql_mode"])
	}
	res := &result{}
	e := &env{execution: x}
	add := func(values []any) error {
		r := make(row, len(t.columns))
		for i, v := range values {
			if err := fits(t.columns[p.columns[i]], v); err != nil {
				return err
			}
			r[p.columns[i]] = v
		}
		n, err := p.add(e, t, r)
		res.affected += n
		return err
	}
	if p.from != nil {
		selected, err := p.from.execute(x)
		if err != nil {
			return nil, err
		}
		for _, values := range selected.rows {
			if err := add(values); err != nil {
				return nil, err
			}
		}
		return res, nil
	}
	for _, list := range p.rows {
		values := make([]any, len(list))
		for i, v := range list {
			if values[i], err = v(e); err != nil {
				return nil, err
			}
		}
		if err := add(values); err != nil {
			return nil, err
		}
	}
	return res, nil
}

// add inserts a row, or updates the one that is there, and returns the affected rows: 1 for
// an insert, 2 for an update that changes something, else 0.
func (p *insert) add(e *env, t *table, r row) (int64, error) {
	x := e.execution
	key, err := keyOf(r[t.pk])
	if err != nil {
		return 0, err
	}
	at := rowKey{t, key}
	if p.update == nil {
		// The snapshot is not read: the lock, or the commit, checks that the row does not exist.
		own, ok := x.txn.stage[at]
		if !ok {
			own, ok = x.txn.buffer[at]
		}
		if ok && own != nil {
			return 0, duplicate(t, key)
		}
		x.txn.wants = append(x.txn.wants, want{rowKey: at, absent: !ok})
		return 1, x.txn.write(t, key, r)
	}
	old, err := x.get(t, key)
	if err != nil {
		return 0, err
	}
	if old == nil {
		x.txn.wants = append(x.txn.wants, want{rowKey: at})
		return 1, x.txn.write(t, key, r)
	}
	e.columns, e.values = old, r
	updated := slices.Clone(old)
	for _, a := range p.update {
		v, err := a.value(e)
		if err != nil {
			return 0, err
		}
		if err := fits(t.columns[a.column], v); err != nil {
			return 0, err
		}
		updated[a.column] = v
	}
	if same(old, updated) {
		// Only a pessimistic transaction locks a row that it does not change
		// (addUnchangedKeysForLockByRow).
		if x.txn.pessimistic {
			x.txn.wants = append(x.txn.wants, want{rowKey: at})
		}
		return 0, nil
	}
	x.txn.wants = append(x.txn.wants, want{rowKey: at})
	return 2, x.txn.write(t, key, updated)
}

func same(a, b row) bool {
	return slices.EqualFunc(a, b, func(v, w any) bool {
		x, ok1 := v.([]byte)
		y, ok2 := w.([]byte)
		if ok1 && ok2 {
			return bytes.Equal(x, y)
		}
		return !ok1 && !ok2 && v == w
	})
}

// remove is DELETE, and update is UPDATE, of one table.
type (
	remove struct {
		table string
		where *filter
		limit expr // nil: none
	}
	update struct {
		table string
		where *filter
		set   []assignment
	}
)

func (s *scope) delete(n *ast.DeleteStmt) (*remove, error) {
	if n.IsMultiTable || n.Order != nil || n.IgnoreErr || n.With != nil {
		return nil, unsupported("DELETE", n)
	}
	name, _, err := s.target(n.TableRefs)
	if err != nil {
		return nil, err
	}
	p := &remove{table: name}
	if n.Limit != nil {
		if p.limit, err = s.compile(n.Limit.Count); err != nil {
			return nil, err
		}
	}
	p.where, err = s.filter(n.Where, false)
	return p, err
}

func (p *remove) execute(x *execution) (*result, error) {
	t, err := x.table(p.table)
	if err != nil {
		return nil, err
	}
	e, limit := &env{execution: x}, -1
	if p.limit != nil {
		n, err := p.limit(e)
		if err != nil {
			return nil, err
		}
		limit = asInt(n)
	}
	var keys []string
	if err := p.where.each(x, t, e, false, true, func(key string, _ row) (bool, error) {
		keys = append(keys, key)
		return len(keys) != limit, nil
	}); err != nil {
		return nil, err
	}
	for _, key := range keys {
		if err := x.txn.write(t, key, nil); err != nil {
			return nil, err
		}
	}
	return &result{affected: int64(len(keys))}, nil
}

func (s *scope) update(n *ast.UpdateStmt) (*update, error) {
	if n.MultipleTable || n.Order != nil || n.Limit != nil || n.IgnoreErr || n.With != nil {
		return nil, unsupported("UPDATE", n)
	}
	name, columns, err := s.target(n.TableRefs)
	if err != nil {
		return nil, err
	}
	p := &update{table: name}
	if p.set, err = s.assignments(n.List, columns); err != nil {
		return nil, err
	}
	p.where, err = s.filter(n.Where, false)
	return p, err
}

func (p *update) execute(x *execution) (*result, error) {
	t, err := x.table(p.table)
	if err != nil {
		return nil, err
	}
	e, res := &env{execution: x}, &result{}
	changed := map[string]row{}
	if err := p.where.each(x, t, e, false, true, func(key string, old row) (bool, error) {
		r := slices.Clone(old)
		for _, a := range p.set {
			v, err := a.value(e)
			if err != nil {
				return false, err
			}
			if err := fits(t.columns[a.column], v); err != nil {
				return false, err
			}
			r[a.column] = v
		}
		if !same(old, r) {
			changed[key] = r
		}
		return true, nil
	}); err != nil {
		return nil, err
	}
	for key, r := range changed {
		if err := x.txn.write(t, key, r); err != nil {
			return nil, err
		}
		res.affected++
	}
	return res, nil
}
