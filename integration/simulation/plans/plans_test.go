package plans

import (
	"bufio"
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"os"
	"strings"
	"testing"

	"github.com/sqlbrain/sqlbrain/integration/simulation"
)

// TestPlans is what package runner runs in processes of its own: it reads an Order from each line of standard input, and
// prints a line "result" with an Outcome for each.
func TestPlans(t *testing.T) {
	if os.Getenv(simulation.OrdersVariable) == "" {
		t.Skip("runs in processes of package runner")
	}
	// What a process initializes once must not be part of a run that counts.
	for _, seed := range []uint64{0, 5} {
		t.Run("first", func(t *testing.T) { simulation.Run(t, simulation.NewPlan(seed)) })
	}
	orders := bufio.NewScanner(os.Stdin)
	orders.Buffer(nil, 1<<24)
	for orders.Scan() {
		var o simulation.Order
		if err := json.Unmarshal(orders.Bytes(), &o); err != nil {
			t.Fatal(err)
		}
		var r simulation.Result
		ok := t.Run("", func(t *testing.T) { r = simulation.Run(t, o.Plan) })
		text := strings.Join(r.Trace, "\n")
		out := simulation.Outcome{Violations: r.Violations, Stats: r.Stats, Requests: r.Requests, Lines: len(r.Trace), Digest: fmt.Sprintf("%x", sha256.Sum256([]byte(text)))[:16]}
		if !ok {
			out.Violations = append(out.Violations, "the test of the plan failed; its output says why")
		}
		if o.Trace {
			out.Trace = r.Trace
		}
		b, err := json.Marshal(out)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Printf("\nresult %s\n", b)
	}
	if err := orders.Err(); err != nil {
		t.Fatal(err)
	}
}
