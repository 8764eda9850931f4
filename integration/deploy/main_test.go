package deploy

import (
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// folder is where the files under test are.
const folder = "../../deploy/"
