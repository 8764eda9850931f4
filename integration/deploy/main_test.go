package deploy

import (
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

const folder = "../../deploy/" // of the files under test

func TestMain(m *testing.M) { eventually.NoLeaks(harness.Main(m)) }
