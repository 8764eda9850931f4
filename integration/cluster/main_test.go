package cluster

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) {
	eventually.NoLeaks(harness.Main(enginetest.Main(m)),
		// toxiproxy leaks a goroutine when a connection ends while a toxic is
		// added to it or removed.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}
