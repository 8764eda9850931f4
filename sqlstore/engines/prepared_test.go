package engines_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/faultdriver"
)

// TestStatementsArePreparedOnce: preparing for a single use would be slower than
// not preparing at all.
func TestStatementsArePreparedOnce(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, database func(testing.TB) string) {
		faults := faultdriver.New()
		s := openURL(t, database(t), sqlstore.Options{WrapConnector: faults.Wrap, MaxOpenConns: 1})
		createFence(t, s)
		ctx := context.Background()
		work := func(from, to int64) {
			t.Helper()
			for n := from; n <= to; n++ {
				require.NoError(t, swapFence(ctx, s, n))
				if _, err := s.Get(ctx, coder.FenceKey()); err != nil {
					t.Fatal(err)
				}
				b := s.BeginBatchWrite()
				for i := range 20 {
					b.PutIfNotExist(fmt.Appendf(nil, "%d/%d", n, i), []byte("x"))
				}
				require.NoError(t, b.Commit(ctx))
			}
		}
		work(2, 30)
		connections, prepared := 0, map[string]int{}
		for _, statement := range faults.Seen() {
			switch statement.Kind {
			case faultdriver.Connect:
				connections++
			case faultdriver.Prepare:
				prepared[statement.Text]++
			}
		}
		if connections == 0 || len(prepared) == 0 {
			t.Errorf("%d connections, %d statements", connections, len(prepared))
		}
		for text, n := range prepared {
			if n > connections {
				t.Errorf("prepared %d times on %d connections: %.60s", n, connections, text)
			}
		}
	})
}
