package mysql

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

func TestMain(m *testing.M) { eventually.NoLeaks(enginetest.Main(m)) }

var (
	opener    = sqldbtest.Opener(OpenDB)
	open      = opener.Open
	openURL   = opener.Store // applies the migrations and opens the store
	migrate   = opener.Migrate
	parse     = sqldbtest.Parse
	onServers = sqldbtest.OnServers

	createFence = sqldbtest.CreateFence
	swapFence   = sqldbtest.SwapFence
	fenceToken  = sqldbtest.FenceValue
)
