package simulation

import (
	"strconv"
	"testing"
	"time"

	"github.com/sqlbrain/sqlbrain/integration/simulation/model"
	"github.com/sqlbrain/sqlbrain/server/timing"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

// longestLease is the longest read lease in simulated time: that of the slowest clock of newMachine, rounded up.
const longestLease = timing.ReadLease*4/3 + time.Microsecond

// TestStepsAreThoseOfTheModel simulates seeds, and takes the steps that their nodes recorded in the model of the
// protocol.
func TestStepsAreThoseOfTheModel(t *testing.T) {
	replay, err := model.NewReplay(t.Context(), t.TempDir(), longestLease)
	enginetest.Need(t, err, model.ErrNoTools)
	first, count := seeds(10, 500)
	for seed := first; seed < first+count; seed++ {
		t.Run(strconv.FormatUint(seed, 10), func(t *testing.T) {
			p := NewPlan(seed)
			t.Log(p) // first: a panic ends the test
			r := Run(t, p)
			if p.loses() {
				t.Skip("the database loses data, which this model does not have")
			}
			account, err := replay.Validate(t.Context(), r.Steps)
			if err != nil {
				t.Errorf("%v\n%v\n%s", err, p, again(t, seed))
			}
			t.Logf("%d steps, %d linearizable reads among them, %d leaders", account.Steps, account.Reads, r.Stats.Leaders)
		})
	}
}
