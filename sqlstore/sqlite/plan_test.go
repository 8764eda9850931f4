package sqlite

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

func TestNoStatementScansTheTableOnSQLite(t *testing.T) {
	t.Parallel()
	s := openURL(t, newURL(t), sqlstore.Options{})
	lo, hi := sqldbtest.FillPlans(t, s)
	plans := sqldbtest.Plans(&statements, lo, hi)
	for _, text := range []string{insertText, putText, swapOrPutText, swapText, deleteText, deleteIfText, swapRangeText} {
		plans[text] = []any{lo, lo, lo}[:strings.Count(text, "?")]
	}
	for text, args := range plans {
		var rows []struct {
			Detail string `db:"detail"`
		}
		require.NoError(t, s.Database().Write().Unsafe().Select(&rows, "EXPLAIN QUERY PLAN "+text, args...), text)
		for _, row := range rows {
			if strings.HasPrefix(row.Detail, "SCAN object") || strings.HasPrefix(row.Detail, "SCAN i") ||
				strings.HasPrefix(row.Detail, "SCAN v") || strings.Contains(row.Detail, "TEMP B-TREE") ||
				strings.Contains(row.Detail, "AUTOMATIC") {
				t.Errorf("%.80s: %s", text, row.Detail)
			}
		}
		if (text == statements.List || strings.HasPrefix(text, statements.Lookup)) && (len(rows) != 2 ||
			!strings.Contains(rows[1].Detail, "SEARCH v USING INDEX sqlite_autoindex_object_1 (internal_key=?)")) {
			t.Errorf("%.80s: the join: %+v", text, rows)
		}
	}
}
