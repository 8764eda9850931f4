package cluster

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

func TestMain(m *testing.M) {
	harness.TestMain(m,
		// toxiproxy leaks a goroutine when a connection ends while a toxic is
		// added to it or removed.
		goleak.IgnoreAnyFunction("github.com/Shopify/toxiproxy/v2/toxics.(*ToxicStub).Run"))
}
