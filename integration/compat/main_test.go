package compat

import (
	"fmt"
	"os"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

func TestMain(m *testing.M) {
	eventually.NoLeaks(telling{harness.Main(enginetest.Main(m))})
}

// telling prints after the tests how much was compared.
type telling struct{ inner interface{ Run() int } }

func (r telling) Run() int {
	code := r.inner.Run()
	for _, line := range tallies() {
		fmt.Println(line)
	}
	return code
}

// share is how many of n histories are run on e. In a run of the usual length
// MySQL gets half: it and MariaDB are sent the same statements.
func share(e harness.Engine, env string, n int) int {
	if e.Name == string(enginetest.MySQL) && os.Getenv(env) == "" && !harness.Long() {
		return n / 2
	}
	return n
}
