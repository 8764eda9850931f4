package simulation

import (
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sqlbrain/sqlbrain/server/fence"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// TestLogsAreJudged lets a node log what breaks each rule, and what does not.
func TestLogsAreJudged(t *testing.T) {
	holds := func(log *slog.Logger, grant int64) { log.Info("holding the lock, leading", "grant", grant) }
	for _, c := range []struct {
		name, want string
		plan       Plan
		logs       func(*slog.Logger)
	}{
		{"in order", "", Plan{}, func(log *slog.Logger) {
			holds(log, 1)
			log.Error("leading failed, standing back")
			time.Sleep(standBack)
			holds(log, 2)
		}},
		{"an error", "logs an error", Plan{}, func(log *slog.Logger) { log.Error("the table did not hold what was expected, evaluating again") }},
		{"a failed request", "logs an error: request failed", Plan{}, func(log *slog.Logger) {
			log.Error("request failed", "error", errors.New("a bug"))
		}},
		{"a loss that is none", "", Plan{}, func(log *slog.Logger) {
			log.Error("request failed", "error", fmt.Errorf("%w: far above", fence.ErrUnproven))
		}},
		{"an error after a loss", "", Plan{Faults: []Fault{{Kind: Loss}}}, func(log *slog.Logger) { log.Error("this node stops serving") }},
		{"the same grant", "again under grant 1", Plan{}, func(log *slog.Logger) {
			holds(log, 1)
			holds(log, 1)
		}},
		{"too soon", "after it failed to lead", Plan{}, func(log *slog.Logger) {
			holds(log, 1)
			log.Info("leading ended by itself, standing back")
			time.Sleep(standBack - 1)
			holds(log, 2)
		}},
		{"by order", "", Plan{}, func(log *slog.Logger) {
			holds(log, 1)
			log.Error("leading failed, standing back")
			log.Info("handed the lock over") // another node does; which one makes no difference
			holds(log, 3)
		}},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(c.plan, memstore.New())
				c.logs(slog.New(&traceHandler{w: w, p: newProcess("n1", "n1.1")}))
				if got := strings.Join(w.violations, "\n"); !strings.Contains(got, c.want) || (got == "") != (c.want == "") {
					t.Errorf("found %q, want %q", got, c.want)
				}
			})
		})
	}
}
