package faults

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(harness.Main(enginetest.Main(m)))
}
