package memstore_test

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/storetest"
)

func TestConformance(t *testing.T) {
	storetest.Run(t, func(testing.TB) sqlstore.Store { return memstore.New() })
}
