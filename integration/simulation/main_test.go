package simulation

import (
	"runtime/debug"
	"testing"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a simulation makes much garbage and keeps little
	eventually.NoLeaks(m)
}
