package compat

import (
	"fmt"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func TestMain(m *testing.M) {
	harness.TestMain(telling{m})
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

// share returns how many histories are run on an engine. In a run of the usual length MySQL gets half: it and MariaDB
// are sent the same statements.
func share(flag *int, usual, long int) func(harness.Engine) int {
	return func(e harness.Engine) int {
		if e.Name == string(enginetest.MySQL) && *flag == 0 && !harness.Long() {
			return usual / 2
		}
		return number(flag, usual, long)
	}
}
