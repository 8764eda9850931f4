package replicated

import (
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// wait bounds what must happen at some time.
const wait = 4 * time.Minute

func TestMain(m *testing.M) { eventually.NoLeaks(harness.Main(enginetest.Main(m))) }
