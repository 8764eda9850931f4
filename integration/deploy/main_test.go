package deploy

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

const folder = "../../deploy/" // of the files under test

func TestMain(m *testing.M) { goleak.VerifyTestMain(harness.Main(m)) }
