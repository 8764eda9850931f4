package cluster

import (
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

const (
	// wait bounds what must happen at some time, attemptWait one attempt.
	wait        = 5 * time.Minute
	attemptWait = 10 * time.Second
)

func TestMain(m *testing.M) { harness.TestMain(m) }
