package containers

import (
	"testing"

	"github.com/go-sql-driver/mysql"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestMain(m *testing.M) {
	_ = mysql.SetLogger(&mysql.NopLogger{}) // it would log each attempt while a server starts
	harness.TestMain(m)
}

// TestImages starts each image once and runs everything on it.
func TestImages(t *testing.T) {
	for _, i := range images {
		t.Run(i.name, func(t *testing.T) {
			i.start(t)
			p := i.product()
			t.Run("storage suite", func(t *testing.T) {
				storetest.Run(t, func(t testing.TB) sqlstore.Store {
					return sqldbtest.Opener(engines.OpenDB).Store(t, p.Database(t), sqlstore.Options{})
				})
			})
			t.Run("tour", func(t *testing.T) { tour(t, p.Database(t)) })
		})
	}
}
