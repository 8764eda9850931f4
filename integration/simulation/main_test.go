package simulation

import (
	"runtime/debug"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) {
	debug.SetGCPercent(400) // a simulation makes much garbage and keeps little
	goleak.VerifyTestMain(m)
}
