package watch

import (
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

func TestChosenIDsStartAtZeroAndAreNotReused(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(key("a"), key("a").id(2), key("a"), key("a"))
	b.expect(s, "0@1 created", "2@1 created", "1@1 created", "3@1 created")
	s.Cancel(1)
	s.Cancel(3)
	s.Create(Permitted, key("a"))
	s.Create(Permitted, key("a").id(3))
	s.Create(Permitted, key("a").id(-1))
	b.expect(s, "1@1 canceled", "3@1 canceled", "4@1 created", "3@1 created", "-1@1 created")
}

func TestRefusedCreates(t *testing.T) {
	b := newBed(t, Config{})
	b.put("a")
	const (
		negative  = `-1@2 created canceled "etcdserver: mvcc: required revision has been compacted"`
		empty     = `-1@2 created canceled "mvcc: watcher range is empty"`
		long      = `-1@2 created canceled "sqlbrain: key is too long"`
		duplicate = `-1@2 created canceled "mvcc: duplicate watch ID provided on the WatchStream"`
	)
	longest := strings.Repeat("k", 3059)
	s := b.stream(key("a").id(8), span(longest, longest+"\x00").id(9), span(longest+"\x00", "l").id(10))
	b.expect(s, "8@2 created", "9@2 created", "10@2 created")
	for _, c := range []struct {
		decision Decision
		req      CreateRequest
		want     string
	}{
		{Permitted, key("a").id(8), duplicate},
		{Refused("not allowed"), CreateRequest{Key: []byte("a")}, `-1@2 created canceled "not allowed"`},
		{Refused("not allowed"), CreateRequest{Key: []byte("a"), StartRevision: -1}, negative},
		{Decision{}, key("a"), `-1@2 created canceled "etcdserver: permission denied"`},
		{Permitted, key("a").from(-1), negative},
		{Permitted, span("b", "a").from(-1), negative},
		{Permitted, span("b", "a"), empty},
		{Permitted, span("b", "b"), empty},
		{Permitted, span("b", "a").id(8), empty},
		{Permitted, key(longest + "k"), long},
		{Permitted, span("a", longest+"k"), long},
		{Permitted, span("\x00", "\x00"), "0@2 created"},
		{Permitted, span("b", "\x00"), "1@2 created"},
		{Permitted, CreateRequest{}, "2@2 created"},
	} {
		s.Create(c.decision, c.req)
		b.expect(s, c.want)
	}
	// The stream goes on, and the watcher whose id was refused is unharmed.
	b.put("\x00")
	got := map[string]bool{b.next(s): true, b.next(s): true}
	require.Equal(t, map[string]bool{"0@3 put:\x00:3": true, "2@3 put:\x00:3": true}, got)
	b.put("a")
	got = map[string]bool{b.next(s): true, b.next(s): true}
	require.Equal(t, map[string]bool{"8@4 put:a:4": true, "0@4 put:a:4": true}, got)
}

func TestCancelTakesNothingFromQueuedProgress(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(key("a"))
	b.put("a")
	s.RequestProgress()
	b.put("a")
	s.Cancel(0)
	b.expect(s, "0@1 created", "0@2 put:a:2", "-1@2", "0@3 canceled")
	b.nothing(s)
	require.Zero(t, b.metric("etcd_debugging_mvcc_pending_events_total"))
}

func TestProgressOnRequest(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream()
	s.RequestProgress()
	b.nothing(s) // no watchers
	s.Create(Permitted, key("a"))
	s.RequestProgress()
	b.put("a")
	s.RequestProgress()
	b.put("b")
	s.RequestProgress()
	b.expect(s, "0@1 created", "-1@1", "0@2 put:a:2", "-1@2", "-1@3")
	s.Create(Permitted, key("a").from(5))
	s.RequestProgress()
	b.put("b")
	s.RequestProgress()
	b.expect(s, "1@3 created")
	b.nothing(s)
	b.put("b")
	s.RequestProgress()
	b.expect(s, "-1@5")
	s.Create(Permitted, key("a").from(9))
	s.Cancel(2)
	s.RequestProgress()
	b.expect(s, "2@5 created", "2@5 canceled", "-1@5")
}

func TestNoProgressWhileAWatcherLags(t *testing.T) {
	b := newBed(t, Config{QueueEvents: 1})
	s := b.stream(key("a"), key("b"))
	b.expect(s, "0@1 created", "1@1 created")
	b.put("a")
	b.put("a")
	s.RequestProgress() // 0 has one event queued and is behind by another
	b.put("b")
	b.expect(s, "0@2 put:a:2")
	got := map[string]bool{b.next(s): true, b.next(s): true}
	require.Equal(t, map[string]bool{"1@4 put:b:4": true, "0@4 put:a:3": true}, got)
}

func TestUnreadProgressIsBounded(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream(key("a"))
	for range 10 * maxProgress {
		b.put("b")
		s.RequestProgress()
	}
	b.put("a")
	s.RequestProgress()
	b.expect(s, "0@1 created")
	for i := range maxProgress - 1 {
		require.EqualValues(t, i+2, b.response(s).Revision)
	}
	b.expect(s, "0@162 put:a:162", "-1@162")
	b.nothing(s)
	require.Zero(t, s.progresses)
	s.RequestProgress()
	b.expect(s, "-1@162")
}

func TestPeriodicProgress(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{ProgressInterval: time.Minute})
		n := key("a")
		n.ProgressNotify = true
		s := b.stream(n, key("a"), n.from(9))
		b.expect(s, "0@1 created", "1@1 created", "2@1 created")
		tick := func(d time.Duration) {
			time.Sleep(d)
			synctest.Wait()
		}
		tick(59 * time.Second)
		b.nothing(s)
		tick(time.Second)
		b.expect(s, "0@1")
		b.put("b")
		tick(time.Minute)
		b.expect(s, "0@2")
		tick(30 * time.Second)
		b.put("a")
		b.expect(s, "0@3 put:a:3", "1@3 put:a:3")
		tick(59 * time.Second) // events put it off
		b.nothing(s)
		tick(time.Second)
		b.expect(s, "0@3")
		tick(time.Hour) // nobody reads: one waits, no more
		b.expect(s, "0@3")
		b.nothing(s)
		s.Cancel(0)
		b.expect(s, "0@3 canceled")
		for range 6 {
			b.put("b")
		}
		tick(time.Minute)
		b.expect(s, "2@9")
		s.Cancel(2)
		b.expect(s, "2@9 canceled")
		tick(time.Hour)
		b.nothing(s)
		b.hub.Close()
	})
}

func TestNextEndsWithItsContext(t *testing.T) {
	b := newBed(t, Config{})
	s := b.stream()
	ctx, cancel := context.WithCancel(context.Background())
	time.AfterFunc(time.Millisecond, cancel)
	_, err := s.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
	s.Create(Permitted, key("a"))
	_, err = s.Next(ctx)
	require.ErrorIs(t, err, context.Canceled)
	b.expect(s, "0@1 created")
}

func TestCloseEndsNextAndEverything(t *testing.T) {
	for name, closeIt := range map[string]func(*Hub, *Stream){
		"stream": func(_ *Hub, s *Stream) { s.Close() },
		"hub":    func(h *Hub, _ *Stream) { h.Close() },
	} {
		t.Run(name, func(t *testing.T) {
			b := newBed(t, Config{})
			s := b.stream(key("a"), key("a").id(4))
			b.expect(s, "0@1 created", "4@1 created")
			errs := make(chan error)
			go func() {
				_, err := s.Next(context.Background())
				errs <- err
			}()
			closeIt(b.hub, s)
			require.ErrorIs(t, <-errs, ErrClosed)
			s.Create(Permitted, key("a"))
			s.Cancel(4)
			s.RequestProgress()
			b.put("a")
			_, err := s.Next(context.Background())
			require.ErrorIs(t, err, ErrClosed)
			s.Close()
			b.hub.Close()
			late := b.hub.NewStream()
			late.Create(Permitted, key("a"))
			_, err = late.Next(context.Background())
			require.ErrorIs(t, err, ErrClosed)
			late.Close()
			b.hub.Compact(1)
		})
	}
}

func TestRequestsWaitForAConsumerThatReadsNoResponses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBed(t, Config{})
		s := b.stream()
		for range maxControls {
			s.Create(Permitted, key("a").from(-1))
		}
		created, canceled := false, false
		go func() { s.Create(Permitted, key("a")); created = true; s.Cancel(0); canceled = true }()
		synctest.Wait()
		require.False(t, created)
		b.response(s)
		synctest.Wait()
		require.True(t, created)
		require.False(t, canceled)
		s.Close()
		synctest.Wait()
		require.True(t, canceled)
		b.hub.Close()
	})
}
