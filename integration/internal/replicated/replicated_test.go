package replicated_test

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/integration/internal/replicated"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

// TestServersReplicate kills the primary: another one takes over with what was
// written, and the one that was killed comes back.
func TestServersReplicate(t *testing.T) {
	if !harness.Long() {
		t.Skip("integration/replicated covers this too; run it after changes of this package: SQLBRAIN_LONG=1")
	}
	for _, p := range replicated.Products {
		t.Run(p.Name, func(t *testing.T) {
			d := replicated.Start(t, p)
			first := d.Primary()
			d.Exec(first, "CREATE TABLE sqlbrain.t (a INT PRIMARY KEY)", "INSERT INTO sqlbrain.t VALUES (1)")
			d.Kill(first)
			second := d.Primary()
			require.NotEqual(t, first, second)
			d.Exec(second, "INSERT INTO sqlbrain.t VALUES (2)")
			d.Start(first)
			d.Exec(second, "INSERT INTO sqlbrain.t VALUES (3)")
			require.Equal(t, "3", d.Query(second, "SELECT COUNT(*) FROM sqlbrain.t"))
		})
	}
}
