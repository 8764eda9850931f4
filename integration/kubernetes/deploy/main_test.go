package deploy

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

const folder = "../../../deploy/" // of the files under test

func TestMain(m *testing.M) { harness.TestMain(m) }
