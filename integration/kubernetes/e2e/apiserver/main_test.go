package apiserver

import (
	"testing"

	"go.uber.org/goleak"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

func TestMain(m *testing.M) {
	harness.TestMain(m,
		// client-go keeps idle connections for as long as the process lives, and klog
		// a goroutine that flushes.
		goleak.IgnoreAnyFunction("net/http.(*persistConn).readLoop"),
		goleak.IgnoreAnyFunction("net/http.(*persistConn).writeLoop"),
		goleak.IgnoreAnyFunction("k8s.io/klog/v2.(*flushDaemon).run.func1"))
}
