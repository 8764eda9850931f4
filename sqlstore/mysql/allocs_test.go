package mysql

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// TestStatementsAreBuiltFromArgumentsAlone bounds the allocations of building a commit's
// statement: its text is kept, and an argument is one.
func TestStatementsAreBuiltFromArgumentsAlone(t *testing.T) {
	const rows = 64
	var ops []sqlstore.Op
	for i := range rows {
		ops = append(ops, sqlstore.Op{
			Kind: sqlstore.OpPutIfNotExist, Key: coder.EncodeVersionKey([]byte("/registry/pods/ns/x"), int64(i+1)),
			Value: coder.EncodeVersion(&coder.Record{}),
		})
	}
	keys := make([][]byte, rows)
	for i := range keys {
		keys[i] = ops[i].Key
	}
	var texts statementTexts
	texts.text(conditionalTail, rows)
	for _, c := range []struct {
		name string
		most float64
		do   func()
	}{
		{"conditional", 0, func() {
			for _, op := range ops {
				conditional(op)
			}
		}},
		{"text", 1, func() { texts.text(conditionalTail, rows) }},
		{"rowArgs", 1 + 2*rows, func() { rowArgs(ops) }},
		{"expectedRows", 0, func() { expectedRows(ops) }},
		{"inList", 3 + rows, func() { sqldb.InList("SELECT 1 WHERE internal_key IN ", keys) }},
	} {
		require.LessOrEqual(t, testing.AllocsPerRun(100, c.do), c.most, c.name)
	}
}
