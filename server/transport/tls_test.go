package transport

import (
	"bytes"
	"crypto/tls"
	"io"
	"log/slog"
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// piped is a listener whose connections are pipes, on which clients send no handshake.
type piped struct{ net.Listener }

func (piped) Accept() (net.Conn, error) {
	server, client := net.Pipe()
	go func() {
		_, _ = io.WriteString(client, "GET / HTTP/1.1\r\n") // the server may close it before
		_ = client.Close()
	}()
	return server, nil
}

func TestRejectedConnectionsInTheLogAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var log bytes.Buffer
		l := &tlsListener{Listener: piped{}, config: &tls.Config{}, log: slog.New(slog.NewTextHandler(&log, nil))}
		reject := func() {
			c, err := l.Accept()
			require.NoError(t, err)
			for range 2 {
				_, err = c.Read(make([]byte, 1))
				require.Error(t, err)
			}
			require.NoError(t, c.Close())
		}
		for range 100 {
			reject()
		}
		require.Equal(t, 1, strings.Count(log.String(), "connection rejected"))
		time.Sleep(time.Second)
		reject()
		require.Equal(t, 2, strings.Count(log.String(), "connection rejected"))
		require.Contains(t, log.String(), "not_logged_before=99")
	})
}
