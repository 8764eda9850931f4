package replicated

import (
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// wait bounds what must happen at some time.
const wait = 4 * time.Minute

func TestMain(m *testing.M) { harness.TestMain(m) }
