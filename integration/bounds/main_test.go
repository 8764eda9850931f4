package bounds

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(harness.Main(enginetest.Main(m))) }
