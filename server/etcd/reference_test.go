package etcd

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
	"google.golang.org/grpc/status"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/page"
)

// answer is an error that clients see, and why.
type answer struct{ code, text, cause string }

// TestErrorsPage: docs/reference/errors.md has the texts of the errors that the handlers answer with.
func TestErrorsPage(t *testing.T) {
	var answers []answer
	add := func(err error, cause string) {
		s := status.Convert(err)
		answers = append(answers, answer{s.Code().String(), s.Message(), cause})
	}
	for _, e := range grpcErrors {
		add(e.answer, e.is.Error())
	}
	add(errSingleMember, "")
	add(errInternal, "an error of no known kind")
	known := func(text string) bool {
		return slices.ContainsFunc(answers, func(a answer) bool { return a.text == text })
	}
	for _, a := range inSource(t) {
		if !known(a.text) {
			answers = append(answers, a)
		}
	}
	slices.SortStableFunc(answers, func(a, b answer) int { return strings.Compare(a.code+a.text, b.code+b.text) })

	var b strings.Builder
	b.WriteString(`# Errors of requests

These are the gRPC codes and texts that clients see. Texts that begin with ` + "`etcdserver:`" + ` are etcd's. The JSON gateway and
the console answer with the same texts. The cause is what the server's log says, where the log says more.

| code | text | cause |
|---|---|---|
`)
	for i := 0; i < len(answers); {
		first, causes := answers[i], []string(nil)
		for ; i < len(answers) && answers[i].code == first.code && answers[i].text == first.text; i++ {
			if cause := answers[i].cause; cause != "" &&
				!strings.HasSuffix(first.text, ": "+strings.TrimPrefix(cause, "auth: ")) && !slices.Contains(causes, cause) {
				causes = append(causes, cause)
			}
		}
		fmt.Fprintf(&b, "| %s | %s | %s |\n", first.code, page.Cell(first.text), page.Cell(strings.Join(causes, "; ")))
	}
	page.Check(t, "../..", "errors.md", b.String())
}

// inSource returns the errors that the sources of the handlers and of the transport make or take from etcd's package.
func inSource(t *testing.T) (out []answer) {
	etcds := make(map[string]answer)
	dir, err := exec.CommandContext(t.Context(), "go", "list", "-f", "{{.Dir}}",
		"go.etcd.io/etcd/api/v3/v3rpc/rpctypes").Output()
	require.NoError(t, err)
	eachNode(t, filepath.Join(strings.TrimSpace(string(dir)), "*.go"), func(n ast.Node) {
		if v, ok := n.(*ast.ValueSpec); ok && len(v.Names) == 1 && len(v.Values) == 1 {
			if a, ok := made(v.Values[0]); ok {
				etcds[v.Names[0].Name] = a
			}
		}
	})
	require.NotEmpty(t, etcds)
	find := func(n ast.Node) {
		if a, ok := made(n); ok {
			out = append(out, a)
		}
		if s, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := s.X.(*ast.Ident); ok && x.Name == "rpctypes" && strings.HasPrefix(s.Sel.Name, "ErrGRPC") {
				require.Contains(t, etcds, s.Sel.Name)
				out = append(out, etcds[s.Sel.Name])
			}
		}
	}
	eachNode(t, "*.go", find)
	eachNode(t, "../transport/*.go", find)
	return out
}

// made returns the error of a call of status.Error or status.Errorf with a constant text.
func made(n ast.Node) (answer, bool) {
	call, ok := n.(*ast.CallExpr)
	if !ok || len(call.Args) < 2 {
		return answer{}, false
	}
	f, ok := call.Fun.(*ast.SelectorExpr)
	if !ok || (f.Sel.Name != "Error" && f.Sel.Name != "Errorf") {
		return answer{}, false
	}
	code, ok := call.Args[0].(*ast.SelectorExpr)
	text, isText := call.Args[1].(*ast.BasicLit)
	if !ok || !isText {
		return answer{}, false
	}
	s, err := strconv.Unquote(text.Value)
	s = strings.NewReplacer("%d", "…", "%s", "…", "%q", "…").Replace(s)
	return answer{code: code.Sel.Name, text: s}, err == nil
}

func eachNode(t *testing.T, pattern string, f func(ast.Node)) {
	files, err := filepath.Glob(pattern)
	require.NoError(t, err)
	require.NotEmpty(t, files, pattern)
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
		require.NoError(t, err)
		ast.Inspect(parsed, func(n ast.Node) bool { f(n); return true })
	}
}
