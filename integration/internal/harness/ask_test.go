package harness

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// frozen makes connections to a server that accepts them and answers nothing.
type frozen struct{ driver.Conn }

func (f frozen) Connect(context.Context) (driver.Conn, error) { return f, nil }
func (frozen) Driver() driver.Driver                          { return nil }
func (frozen) Close() error                                   { return nil }

func (frozen) QueryContext(ctx context.Context, _ string, _ []driver.NamedValue) (driver.Rows, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestFrozenServerIsNotWaitedFor although the whole search for a successor may take longer.
func TestFrozenServerIsNotWaitedFor(t *testing.T) {
	for name, question := range map[string]func(context.Context, *server) error{
		"whether it serves": func(ctx context.Context, m *server) error {
			if galeraServes(ctx, m) {
				return nil
			}
			return errors.New("it does not serve")
		},
		"its connections": func(ctx context.Context, m *server) error { _, err := connections(ctx, m); return err },
		"its state":       func(ctx context.Context, m *server) error { _, err := groupState(ctx, m); return err },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &server{admin: sql.OpenDB(frozen{})}
				defer m.admin.Close() //nolint:errcheck // it has no connections
				ctx, cancel := context.WithTimeout(t.Context(), replicationWait)
				defer cancel()
				began := time.Now()
				require.Error(t, question(ctx, m))
				require.Equal(t, answerWait, time.Since(began))
			})
		})
	}
}
