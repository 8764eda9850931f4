package zones

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

func TestMain(m *testing.M) { harness.TestMain(m) }
