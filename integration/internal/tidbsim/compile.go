package tidbsim

import (
	"context"
	"regexp"
	"slices"
	"strings"
	"sync"

	"github.com/pingcap/tidb/pkg/parser"
	"github.com/pingcap/tidb/pkg/parser/ast"
	"github.com/pingcap/tidb/pkg/parser/test_driver"
)

// parsed keeps what was compiled, by its text. Safe for concurrent use.
type parsed struct {
	mu     sync.Mutex
	parser *parser.Parser
	texts  map[string]compiledText
}

type compiledText struct {
	statement any // control, *query or change
	err       error
}

var manyRows = regexp.MustCompile(`\(\?,\?\)(,\(\?,\?\))+`)

// maxTexts bounds the texts that are kept.
const maxTexts = 1000

// get returns what text means. "" is a ping.
func (p *parsed) get(text string) (any, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if c, ok := p.texts[text]; ok {
		return c.statement, c.err
	}
	if p.parser == nil {
		p.parser = parser.New()
	}
	if p.texts == nil || len(p.texts) >= maxTexts {
		p.texts = map[string]compiledText{}
	}
	var c compiledText
	if text == "" {
		c.statement = control(func(context.Context, *session, []any) (*result, error) { return &result{}, nil })
	} else {
		c.statement, c.err = p.compile(text)
	}
	if c.err != nil {
		if n := numberOf(c.err); n == 0 || n == erParse {
			c.err = number(erParse, "%v near %q", c.err, manyRows.ReplaceAllString(text, "(?,?),…"))
		}
	}
	p.texts[text] = c
	return c.statement, c.err
}

func (p *parsed) compile(text string) (any, error) {
	nodes, _, err := p.parser.ParseSQL(text)
	if err != nil {
		return nil, err
	}
	if len(nodes) != 1 {
		return nil, number(erParse, "%d statements", len(nodes))
	}
	s := &scope{params: placeholders(nodes[0])}
	switch n := nodes[0].(type) {
	case *ast.SelectStmt, *ast.SetOprStmt:
		if c := advisory(s, n); c != nil {
			return c, nil
		}
		return s.query(n)
	case *ast.InsertStmt:
		return s.insert(n)
	case *ast.DeleteStmt:
		return s.delete(n)
	case *ast.UpdateStmt:
		return s.update(n)
	case *ast.SetStmt:
		return s.set(n)
	}
	return compileControl(nodes[0])
}

// finder collects placeholders.
type finder struct{ at []int }

func (f *finder) Enter(n ast.Node) (ast.Node, bool) {
	if m, ok := n.(*test_driver.ParamMarkerExpr); ok {
		f.at = append(f.at, m.Offset)
	}
	return n, false
}
func (f *finder) Leave(n ast.Node) (ast.Node, bool) { return n, true }

func placeholders(n ast.Node) []int {
	var f finder
	n.Accept(&f)
	slices.Sort(f.at)
	return f.at
}

// layouts are the columns of the tables that can be created. The first column is the
// primary key.
var layouts = map[string][]column{
	"object": {
		{name: "internal_key", dataType: "varbinary", length: 3072, notNull: true},
		{name: "object_value", dataType: "mediumblob", length: 1<<24 - 1, notNull: true},
	},
	"schema_migrations": {
		{name: "version", dataType: "bigint", notNull: true},
		{name: "dirty", dataType: "tinyint", notNull: true},
	},
}

// source returns the columns of a table, and the table's name if it is not virtual.
func source(n *ast.TableName) (name string, columns []column, virtual bool, err error) {
	name = n.Name.L
	if n.Schema.L == "" || n.Schema.L == databaseName {
		if columns, ok := layouts[name]; ok {
			return name, columns, false, nil
		}
	} else if columns, ok := virtualTables[n.Schema.L+"."+name]; ok {
		return n.Schema.L + "." + name, columns, true, nil
	}
	return "", nil, false, number(erNoSuchTable, "Table '%s.%s' doesn't exist", n.Schema.O, n.Name.O)
}

// query is a SELECT, or several with UNION ALL.
type query struct {
	parts []*part
	locks bool // FOR UPDATE
	// tables: it reads tables of the database.
	tables bool
}

// part is one SELECT.
type part struct {
	table   string // "" for none
	virtual bool
	columns int
	// join is the key of the one row of the same table that is joined, NULLs if there is
	// none; nil: no join.
	join       expr
	joined     int // columns of the joined table
	where      *filter
	fields     []expr
	names      []string
	aggregates []aggregate
	order      expr // of virtual tables only
	desc       bool
	limit      expr // nil: none
	offset     expr // nil: none
	locks      bool
}

// filter is a WHERE clause on a table whose first column is its key.
type filter struct {
	points []expr // nil: no such condition
	lo, hi expr   // lo <= key < hi; nil: no bound
	rest   []expr
}

func (s *scope) query(n ast.StmtNode) (*query, error) {
	q := &query{}
	var add func(n ast.Node) error
	add = func(n ast.Node) error {
		switch n := n.(type) {
		case *ast.SelectStmt:
			if n.AfterSetOperator != nil && *n.AfterSetOperator != ast.UnionAll {
				return unsupported("set operation", n)
			}
			inner := &scope{params: s.params}
			p, err := inner.part(n)
			if err != nil {
				return err
			}
			q.parts = append(q.parts, p)
			q.locks = q.locks || p.locks
			q.tables = q.tables || p.table != "" && !p.virtual
			return nil
		case *ast.SetOprSelectList:
			if n.AfterSetOperator != nil && *n.AfterSetOperator != ast.UnionAll || n.Limit != nil || n.OrderBy != nil ||
				n.With != nil {
				return unsupported("set operation", n)
			}
			for _, one := range n.Selects {
				if err := add(one); err != nil {
					return err
				}
			}
			return nil
		case *ast.SetOprStmt:
			if n.Limit != nil || n.OrderBy != nil || n.With != nil {
				return unsupported("set operation", n)
			}
			return add(n.SelectList)
		}
		return unsupported("query", n)
	}
	return q, add(n)
}

func (s *scope) part(n *ast.SelectStmt) (*part, error) {
	if n.GroupBy != nil || n.Having != nil || n.Distinct || n.With != nil || n.SelectIntoOpt != nil ||
		len(n.WindowSpecs) > 0 || n.Kind != ast.SelectStmtKindSelect {
		return nil, unsupported("query", n)
	}
	for _, hint := range n.TableHints {
		if hint.HintName.L != "inl_join" {
			return nil, unsupported("hint", hint)
		}
	}
	p := &part{}
	if n.From != nil {
		if err := s.from(p, n.From.TableRefs); err != nil {
			return nil, err
		}
	}
	var err error
	if p.where, err = s.filter(n.Where, p.virtual || p.table == ""); err != nil {
		return nil, err
	}
	s.aggregates = &p.aggregates
	for _, f := range n.Fields.Fields {
		if f.WildCard != nil {
			return nil, unsupported("field", f.WildCard)
		}
		e, err := s.compile(f.Expr)
		if err != nil {
			return nil, err
		}
		name := f.AsName.O
		if c, ok := f.Expr.(*ast.ColumnNameExpr); ok && name == "" {
			name = c.Name.Name.O
		} else if name == "" {
			name = f.Text()
		}
		p.fields, p.names = append(p.fields, e), append(p.names, name)
	}
	s.aggregates = nil
	if err := s.ordered(p, n.OrderBy); err != nil {
		return nil, err
	}
	if n.Limit != nil {
		if p.limit, err = s.compile(n.Limit.Count); err != nil {
			return nil, err
		}
		if n.Limit.Offset != nil {
			if p.offset, err = s.compile(n.Limit.Offset); err != nil {
				return nil, err
			}
		}
	}
	if n.LockInfo != nil && n.LockInfo.LockType != ast.SelectLockNone {
		if n.LockInfo.LockType != ast.SelectLockForUpdate || p.virtual || p.join != nil {
			return nil, unsupported("lock "+n.LockInfo.LockType.String()+" of", n)
		}
		p.locks = true
	}
	return p, nil
}

func (s *scope) ordered(p *part, order *ast.OrderByClause) error {
	if order == nil {
		return nil
	}
	if len(order.Items) != 1 {
		return unsupported("ORDER BY", order)
	}
	item := order.Items[0]
	if c, ok := item.Expr.(*ast.ColumnNameExpr); ok && !p.virtual {
		if i, err := s.column(c.Name); err != nil || i != 0 {
			return unsupported("ORDER BY", item.Expr)
		}
		p.desc = item.Desc
		return nil
	}
	if !p.virtual || item.Desc {
		return unsupported("ORDER BY", item.Expr)
	}
	var err error
	p.order, err = s.compile(item.Expr)
	return err
}

func (s *scope) from(p *part, n *ast.Join) error {
	named := func(n ast.ResultSetNode) (err error) {
		ref, ok := n.(*ast.TableSource)
		if !ok {
			return unsupported("table", n)
		}
		t, ok := ref.Source.(*ast.TableName)
		if !ok {
			return unsupported("table", ref.Source)
		}
		name, columns, virtual, err := source(t)
		if err != nil {
			return err
		}
		alias := ref.AsName.O
		if alias == "" {
			alias = t.Name.O
		}
		if p.table != "" && p.table != name {
			return unsupported("join of other tables", n)
		}
		p.table, p.virtual = name, virtual
		s.tables = append(s.tables, scopeTable{alias, columns})
		return nil
	}
	if err := named(n.Left); err != nil {
		return err
	}
	p.columns = len(s.tables[0].columns)
	if n.Right == nil {
		return nil
	}
	if err := named(n.Right); err != nil {
		return err
	}
	if n.Tp != ast.LeftJoin || n.On == nil || p.virtual {
		return unsupported("join", n)
	}
	on, ok := n.On.Expr.(*ast.BinaryOperationExpr)
	if !ok {
		return unsupported("ON", n.On.Expr)
	}
	key, ok := on.L.(*ast.ColumnNameExpr)
	if i, err := s.column(key.Name); !ok || err != nil || i != p.columns {
		return unsupported("ON", on.L)
	}
	p.joined = len(s.tables[1].columns)
	var err error
	p.join, err = s.compile(on.R)
	return err
}

// filter compiles a WHERE clause. Conditions on the key become points and bounds, unless
// the table is virtual.
func (s *scope) filter(n ast.ExprNode, virtual bool) (*filter, error) {
	f := &filter{}
	if n == nil {
		return f, nil
	}
	if b, ok := n.(*ast.BinaryOperationExpr); ok && b.Op.String() == "and" {
		for _, side := range []ast.ExprNode{b.L, b.R} {
			one, err := s.filter(side, virtual)
			if err != nil {
				return nil, err
			}
			if one.points != nil && f.points != nil || one.lo != nil && f.lo != nil || one.hi != nil && f.hi != nil {
				return nil, unsupported("condition", side)
			}
			if one.points != nil {
				f.points = one.points
			}
			if one.lo != nil {
				f.lo = one.lo
			}
			if one.hi != nil {
				f.hi = one.hi
			}
			f.rest = append(f.rest, one.rest...)
		}
		return f, nil
	}
	if !virtual {
		if done, err := s.bound(f, n); done || err != nil {
			return f, err
		}
	}
	e, err := s.compile(n)
	f.rest = []expr{e}
	return f, err
}

// bound reports whether n is a condition on the key, which it adds to f.
func (s *scope) bound(f *filter, n ast.ExprNode) (bool, error) {
	isKey := func(n ast.ExprNode) bool {
		c, ok := n.(*ast.ColumnNameExpr)
		if !ok {
			return false
		}
		i, err := s.column(c.Name)
		return err == nil && i == 0
	}
	switch n := n.(type) {
	case *ast.PatternInExpr:
		if !isKey(n.Expr) || n.Sel != nil || n.Not {
			return false, nil
		}
		for _, item := range n.List {
			e, fixed, err := s.constant(item)
			if err != nil || !fixed {
				return false, err
			}
			f.points = append(f.points, e)
		}
		return true, nil
	case *ast.BinaryOperationExpr:
		if !isKey(n.L) {
			return false, nil
		}
		e, fixed, err := s.constant(n.R)
		if err != nil || !fixed {
			return false, err
		}
		switch strings.ToLower(n.Op.String()) {
		case "eq":
			f.points = []expr{e}
		case "ge":
			f.lo = e
		case "lt":
			f.hi = e
		default:
			return false, nil
		}
		return true, nil
	}
	return false, nil
}
