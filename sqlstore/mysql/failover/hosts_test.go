package failover

import (
	"context"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/sqldb"
)

// TestAServerThatIsPromotedIsFoundWhileAnotherIsSilent: the machine of the primary is gone, and its server does not even
// refuse connections.
func TestAServerThatIsPromotedIsFoundWhileAnotherIsSilent(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		h := &hosts{names: []string{"silent", "replica", "promoted"}, sessions: []*sqldb.Session{{}, {}, {}}}
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began, asked := time.Now(), new(atomic.Int64)
		const promotion = 4 * time.Second
		c, err := h.connect(ctx, func(ctx context.Context, s *sqldb.Session) (*conn, error) {
			switch {
			case s == h.sessions[0]:
				<-ctx.Done()
				return nil, ctx.Err()
			case s == h.sessions[1] || time.Since(began) < promotion:
				asked.Add(1)
				return nil, ErrNotPrimary
			}
			return &conn{server: "promoted"}, nil
		})
		require.NoError(t, err)
		require.Equal(t, "promoted", c.server)
		require.LessOrEqual(t, time.Since(began), promotion+hostPatience)
		require.LessOrEqual(t, asked.Load(), int64(10), "each is asked once a second")
		require.EqualValues(t, 2, h.last.Load())

		h.last.Store(1)
		began = time.Now()
		_, err = h.connect(ctx, func(context.Context, *sqldb.Session) (*conn, error) { return nil, ErrNotPrimary })
		require.ErrorIs(t, err, ErrNotPrimary)
		for _, name := range h.names {
			require.ErrorContains(t, err, name)
		}
		require.Zero(t, time.Since(began), "if all refuse, the caller decides when to try again")
	})
}
