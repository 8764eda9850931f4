package console

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

func TestMain(m *testing.M) {
	becomeStill()
	harness.TestMain(m)
}
