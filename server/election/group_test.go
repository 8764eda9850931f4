package election

import (
	"context"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/migrations"
	"github.com/sqlbrain/sqlbrain/sqlstore"
	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest"
)

func openURL(t testing.TB, raw string) sqlstore.Store {
	t.Helper()
	u, err := sqlstore.ParseURL(raw)
	require.NoError(t, err)
	db, err := sqlstore.OpenDB(u, sqlstore.Options{})
	require.NoError(t, err)
	require.NoError(t, migrations.Up(context.Background(), db.DialectName(), db.SQL()))
	require.NoError(t, db.Close())
	s, err := sqlstore.Open(context.Background(), u, sqlstore.Options{})
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, s.Close()) })
	return s
}

// TestOneOfFiveLeads: five start at once on an empty table. Each leader hands
// over by stopping, transferring or failing; never do two lead.
func TestOneOfFiveLeads(t *testing.T) {
	t.Parallel()
	stores := map[string]func(testing.TB) sqlstore.Store{
		"memory": newStore,
		"sqlite": func(t testing.TB) sqlstore.Store { return openURL(t, "sqlite://"+filepath.Join(t.TempDir(), "db")) },
	}
	for _, p := range enginetest.Products() {
		stores[string(p)] = func(t testing.TB) sqlstore.Store { return openURL(t, p.Database(t)) }
	}
	for name, open := range stores {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := newGroup(t, slow)
			store := open(t)
			var leading atomic.Int32
			counted := func(c *Config) {
				lead := c.Lead
				c.Lead = func(ctx context.Context, handedOver bool) error {
					if n := leading.Add(1); n != 1 {
						t.Errorf("%d lead at once", n)
					}
					defer leading.Add(-1)
					return lead(ctx, handedOver)
				}
			}
			members := map[string]*member{}
			for i := range 5 {
				name := fmt.Sprintf("m%d", i)
				members[name] = g.join(store, name, counted)
			}
			clean := true // there is no record at first
			for round := range 12 {
				term := g.next()
				require.Equal(t, clean, term.handedOver, "round %d", round)
				require.Equal(t, term.member, members[term.member].Holder())
				for members[term.member].seesAnother(t, term.member) {
				}
				clean = round%3 != 2
				switch round % 3 {
				case 0:
					name := term.member
					members[name].stop()
					members[name] = g.join(store, name, counted)
				case 1:
					successor := fmt.Sprintf("m%d", round%5)
					if successor == term.member {
						successor = "m3"
					}
					require.NoError(t, members[term.member].Transfer(t.Context(), successor))
				case 2:
					term.quit <- errAway
				}
			}
			for _, m := range members {
				for _, r := range m.logs.find("leader lease") {
					require.Equal(t, slog.LevelDebug, r.Level)
				}
				require.NotEmpty(t, m.logs.find("leader lease"), "client-go logs to our logger")
			}
		})
	}
}

func (m *member) seesAnother(t testing.TB, than string) bool {
	t.Helper()
	return wait(t, m.observed, "an observed holder") != than
}

func TestBadConfigurationsAreRefused(t *testing.T) {
	good := Config{Store: newStore(t), Identity: "a", Lead: func(context.Context, bool) error { return nil }}
	_, err := New(good)
	require.NoError(t, err)
	for want, change := range map[string]func(*Config){
		"no store":             func(c *Config) { c.Store = nil },
		"no Lead":              func(c *Config) { c.Lead = nil },
		"identity is empty":    func(c *Config) { c.Identity = "" },
		"not valid UTF-8":      func(c *Config) { c.Identity = "\xff" },
		"whole seconds":        func(c *Config) { c.LeaseDuration = 2500 * time.Millisecond },
		"duration of 500ms":    func(c *Config) { c.LeaseDuration = 500 * time.Millisecond },
		"deadline of 2s":       func(c *Config) { c.RenewDeadline = 2 * time.Second },
		"deadline of -1ns":     func(c *Config) { c.RenewDeadline = -1 },
		"retry period of 1.3s": func(c *Config) { c.RetryPeriod = 1300 * time.Millisecond },
		"retry period of -1ns": func(c *Config) { c.RetryPeriod = -1 },
	} {
		c := good
		change(&c)
		_, err := New(c)
		require.ErrorContains(t, err, want)
	}
}
