package member

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/server/timing"
)

// A look that began earlier must not bring back a member that a later look no longer found.
func TestEarlierReadDoesNotReplaceALaterOne(t *testing.T) {
	v := newView(1)
	at := func(s int) time.Time { return time.Unix(int64(s), 0) }
	both := []entry{{Member: Member{ID: 1, Incarnation: 1, Name: "a"}}, {Member: Member{ID: 2, Incarnation: 5, Name: "b"}}}
	v.apply(table{rows: both[:1]}, at(2))
	v.apply(table{rows: both}, at(1))
	require.Len(t, v.last(), 1)
	v.apply(table{rows: both}, at(3))
	require.Len(t, v.last(), 2)
}

func TestSilenceCountsOnlyWhileTheTableIsRead(t *testing.T) {
	v := newView(1)
	now := time.Unix(0, 0)
	look := func(after time.Duration, heartbeat uint64) bool {
		now = now.Add(after)
		v.apply(table{rows: []entry{{Member: Member{ID: 2, Incarnation: 5, Heartbeat: heartbeat, Name: "b"}}}}, now)
		return v.last()[0].Alive
	}
	const half = timing.MissedHeartbeats * timing.MemberHeartbeat / 2
	require.True(t, look(0, 0))
	require.True(t, look(time.Hour, 0), "an hour in which nobody read is two intervals")
	for range half / timing.MemberList {
		require.True(t, look(timing.MemberList, 0))
	}
	for range 100 {
		require.True(t, look(10*time.Millisecond, 0), "to read often does not make it older")
	}
	for range half / timing.MemberList {
		look(timing.MemberList, 0)
	}
	require.False(t, look(0, 0))
	require.True(t, look(time.Second, 1))
}
