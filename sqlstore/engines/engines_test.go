package engines_test

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/engines"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestMain(m *testing.M) { eventually.NoLeaks(enginetest.Main(m)) }

var (
	opener    = sqldbtest.Opener(engines.OpenDB)
	openURL   = opener.Store // applies the migrations and opens the store
	migrate   = opener.Migrate
	parse     = sqldbtest.Parse
	onEngines = sqldbtest.OnEngines
	onServers = sqldbtest.OnServers

	createFence = sqldbtest.CreateFence
	swapFence   = sqldbtest.SwapFence
)

func TestConformance(t *testing.T) {
	onEngines(t, func(t *testing.T, database func(testing.TB) string) {
		storetest.Run(t, func(t testing.TB) sqlstore.Store { return openURL(t, database(t), sqlstore.Options{}) })
	})
}
