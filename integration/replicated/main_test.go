package replicated

import (
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// wait bounds what must happen at some time.
const wait = 4 * time.Minute

func TestMain(m *testing.M) { goleak.VerifyTestMain(harness.Main(enginetest.Main(m))) }
