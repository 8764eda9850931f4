package tidbsim

import (
	"bytes"
	"cmp"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/pingcap/tidb/pkg/parser/ast"
	"github.com/pingcap/tidb/pkg/parser/opcode"
	"github.com/pingcap/tidb/pkg/parser/test_driver"
)

// env is what an expression is evaluated in.
type env struct {
	*execution
	columns []any // of all tables of the statement, one after the other
	values  row   // of the row to insert: VALUES(column)
	sums    []any // of aggregate functions
}

type expr func(e *env) (any, error)

// scopeTable is a table that a statement names.
type scopeTable struct {
	alias   string
	columns []column
}

// scope compiles the expressions of a statement.
type scope struct {
	tables []scopeTable
	// params are the placeholders' positions in the text, in order.
	params []int
	// aggregates are the aggregate functions met; nil if none may occur.
	aggregates *[]aggregate
	// fixed is set to false by an expression that depends on a row.
	fixed bool
}

type aggregate struct {
	name string
	arg  expr
}

// constant compiles an expression that depends on no row.
func (s *scope) constant(n ast.ExprNode) (expr, bool, error) {
	before := s.fixed
	s.fixed = true
	e, err := s.compile(n)
	fixed := s.fixed
	s.fixed = before
	return e, fixed, err
}

func (s *scope) compile(n ast.ExprNode) (expr, error) {
	switch n := n.(type) {
	case *test_driver.ParamMarkerExpr:
		i, ok := slices.BinarySearch(s.params, n.Offset)
		if !ok {
			return nil, unsupported("placeholder", n)
		}
		return func(e *env) (any, error) {
			if i >= len(e.args) {
				return nil, number(erParse, "tidbsim: %d arguments, more are needed", len(e.args))
			}
			return e.args[i], nil
		}, nil
	case *test_driver.ValueExpr:
		v, err := literal(n)
		return func(*env) (any, error) { return v, nil }, err
	case *ast.ParenthesesExpr:
		return s.compile(n.Expr)
	case *ast.ColumnNameExpr:
		i, err := s.column(n.Name)
		s.fixed = false
		return func(e *env) (any, error) { return e.columns[i], nil }, err
	case *ast.ValuesExpr:
		i := columnIndex(s.tables[0].columns, n.Column.Name.Name.L)
		if i < 0 {
			return nil, number(erUnknownColumn, "Unknown column '%s'", n.Column.Name.Name.O)
		}
		s.fixed = false
		return func(e *env) (any, error) { return e.values[i], nil }, nil
	case *ast.UnaryOperationExpr:
		return s.unary(n)
	case *ast.BinaryOperationExpr:
		return s.binary(n)
	case *ast.FuncCallExpr:
		return s.call(n)
	case *ast.FuncCastExpr: // of strings to strings: they stay as they are
		return s.compile(n.Expr)
	case *ast.AggregateFuncExpr:
		return s.aggregate(n)
	case *ast.VariableExpr:
		name, global := strings.ToLower(n.Name), n.IsGlobal
		if !n.IsSystem {
			return nil, unsupported("user variable", n)
		}
		return func(e *env) (any, error) { return e.session.variable(name, global) }, nil
	case *ast.CaseExpr, *ast.PatternInExpr:
		return s.branch(n)
	}
	return nil, unsupported("expression", n)
}

func literal(n *test_driver.ValueExpr) (any, error) {
	switch v := n.GetValue().(type) {
	case nil:
		return nil, nil
	case int64, uint64:
		return v, nil
	case string:
		return []byte(v), nil
	case []byte:
		return v, nil
	case test_driver.BinaryLiteral:
		return []byte(v), nil
	}
	return nil, unsupported("literal", n.GetValue())
}

func columnIndex(columns []column, name string) int {
	return slices.IndexFunc(columns, func(c column) bool { return strings.EqualFold(c.name, name) })
}

func (s *scope) column(n *ast.ColumnName) (int, error) {
	at := 0
	for _, t := range s.tables {
		if n.Table.L == "" || strings.EqualFold(n.Table.O, t.alias) {
			if i := columnIndex(t.columns, n.Name.L); i >= 0 {
				return at + i, nil
			}
		}
		at += len(t.columns)
	}
	return 0, number(erUnknownColumn, "Unknown column '%s'", n.OrigColName())
}

func (s *scope) unary(n *ast.UnaryOperationExpr) (expr, error) {
	if n.Op != opcode.BitNeg {
		return nil, unsupported("operator "+n.Op.String()+" of", n)
	}
	v, err := s.compile(n.V)
	return func(e *env) (any, error) {
		x, err := v(e)
		if i, ok := x.(int64); ok && err == nil {
			return ^uint64(i), nil
		}
		return nil, cmp.Or(err, unsupported("~ of", x))
	}, err
}

func (s *scope) binary(n *ast.BinaryOperationExpr) (expr, error) {
	l, err := s.compile(n.L)
	if err != nil {
		return nil, err
	}
	r, err := s.compile(n.R)
	if err != nil {
		return nil, err
	}
	both := func(f func(a, b any) (any, error)) expr {
		return func(e *env) (any, error) {
			a, err := l(e)
			if err != nil || a == nil {
				return nil, err
			}
			b, err := r(e)
			if err != nil || b == nil {
				return nil, err
			}
			return f(a, b)
		}
	}
	compared := func(holds func(int) bool) expr {
		return both(func(a, b any) (any, error) {
			c, err := compare(a, b)
			return truth(holds(c)), err
		})
	}
	switch n.Op {
	case opcode.EQ:
		return compared(func(c int) bool { return c == 0 }), nil
	case opcode.NE:
		return compared(func(c int) bool { return c != 0 }), nil
	case opcode.LT:
		return compared(func(c int) bool { return c < 0 }), nil
	case opcode.LE:
		return compared(func(c int) bool { return c <= 0 }), nil
	case opcode.GT:
		return compared(func(c int) bool { return c > 0 }), nil
	case opcode.GE:
		return compared(func(c int) bool { return c >= 0 }), nil
	case opcode.And:
		return both(integers(func(x, y int64) int64 { return x & y })), nil
	case opcode.Minus: // of small numbers
		return both(integers(func(x, y int64) int64 { return x - y })), nil
	case opcode.Plus:
		return both(plus), nil
	case opcode.LogicAnd:
		return logic(l, r, int64(0)), nil
	case opcode.LogicOr:
		return logic(l, r, int64(1)), nil
	}
	return nil, unsupported("operator "+n.Op.String()+" of", n)
}

func integers(f func(x, y int64) int64) func(a, b any) (any, error) {
	return func(a, b any) (any, error) {
		x, ok1 := a.(int64)
		y, ok2 := b.(int64)
		if !ok1 || !ok2 {
			return nil, unsupported("arithmetic of", a)
		}
		return f(x, y), nil
	}
}

// logic is AND for the decisive value 0, and OR for 1.
func logic(l, r expr, decisive any) expr {
	return func(e *env) (any, error) {
		a, err := l(e)
		if err != nil || a == decisive {
			return a, err
		}
		b, err := r(e)
		if a == nil && b != decisive {
			b = nil
		}
		return b, err
	}
}

// plus adds as BIGINT, and as BIGINT UNSIGNED if one of the two is.
func plus(a, b any) (any, error) {
	x, ok1 := a.(int64)
	y, ok2 := b.(int64)
	if ok1 && ok2 {
		if sum := x + y; (sum > x) == (y > 0) {
			return sum, nil
		}
		return nil, number(erOutOfRange, "BIGINT value is out of range in '(%d + %d)'", x, y)
	}
	u, ok1 := unsigned(a)
	v, ok2 := unsigned(b)
	if !ok1 || !ok2 {
		return nil, unsupported("+ of", a)
	}
	if u+v < u {
		return nil, number(erOutOfRange, "BIGINT UNSIGNED value is out of range in '(%d + %d)'", u, v)
	}
	return u + v, nil
}

func unsigned(v any) (uint64, bool) {
	switch v := v.(type) {
	case uint64:
		return v, true
	case int64:
		return uint64(v), v >= 0
	}
	return 0, false
}

func truth(b bool) any {
	if b {
		return int64(1)
	}
	return int64(0)
}

// compare compares numbers, or strings bytewise.
func compare(a, b any) (int, error) {
	switch x := a.(type) {
	case []byte:
		if y, ok := b.([]byte); ok {
			return bytes.Compare(x, y), nil
		}
	case int64:
		if y, ok := b.(int64); ok {
			return cmp.Compare(x, y), nil
		}
	}
	return 0, unsupported("comparison of", []any{a, b})
}

// branch compiles CASE without a value, and IN.
func (s *scope) branch(n ast.ExprNode) (expr, error) {
	var list []expr
	add := func(n ast.ExprNode) error {
		e, err := s.compile(n)
		list = append(list, e)
		return err
	}
	switch n := n.(type) {
	case *ast.PatternInExpr:
		if n.Sel != nil || n.Not {
			return nil, unsupported("IN", n)
		}
		value, err := s.compile(n.Expr)
		if err != nil {
			return nil, err
		}
		for _, item := range n.List {
			if err := add(item); err != nil {
				return nil, err
			}
		}
		return func(e *env) (any, error) {
			v, err := value(e)
			if err != nil || v == nil {
				return nil, err
			}
			for _, item := range list {
				w, err := item(e)
				if err != nil {
					return nil, err
				}
				if c, err := compare(v, w); err != nil || c == 0 {
					return truth(true), err
				}
			}
			return truth(false), nil
		}, nil
	case *ast.CaseExpr:
		if n.Value != nil || n.ElseClause == nil {
			return nil, unsupported("CASE", n)
		}
		for _, w := range n.WhenClauses {
			if err := add(w.Expr); err != nil {
				return nil, err
			}
			if err := add(w.Result); err != nil {
				return nil, err
			}
		}
		if err := add(n.ElseClause); err != nil {
			return nil, err
		}
		return func(e *env) (any, error) {
			for i := 0; i+1 < len(list); i += 2 {
				if v, err := list[i](e); err != nil {
					return nil, err
				} else if v == int64(1) {
					return list[i+1](e)
				}
			}
			return list[len(list)-1](e)
		}, nil
	}
	return nil, unsupported("expression", n)
}

func (s *scope) aggregate(n *ast.AggregateFuncExpr) (expr, error) {
	if s.aggregates == nil || n.Distinct || len(n.Args) != 1 {
		return nil, unsupported("aggregate", n)
	}
	inner := *s
	inner.aggregates = nil
	arg, err := inner.compile(n.Args[0])
	if err != nil {
		return nil, err
	}
	name := strings.ToLower(n.F)
	if name != "sum" && name != "count" && name != "max" {
		return nil, unsupported("aggregate "+name+" of", n)
	}
	i := len(*s.aggregates)
	*s.aggregates = append(*s.aggregates, aggregate{name, arg})
	return func(e *env) (any, error) { return e.sums[i], nil }, nil
}

// add adds the current row to e's sums.
func (a aggregate) add(e *env, i int) error {
	v, err := a.arg(e)
	if err != nil || v == nil {
		return err
	}
	old, seen := e.sums[i].(int64)
	n, isNumber := v.(int64)
	switch {
	case a.name == "count":
		e.sums[i] = old + 1
	case !isNumber:
		return unsupported("aggregate of", v)
	case a.name == "sum":
		e.sums[i] = old + n
	case !seen || n > old:
		e.sums[i] = n
	}
	return nil
}

// functions are the functions of their evaluated arguments. nil arguments give nil.
var functions = map[string]func(e *env, args []any) (any, error){
	"length": func(_ *env, a []any) (any, error) { b, err := str(a[0]); return int64(len(b)), err },
	"lower":  func(_ *env, a []any) (any, error) { b, err := str(a[0]); return bytes.ToLower(b), err },
	"ord": func(_ *env, a []any) (any, error) {
		b, err := str(a[0])
		if len(b) == 0 {
			return int64(0), err
		}
		return int64(b[0]), err
	},
	"right": func(_ *env, a []any) (any, error) {
		b, err := str(a[0])
		n, ok := a[1].(int64)
		if err != nil || !ok {
			return nil, cmp.Or(err, unsupported("RIGHT of", a[1]))
		}
		return b[max(0, len(b)-int(n)):], nil
	},
	"substring": func(_ *env, a []any) (any, error) {
		b, err := str(a[0])
		at, ok1 := a[1].(int64)
		n, ok2 := a[2].(int64)
		if err != nil || !ok1 || !ok2 || at < 1 {
			return nil, cmp.Or(err, unsupported("SUBSTRING of", a[1]))
		}
		at = min(at-1, int64(len(b)))
		return b[at:min(at+max(n, 0), int64(len(b)))], nil
	},
	"concat": func(_ *env, a []any) (any, error) {
		var all []byte
		for _, v := range a {
			b, err := str(v)
			if err != nil {
				return nil, err
			}
			all = append(all, b...)
		}
		return all, nil
	},
	"version":       func(*env, []any) (any, error) { return []byte(serverVersion), nil },
	"database":      func(*env, []any) (any, error) { return []byte(databaseName), nil },
	"utc_timestamp": func(*env, []any) (any, error) { return []byte(time.Now().UTC().Format(timeLayout)), nil },
}

const timeLayout = "2006-01-02 15:04:05.000000"

func str(v any) ([]byte, error) {
	switch v := v.(type) {
	case []byte:
		return v, nil
	case int64:
		return strconv.AppendInt(nil, v, 10), nil
	}
	return nil, unsupported("string function of", v)
}

func (s *scope) call(n *ast.FuncCallExpr) (expr, error) {
	name := n.FnName.L
	if name == "timestampdiff" { // the first argument is a unit
		return s.microseconds(n)
	}
	args := make([]expr, len(n.Args))
	for i, a := range n.Args {
		var err error
		if args[i], err = s.compile(a); err != nil {
			return nil, err
		}
	}
	switch name {
	case "if":
		return func(e *env) (any, error) {
			v, err := args[0](e)
			if err != nil {
				return nil, err
			}
			if v == int64(1) {
				return args[1](e)
			}
			return args[2](e)
		}, nil
	case "coalesce":
		return func(e *env) (v any, err error) {
			for _, a := range args {
				if v, err = a(e); err != nil || v != nil {
					break
				}
			}
			return v, err
		}, nil
	}
	f, ok := functions[name]
	if !ok {
		return nil, unsupported("function "+name+" of", n)
	}
	return func(e *env) (any, error) {
		values := make([]any, len(args))
		for i, a := range args {
			v, err := a(e)
			if err != nil || v == nil {
				return nil, err
			}
			values[i] = v
		}
		return f(e, values)
	}, nil
}

// microseconds compiles TIMESTAMPDIFF(MICROSECOND, '1970-01-01', time).
func (s *scope) microseconds(n *ast.FuncCallExpr) (expr, error) {
	unit, ok := n.Args[0].(*ast.TimeUnitExpr)
	if !ok || unit.Unit != ast.TimeUnitMicrosecond {
		return nil, unsupported("TIMESTAMPDIFF", n)
	}
	from, err := s.compile(n.Args[1])
	if err != nil {
		return nil, err
	}
	to, err := s.compile(n.Args[2])
	return func(e *env) (any, error) {
		a, err1 := from(e)
		b, err2 := to(e)
		if err := cmp.Or(err1, err2); err != nil {
			return nil, err
		}
		begin, err1 := instant(a)
		end, err2 := instant(b)
		return end.Sub(begin).Microseconds(), cmp.Or(err1, err2)
	}, err
}

func instant(v any) (time.Time, error) {
	b, err := str(v)
	if err != nil {
		return time.Time{}, err
	}
	t, err := time.Parse(timeLayout[:min(len(b), len(timeLayout))], string(b))
	if err != nil {
		return t, unsupported("time", v)
	}
	return t, nil
}
