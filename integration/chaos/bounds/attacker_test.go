package bounds

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"
	"golang.org/x/net/http2/hpack"
	"google.golang.org/protobuf/proto"

	"github.com/sqlbrain/sqlbrain/integration/internal/harness"
)

// attacker is a connection that speaks gRPC frame by frame. It acknowledges what it has to, so that nothing is wrong
// with it.
type attacker struct {
	conn   net.Conn
	framer *http2.Framer

	mu      sync.Mutex // of the fields below, and of writing
	encoder *hpack.Encoder
	headers bytes.Buffer
	next    uint32
	resets  int            // streams that the server has reset
	ended   int            // streams that the server has ended
	status  map[string]int // of those, by grpc-status and grpc-message
}

// attack opens a connection whose streams may each be sent window bytes. It is closed when the test ends.
func attack(t testing.TB, node *harness.Node, window uint32) *attacker {
	t.Helper()
	conn, err := net.Dial("tcp", node.Host())
	require.NoError(t, err)
	a := &attacker{conn: conn, framer: http2.NewFramer(conn, conn), next: 1, status: make(map[string]int)}
	a.encoder = hpack.NewEncoder(&a.headers)
	a.framer.ReadMetaHeaders = hpack.NewDecoder(4096, nil)
	_, err = io.WriteString(conn, http2.ClientPreface)
	require.NoError(t, err)
	require.NoError(t, a.framer.WriteSettings(http2.Setting{ID: http2.SettingInitialWindowSize, Val: window}))
	require.NoError(t, a.framer.WriteWindowUpdate(0, 1<<30))
	var reading sync.WaitGroup
	reading.Go(a.read)
	t.Cleanup(func() {
		_ = conn.Close() // the server may have closed it
		reading.Wait()
	})
	return a
}

// read reads frames until the connection ends.
func (a *attacker) read() {
	for {
		frame, err := a.framer.ReadFrame()
		if err != nil {
			return
		}
		a.mu.Lock()
		switch f := frame.(type) {
		case *http2.SettingsFrame:
			if !f.IsAck() {
				_ = a.framer.WriteSettingsAck() // the next frame fails too
			}
		case *http2.PingFrame:
			if !f.IsAck() {
				_ = a.framer.WritePing(true, f.Data)
			}
		case *http2.RSTStreamFrame:
			a.resets++
		case *http2.MetaHeadersFrame:
			if f.StreamEnded() {
				a.ended++
				said := ""
				for _, field := range f.RegularFields() {
					if field.Name == "grpc-status" || field.Name == "grpc-message" {
						said += field.Value + " "
					}
				}
				a.status[said]++
			}
		}
		a.mu.Unlock()
	}
}

// open begins a call, and sends data of it. Its errors are the connection's.
func (a *attacker) open(method string, data []byte, end bool, fields ...string) (stream uint32, err error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.headers.Reset()
	fields = append([]string{
		":method", "POST", ":scheme", "http", ":path", method, ":authority", "x", "content-type", "application/grpc",
		"te", "trailers",
	}, fields...)
	for i := 0; i < len(fields); i += 2 {
		if err := a.encoder.WriteField(hpack.HeaderField{Name: fields[i], Value: fields[i+1]}); err != nil {
			return 0, err
		}
	}
	stream = a.next
	a.next += 2
	err = a.framer.WriteHeaders(http2.HeadersFrameParam{StreamID: stream, BlockFragment: a.headers.Bytes(),
		EndHeaders: true})
	return stream, errors.Join(err, a.write(stream, data, end))
}

// write sends data of a stream in frames. The lock is held.
func (a *attacker) write(stream uint32, data []byte, end bool) error {
	const frame = 16 << 10
	for len(data) > frame {
		if err := a.framer.WriteData(stream, false, data[:frame]); err != nil {
			return err
		}
		data = data[frame:]
	}
	return a.framer.WriteData(stream, end, data)
}

// reset resets a stream.
func (a *attacker) reset(stream uint32) error {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.framer.WriteRSTStream(stream, http2.ErrCodeCancel)
}

// said logs how the server ended streams: none of them because it does not know the method.
func (a *attacker) said(t testing.TB) {
	t.Helper()
	a.mu.Lock()
	defer a.mu.Unlock()
	t.Logf("one connection: %d streams, %d resets, %d ended, %v", a.next/2, a.resets, a.ended, a.status)
	for status := range a.status {
		require.False(t, strings.HasPrefix(status, "12 "), status)
	}
}

// deadline bounds the writes of an attacker whose server does not read any longer.
func (a *attacker) deadline(d time.Duration) { _ = a.conn.SetWriteDeadline(time.Now().Add(d)) }

// message returns m as gRPC sends it.
func message(t testing.TB, m proto.Message) []byte {
	t.Helper()
	data, err := proto.Marshal(m)
	require.NoError(t, err)
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(len(data))), data...)
}
