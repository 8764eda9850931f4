package engines_test

import (
	"bytes"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/printer"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// takesSQL are the functions and methods that are given a statement's text, and which
// argument it is.
var takesSQL = map[string]int{
	"Exec": 0, "Query": 0, "QueryRow": 0, "Prepare": 0,
	"ExecContext": 1, "ExecPrepared": 1, "QueryContext": 1, "QueryRowContext": 1, "PrepareContext": 1,
	"QueryxContext": 1, "QueryRowxContext": 1, "PreparexContext": 1, "GetContext": 2, "SelectContext": 2,
	// Our own, which pass it on.
	"EachRow": 2, "readRow": 2, "readKeys": 2, "page": 2, "InList": 0, "askPrimary": 2, "upsert": 2, "exec": 0, "scanColumns": 2, "shown": 1, "ask": 2,
}

// finding is a statement whose text is no constant.
type finding struct{ in, text string } // function, with its package; expression

func (f finding) String() string { return f.in + ": " + f.text }

// sources are packages by their folder. As a types.Importer it imports these alone: the
// others have no constants that statements are made of.
type sources struct {
	fset     *token.FileSet
	files    map[string][]*ast.File
	imported map[string]*types.Package
}

const module = "github.com/sqlbrain/sqlbrain/"

// Import implements types.Importer.
func (s *sources) Import(path string) (*types.Package, error) {
	name := strings.TrimPrefix(path, module)
	if s.files[name] == nil || name == path {
		return nil, errors.New("not imported")
	}
	if s.imported[name] == nil {
		s.imported[name] = s.check(name, nil)
	}
	return s.imported[name], nil
}

func (s *sources) check(name string, info *types.Info) *types.Package {
	conf := types.Config{Importer: s, Error: func(error) {}}
	p, _ := conf.Check(module+name, s.fset, s.files[name], info) // errors of imports
	p.MarkComplete()
	return p
}

// variableSQL returns the statements in a package whose texts are no constants.
func variableSQL(name string, src *sources) (found []finding) {
	info := &types.Info{Types: map[ast.Expr]types.TypeAndValue{}}
	src.check(name, info)
	fset, files := src.fset, src.files[name]
	for _, file := range files {
		for _, d := range file.Decls {
			in := name
			if f, ok := d.(*ast.FuncDecl); ok {
				in += "." + f.Name.Name
			}
			ast.Inspect(d, func(n ast.Node) bool {
				call, ok := n.(*ast.CallExpr)
				if !ok {
					return true
				}
				var callee string
				switch f := call.Fun.(type) {
				case *ast.Ident:
					callee = f.Name
				case *ast.SelectorExpr:
					callee = f.Sel.Name
				}
				at, ok := takesSQL[callee]
				if !ok || at >= len(call.Args) {
					return true
				}
				if text := call.Args[at]; info.Types[text].Value == nil {
					var b bytes.Buffer
					if err := printer.Fprint(&b, fset, text); err != nil {
						b.WriteString(err.Error())
					}
					found = append(found, finding{in, b.String()})
				}
				return true
			})
		}
	}
	return found
}

// notConstant are the statements that are put together when the program runs, and
// why no client has a say in their texts. Whoever changes one, looks again.
var notConstant = map[finding]string{
	{"sqlstore/sqldb.EachRow", "text"}:                     "its callers are checked",
	{"sqlstore/sqldb.readRow", "text"}:                     "its callers are checked",
	{"sqlstore/sqldb.page", "text"}:                        "its callers are checked",
	{"sqlstore/mysql/failover.agree", "p.consistency"}:     "package mysql's, a constant",
	{"sqlstore/mysql/failover.queryChecked", "text"}:       "a connection passes on what database/sql gives it",
	{"sqlstore/mysql/failover.QueryContext", "text"}:       "a connection passes on what database/sql gives it",
	{"sqlstore/sqldb.setUp", "s.Together"}:                 "package mysql's, constants",
	{"sqlstore/sqlite.setUp", "text"}:                      "of setUpFile and rewriteLogOnce, constants but for a number of the program's",
	{"sqlstore/sqlite.checkpoint", "text"}:                 "one of the constants above it",
	{"sqlstore/sqlite.write", "text"}:                      "its callers are checked",
	{"sqlstore/sqldb.ExecContext", "text"}:                 "a connection passes on what database/sql gives it",
	{"sqlstore/sqldb.QueryContext", "text"}:                "a connection passes on what database/sql gives it",
	{"sqlstore/sqldb.statement", "text"}:                   "a connection passes on what database/sql gives it",
	{"sqlstore/sqldb.ExecContext", "args"}:                 "no text: a prepared statement's arguments",
	{"sqlstore/sqldb.ExecPrepared", "args"}:                "no text: a prepared statement's arguments",
	{"sqlstore/sqldb.QueryContext", "args"}:                "no text: a prepared statement's arguments",
	{"sqlstore/sqldb.iterPage", "IterText(r)"}:             "chosen from constants by two booleans",
	{"sqlstore/sqldb.listPage", "text"}:                    "one of two texts of the engine, which are constants",
	{"sqlstore/sqldb.Count", "s.statements.Count"}:         "the engine's, a constant",
	{"sqlstore/sqldb.Timestamp", "s.statements.Timestamp"}: "the engine's, a constant",
	{"sqlstore/sqldb.readSnapshot", "text"}:                "the engine's, constants",
	{"sqlstore/sqldb.setUp", "statement"}:                  "the engine's, constants",
	{"sqlstore/mysql.upsert", "t.upserts.text(tail, n)"}:   "a constant head and tail, and between them (?,?) for each row",
	{"sqlstore/sqldb.readKeys", "text"}:                    "its callers are checked; a constant, and a ? for each key",
	{"sqlstore/sqldb.Lookup", "s.statements.Lookup"}:       "the engine's, a constant",
	{"sqlstore/sqldbtest.Plans", "statements.Lookup"}:      "the engine's, a constant",
	{"sqlstore/mysql.delete", "text"}:                      "of inList: a constant, and a ? for each key",
	{"sqlstore/mysql.lock", `text + " FOR UPDATE"`}:        "of inList: a constant, and a ? for each key",
	{"sqlstore/sqlite.Check", `"PRAGMA " + p.pragma`}:      "from a table of constants above it; SQLite takes no argument there",
	{"sqlstore/sqlite.Size", "p.text"}:                     "from a table of constants above it",
	{"sqlstore/sqlite.pragma", `"PRAGMA " + name`}:         "called with constants; SQLite takes no argument there",
	{"cmd/sqlbrain/internal/doctor.rights", "g.statement"}: "from a table of constants",
	{"cmd/sqlbrain/internal/doctor.shown", "statement"}:    "its callers are checked",
	{"cmd/sqlbrain/internal/doctor.identities", "text"}:    "its closure is given constants",
	{"cmd/sqlbrain/internal/doctor.ask", "query"}:          "its callers are checked",
	{"migrations.scanColumns", "query"}:                    "its callers are checked",
	{"migrations.exec", "query"}:                           "its callers are checked",
	{"migrations.Run", "string(script)"}:                   "a migration, which is part of the program",
	{"migrations.end", "stmt"}:                             "COMMIT or ROLLBACK",
	{"migrations.withConn", "d.readLockWait"}:              "the engine's, a constant",

	{"sqlstore/mysql/failover.askPrimary", `"SELECT " + columns`}:                         "called with constants",
	{"sqlstore/sqlite.setUp", "fmt.Sprintf(busyTimeoutText, busyTimeout.Milliseconds())"}: "a number of the program's",
	{"sqlstore/sqlite.setBusyTimeout", "fmt.Sprintf(busyTimeoutText, d.Milliseconds())"}:  "a number of the program's",
	{"cmd/sqlbrain/internal/kine.write", "w.id(r.ModRevision)"}:                           "no text: a prepared statement's argument",
	{"sqlstore/sqldb.latestChunk", `one + strings.Repeat(" UNION ALL "+one, n-1)`}:        "the engine's constant, as often as there are ranges",
	{"sqlstore/mysql.commitSingle", "e.upserts.text(conditionalTail, len(ops))"}:          "a constant head and tail, and between them (?,?) for each row",
	{"cmd/sqlbrain/internal/doctor.sqliteSize", `"PRAGMA " + name`}:                       "from a table of constants above it; SQLite takes no argument there",
	{"migrations.withConn", "fmt.Sprint(d.setLockWait, d.lockWait)"}:                      "the engine's constant and a number: SET takes no argument everywhere",
	{"migrations.withConn", "fmt.Sprint(d.setLockWait, before)"}:                          "the engine's constant and a number that the server gave",

	{"sqlstore/mysql/failover.queryChecked", `"SELECT '', CONCAT_WS('" + separator + "', " + columns + ") UNION ALL " + text`}: "constants, and what database/sql gives the connection",
}

// TestStatementsAreConstants: keys, values and whatever else clients send reach the
// database as arguments, never in the text of a statement.
func TestStatementsAreConstants(t *testing.T) {
	t.Parallel()
	fset := token.NewFileSet()
	packages := map[string][]*ast.File{}
	src := &sources{fset, packages, map[string]*types.Package{}}
	err := filepath.WalkDir("../..", func(path string, e os.DirEntry, err error) error {
		switch {
		case err != nil:
			return err
		case e.IsDir() && (slices.Contains([]string{"../../integration", "../../.git", "../../bin",
			"../../sqlstore/enginetest", "../../sqlstore/storetest", "../../sqlstore/faultdriver"}, filepath.ToSlash(path)) ||
			e.Name() == "testdata"):
			return filepath.SkipDir // of tests
		case e.IsDir() || !strings.HasSuffix(path, ".go") || strings.HasSuffix(path, "_test.go"):
			return nil
		}
		file, err := parser.ParseFile(fset, path, nil, parser.SkipObjectResolution)
		if err == nil {
			dir := strings.TrimPrefix(filepath.ToSlash(filepath.Dir(path)), "../../")
			packages[dir] = append(packages[dir], file)
		}
		return err
	})
	require.NoError(t, err)
	if len(packages["sqlstore/sqldb"]) < 10 || len(packages["sqlstore/mysql"]) < 10 ||
		len(packages["sqlstore/sqlite"]) < 5 || len(packages["migrations"]) == 0 {
		t.Fatal("the sources were not found")
	}
	unused := map[finding]bool{}
	for f := range notConstant {
		unused[f] = true
	}
	for dir := range packages {
		for _, f := range variableSQL(dir, src) {
			if notConstant[f] == "" {
				t.Errorf("%s is no constant: give what varies as an argument, or say in notConstant why it is safe", f)
			}
			delete(unused, f)
		}
	}
	for f := range unused {
		t.Errorf("%s: there is no such statement any more", f)
	}
}

// TestVariableStatementsAreFound: the test above can fail.
func TestVariableStatementsAreFound(t *testing.T) {
	t.Parallel()
	for body, want := range map[string]string{
		`db.ExecContext(ctx, "SELECT 1")`:                                "",
		`db.ExecContext(ctx, "SELECT " + column + " FROM t", key)`:       "",
		`const text = "SELECT ?"; db.QueryRowContext(ctx, text, key)`:    "",
		`db.ExecContext(ctx, fmt.Sprintf("SELECT '%s'", key))`:           `fmt.Sprintf("SELECT '%s'", key)`,
		`db.QueryContext(ctx, "SELECT '" + key + "'")`:                   `"SELECT '" + key + "'"`,
		`db.PrepareContext(ctx, key)`:                                    "key",
		`text := "SELECT 1"; db.QueryRowContext(ctx, text)`:              "text",
		`EachRow(ctx, db, "SELECT " + strings.Repeat("?", n), nil, nil)`: `"SELECT " + strings.Repeat("?", n)`,
		`func() { db.SelectContext(ctx, &rows, variable) }()`:            "variable",
		`db.Exec("DELETE FROM t WHERE k = " + strconv.Itoa(n))`:          `"DELETE FROM t WHERE k = " + strconv.Itoa(n)`,
		`values := u.Query(); db.ExecContext(ctx, values.Get("q"))`:      `values.Get("q")`,
	} {
		source := fmt.Sprintf("package p\nimport (\"database/sql\"; \"fmt\")\nconst column = \"c\"\nvar variable = "+
			"column\nfunc f(db *sql.DB, key string, n int) {\n%s\n}", body)
		fset := token.NewFileSet()
		file, err := parser.ParseFile(fset, "p.go", source, parser.SkipObjectResolution)
		require.NoError(t, err)
		found := variableSQL("p", &sources{fset, map[string][]*ast.File{"p": {file}}, map[string]*types.Package{}})
		switch {
		case want == "" && len(found) > 0:
			t.Errorf("%s: found %s", body, found)
		case want != "" && (len(found) != 1 || found[0] != finding{"p.f", want}):
			t.Errorf("%s: found %s, want %s", body, found, want)
		}
	}
}
