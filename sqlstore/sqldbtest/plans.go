package sqldbtest

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// FillPlans writes enough rows for an optimizer to have a choice. It returns the bounds of
// most of their index rows.
func FillPlans(t testing.TB, s sqlstore.Store) (lo, hi []byte) {
	t.Helper()
	b := s.BeginBatchWrite()
	for i := range 3000 {
		raw := fmt.Appendf(nil, "/registry/pods/%05d", i)
		for rev := int64(1); rev <= 3; rev++ {
			b.PutIfNotExist(coder.EncodeVersionKey(raw, rev),
				coder.EncodeVersion(&coder.Record{Key: raw, ModRevision: rev, Value: make([]byte, 100)}))
		}
		b.PutIfNotExist(coder.EncodeIndexKey(raw), coder.EncodeIndex(coder.Index{ModRevision: 3}))
	}
	require.NoError(t, b.Commit(context.Background()))
	return coder.IndexBounds([]byte("/registry/pods/00100"), []byte("/registry/pods/02900"))
}

// Plans returns the statements whose cost must not grow with the table, and arguments for
// the table that FillPlans made.
func Plans(statements *sqldb.Statements, lo, hi []byte) map[string][]any {
	one := statements.LatestAtOrBefore
	many, args := sqldb.InList("SELECT internal_key, object_value FROM object WHERE internal_key IN ",
		make([][]byte, sqldb.InKeys))
	deletes, _ := sqldb.InList("DELETE FROM object WHERE internal_key IN ", make([][]byte, sqldb.InKeys))
	for i := range args {
		args[i] = coder.EncodeIndexKey(fmt.Appendf(nil, "/registry/pods/%05d", 5*i))
	}
	plans := map[string][]any{
		statements.List:                               {lo, hi, 500},
		statements.ListKeys:                           {lo, hi, 500},
		statements.Count:                              {lo[:8], lo[:8], lo, hi},
		sqldb.MeasureText:                             {lo, lo, lo, hi, 500},
		sqldb.SeekNthText:                             {lo, hi, 500},
		sqldb.IterText(sqlstore.Range{}):              {lo, hi, 500},
		sqldb.IterText(sqlstore.Range{Reverse: true}): {lo, hi, 500},
		one + " UNION ALL " + one:                     {1, lo, hi, 2, lo, hi},
		many:                                          args,
		deletes:                                       args,
	}
	if statements.Lookup != "" {
		lookup, _ := sqldb.InList(statements.Lookup, make([][]byte, sqldb.InKeys))
		plans[lookup] = args
	}
	return plans
}
