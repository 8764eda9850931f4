package node

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(enginetest.Main(m)) }
