package link

import (
	"context"
	"net"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
)

// writes counts what is written to a connection.
type writes struct {
	net.Conn
	n *atomic.Int64
}

func (w writes) Write(p []byte) (int, error) {
	w.n.Add(1)
	return w.Conn.Write(p)
}

// TestSmallMessagesAreNotAnswered: the receiver of a feed sends no ping for each of its heartbeats.
func TestSmallMessagesAreNotAnswered(t *testing.T) {
	var n atomic.Int64
	c := newClient(t, serve(t), func(cfg *Config) {
		cfg.Dial = func(ctx context.Context, network, address string) (net.Conn, error) {
			conn, err := (&net.Dialer{}).DialContext(ctx, network, address)
			return writes{conn, &n}, err
		}
	})
	s := open(t, c)
	before := n.Load()
	const messages = 100
	for range messages {
		_, err := s.Recv()
		require.NoError(t, err)
	}
	require.Less(t, n.Load()-before, int64(messages/10))
}
