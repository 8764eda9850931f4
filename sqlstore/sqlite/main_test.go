package sqlite

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/sqldbtest"
)

func TestMain(m *testing.M) { eventually.NoLeaks(m) }

var (
	opener  = sqldbtest.Opener(OpenDB)
	open    = opener.Open
	openURL = opener.Store // applies the migrations and opens the store
	migrate = opener.Migrate
	parse   = sqldbtest.Parse
	newURL  = sqldbtest.SQLiteURL
)
