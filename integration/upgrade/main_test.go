package upgrade

import (
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) { eventually.NoLeaks(harness.Main(enginetest.Main(m))) }

// wait bounds one request, and one condition that must become true.
const wait = eventually.Patience

// stepTime bounds what is done between two changes.
const stepTime = 5 * time.Minute
