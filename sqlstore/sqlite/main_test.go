package sqlite

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var (
	opener  = sqldbtest.Opener(OpenDB)
	open    = opener.Open
	openURL = opener.Store // applies the migrations and opens the store
	migrate = opener.Migrate
	parse   = sqldbtest.Parse
	newURL  = sqldbtest.SQLiteURL
)
