package mysql

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.Main(m)) }

var (
	opener    = sqldbtest.Opener(OpenDB)
	open      = opener.Open
	openURL   = opener.Store // applies the migrations and opens the store
	migrate   = opener.Migrate
	parse     = sqldbtest.Parse
	onServers = sqldbtest.OnServers

	createChain = sqldbtest.CreateChain
	swapChain   = sqldbtest.SwapChain
	chainValue  = sqldbtest.ChainValue
)
