package transport

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"testing"
	"testing/iotest"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/net/http2"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
)

// sent is what a client has sent.
type sent struct {
	bytes.Buffer
	framer *http2.Framer
}

func newSent() *sent {
	s := &sent{}
	s.WriteString(http2.ClientPreface)
	s.framer = http2.NewFramer(&s.Buffer, nil)
	s.framer.AllowIllegalWrites = true
	return s
}

// grpcMessage returns a message of n bytes.
func grpcMessage(n int) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{0}, uint32(n)), make([]byte, n)...)
}

// TestMessagesThatAreCompleteAreForgotten: however they are cut into frames, padded, and read.
func TestMessagesThatAreCompleteAreForgotten(t *testing.T) {
	for seed := range uint64(200) {
		r := rand.New(rand.NewPCG(seed, 0))
		s, q := newSent(), NewRequests(1<<30, 1<<30, time.Hour)
		data := make([][]byte, 3)
		var want int64 // of messages that have begun
		for i := range data {
			for range r.IntN(4) {
				data[i] = append(data[i], grpcMessage(r.IntN(3)*r.IntN(300))...)
			}
			if r.IntN(2) == 0 {
				n := r.IntN(300) + 1
				data[i] = append(data[i], grpcMessage(n)[:r.IntN(messageHead+n-1)+1]...)
				want++
			}
		}
		for len(data[0])+len(data[1])+len(data[2]) > 0 {
			i := r.IntN(3)
			n := r.IntN(len(data[i]) + 1)
			require.NoError(t, s.framer.WriteDataPadded(uint32(2*i+1), false, data[i][:n], make([]byte, r.IntN(3))))
			data[i] = data[i][n:]
			switch r.IntN(4) {
			case 0:
				require.NoError(t, s.framer.WritePing(false, [8]byte{}))
			case 1:
				require.NoError(t, s.framer.WriteSettingsAck())
			}
		}
		all := bytes.Clone(s.Bytes())
		in := newInbound(iotest.OneByteReader(&s.Buffer), nil, q)
		if r.IntN(2) == 0 {
			in.in = &s.Buffer
		}
		got, err := io.ReadAll(in)
		require.NoError(t, err)
		require.Equal(t, all, got, "it is passed on as it is")
		require.Len(t, in.messages, int(want), "seed %d", seed)
		if want > 0 {
			require.GreaterOrEqual(t, q.Bytes(), want*messageOverhead)
		}
		in.close()
		require.Zero(t, q.Bytes(), "seed %d", seed)
	}
}

func TestStreamsThatEndAreForgotten(t *testing.T) {
	s, q := newSent(), NewRequests(1<<30, 1<<30, time.Hour)
	for stream := range uint32(4) {
		require.NoError(t, s.framer.WriteData(2*stream+1, false, grpcMessage(100)[:50]))
	}
	require.NoError(t, s.framer.WriteRSTStream(1, http2.ErrCodeCancel))
	require.NoError(t, s.framer.WriteData(3, true, nil))
	in := newInbound(&s.Buffer, nil, q)
	_, err := io.ReadAll(in)
	require.NoError(t, err)
	require.Len(t, in.messages, 2)
	counted := in.pace.next
	require.False(t, counted.IsZero(), "the reset is counted")
	in.answers = new(account)
	in.answers.answer()
	require.NoError(t, s.framer.WriteRSTStream(5, http2.ErrCodeCancel))
	_, err = io.ReadAll(in)
	require.NoError(t, err)
	require.Len(t, in.messages, 1)
	require.Equal(t, counted, in.pace.next, "that of a stream that was answered is not")
	require.NoError(t, s.framer.WriteRSTStream(7, http2.ErrCodeCancel))
	_, err = io.ReadAll(in)
	require.NoError(t, err)
	require.NotEqual(t, counted, in.pace.next)
	in.close()
	require.Zero(t, q.Bytes())
}

// TestUnfinishedMessageIsReset: gRPC gets the frame that ends the stream, between two others, although the client says
// nothing more; but a connection that stops inside of a frame ends.
func TestUnfinishedMessageIsReset(t *testing.T) {
	for name, cut := range map[string]int{"between frames": 0, "inside of a frame": 3} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close() //nolint:errcheck // a pipe
			q := NewRequests(1<<30, 1<<30, 50*time.Millisecond)
			s := newSent()
			require.NoError(t, s.framer.WriteData(5, false, grpcMessage(1000)[:500]))
			go func() { _, _ = client.Write(s.Bytes()[:s.Len()-cut]) }()
			in := newInbound(server, server, q)
			_, err := io.ReadFull(in, make([]byte, s.Len()-cut))
			require.NoError(t, err)
			if cut > 0 {
				_, err = in.Read(make([]byte, 100))
				require.ErrorIs(t, err, errUnfinished)
				return
			}
			frame, err := http2.NewFramer(nil, in).ReadFrame()
			require.Equal(t, http2.StreamError{StreamID: 5, Code: http2.ErrCodeProtocol}, stripped(err), "%v", frame)
			require.Zero(t, q.Bytes())
			go func() { _, _ = client.Write([]byte("more")) }()
			_, err = io.ReadFull(in, make([]byte, 4))
			require.NoError(t, err, "the connection continues")
		})
	}
}

// stripped returns a stream's error without its cause.
func stripped(err error) error {
	if e, ok := errors.AsType[http2.StreamError](err); ok {
		e.Cause = nil
		return e
	}
	return err
}

// TestConnectionOutlivesTheResetOfAStream, wherever its reader is when the stream has to go, and whatever of the
// message was on its way.
func TestConnectionOutlivesTheResetOfAStream(t *testing.T) {
	for name, late := range map[string]int{"the reader is elsewhere": 0, "the frame ends after all": 3} {
		t.Run(name, func(t *testing.T) {
			client, server := net.Pipe()
			defer client.Close() //nolint:errcheck // a pipe
			q := NewRequests(1<<30, 1<<30, 50*time.Millisecond)
			s := newSent()
			require.NoError(t, s.framer.WriteData(5, false, grpcMessage(100_000)[:500]))
			first := s.Bytes()[:s.Len()-late]
			go func() { _, _ = client.Write(first) }()
			in := newInbound(server, server, q)
			_, err := io.ReadFull(in, make([]byte, len(first)))
			require.NoError(t, err)
			eventually.True(t, "the stream to be cut", in.cutting)
			if late > 0 {
				go func() { _, _ = client.Write(s.Bytes()[len(first):]) }()
				_, err = io.ReadFull(in, make([]byte, late))
				require.NoError(t, err)
			}
			_, err = http2.NewFramer(nil, in).ReadFrame()
			require.Equal(t, http2.StreamError{StreamID: 5, Code: http2.ErrCodeProtocol}, stripped(err))

			rest := newSent()
			require.NoError(t, rest.framer.WriteData(5, false, bytes.Repeat([]byte{0x7b}, 1000)))
			go func() {
				time.Sleep(frameGrace + 100*time.Millisecond)
				_, _ = client.Write(rest.Bytes()[len(http2.ClientPreface):])
			}()
			_, err = io.ReadFull(in, make([]byte, rest.Len()-len(http2.ClientPreface)))
			require.NoError(t, err)
			require.Zero(t, q.Bytes(), "what is left of the message begins none")
		})
	}
}

// TestMessagesThatAreTooLongAreNotCounted: gRPC refuses them once it knows their length, and the client does not end
// the stream.
func TestMessagesThatAreTooLongAreNotCounted(t *testing.T) {
	s, q := newSent(), NewRequests(1<<30, 1000, time.Hour)
	require.NoError(t, s.framer.WriteData(5, false, grpcMessage(5000)[:500]))
	in := newInbound(&s.Buffer, nil, q)
	_, err := io.Copy(io.Discard, in)
	require.NoError(t, err)
	require.Zero(t, q.Bytes())
}

// TestAByteNowAndThenIsNoProgress, else a client could hold room for as long as it likes.
func TestAByteNowAndThenIsNoProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		for name, piece := range map[string]int{"a byte": 1, "much": smallClaim} {
			client, server := net.Pipe()
			q := NewRequests(1<<30, 1<<30, time.Minute)
			in := newInbound(server, server, q)
			go func() { _, _ = io.Copy(io.Discard, in) }() // until the pipe is closed
			send := func(s *sent, from int) {
				_, err := client.Write(s.Bytes()[from:])
				require.NoError(t, err)
				synctest.Wait()
			}
			s := newSent()
			require.NoError(t, s.framer.WriteData(5, false, grpcMessage(1 << 20)[:100]))
			send(s, 0)
			for range 3 {
				time.Sleep(25 * time.Second)
				s = newSent()
				require.NoError(t, s.framer.WriteData(5, false, make([]byte, piece)))
				send(s, len(http2.ClientPreface))
			}
			require.Equal(t, piece == smallClaim, q.Bytes() > 0, name)
			require.NoError(t, client.Close())
			synctest.Wait()
			in.close()
		}
	})
}

// TestSeveralStreamsAreCut, one after the other, while the client stops inside of a frame and continues.
func TestSeveralStreamsAreCut(t *testing.T) {
	client, server := net.Pipe()
	defer client.Close() //nolint:errcheck // a pipe
	q := NewRequests(1<<30, 1<<30, 50*time.Millisecond)
	s := newSent()
	const streams = 20
	var frames []int
	for i := range uint32(streams) {
		require.NoError(t, s.framer.WriteData(2*i+1, false, grpcMessage(1000)[:500]))
		frames = append(frames, s.Len())
	}
	go func() { // each part ends inside of the next frame
		from := 0
		for _, end := range frames {
			to := min(end+100, s.Len())
			_, _ = client.Write(s.Bytes()[from:to])
			from = to
			time.Sleep(10 * time.Millisecond)
		}
	}()
	in := newInbound(server, server, q)
	read := http2.NewFramer(nil, in)
	_, err := io.ReadFull(in, make([]byte, len(http2.ClientPreface)))
	require.NoError(t, err)
	got, reset := 0, 0
	for got < streams || reset < streams {
		frame, err := read.ReadFrame()
		switch {
		case err == nil:
			require.IsType(t, &http2.DataFrame{}, frame)
			got++
		default:
			require.IsType(t, http2.StreamError{}, err)
			reset++
		}
	}
	require.Zero(t, q.Bytes())
}

// TestMessagesDoNotEndBecauseTheConnectionIsNotRead: the client cannot send more of them while one waits for room.
func TestMessagesDoNotEndBecauseTheConnectionIsNotRead(t *testing.T) {
	const mega = 1 << 20
	for name, test := range map[string]struct {
		begun []int
		waits time.Duration
	}{
		"the next to wait": {[]int{mega, mega / 2, mega / 2}, 15 * time.Second},
		"sent before":      {[]int{mega / 2, 3 * mega / 2}, 9 * time.Second},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				q := NewRequests(3*mega, 2*mega, time.Minute)
				holder, other := claim{of: &q.budget}, claim{of: &q.budget}
				holder.end = holder.close
				holder.reserve(2*mega, nil)
				client, server := net.Pipe()
				in := newInbound(server, server, q)
				go func() { _, _ = io.Copy(io.Discard, in) }() // until the pipe is closed
				s := newSent()
				for i, n := range test.begun {
					require.NoError(t, s.framer.WriteData(uint32(2*i+1), false, grpcMessage(n)[:100]))
				}
				_, err := client.Write(s.Bytes())
				require.NoError(t, err)
				for range test.waits / time.Second {
					time.Sleep(time.Second)
					holder.add(0, true)
				}
				holder.close()
				synctest.Wait()
				require.EqualValues(t, 2*mega+len(test.begun)*messageOverhead, q.Bytes())
				time.Sleep(500 * time.Millisecond)
				go other.reserve(2*mega, in.done)
				time.Sleep(5 * time.Second)
				require.EqualValues(t, 2*mega+len(test.begun)*messageOverhead, q.Bytes(), "all have their time")
				require.NoError(t, client.Close())
				synctest.Wait()
				in.close()
			})
		})
	}
}
