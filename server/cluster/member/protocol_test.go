package member

import (
	"encoding/json"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/coder"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// TestMembersOfProtocolsThatDoNotFitDoNotJoin while the other one runs.
func TestMembersOfProtocolsThatDoNotFitDoNotJoin(t *testing.T) {
	for name, c := range map[string]struct {
		runs, joins Protocols
		refusal     string // empty: it joins
	}{
		"an older one needs nothing": {Protocols{1, 0}, Protocols{2, 1}, ""},
		"a newer one needs nothing":  {Protocols{2, 1}, Protocols{1, 0}, ""},
		"a newer one needs more":     {Protocols{9, 2}, Protocols{1, 0}, "it needs protocol 2 or later, and this program has 1; upgrade this program"},
		"an older one has less":      {Protocols{1, 0}, Protocols{9, 2}, "it has protocol 1, and this program needs 2 or later; upgrade that member"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				first, err := Join(t.Context(), Config{Store: store, Name: "n1", Version: "v9", PeerURLs: []string{"http://10.0.0.1:2380"}, protocols: c.runs})
				require.NoError(t, err)
				p := run(t, first)
				defer p.kill()
				cfg := Config{Store: store, Name: "n2", protocols: c.joins}
				_, err = Join(t.Context(), cfg)
				if c.refusal == "" {
					require.NoError(t, err)
					return
				}
				require.ErrorIs(t, err, ErrProtocol)
				for _, part := range []string{c.refusal, `member "n1"`, "http://10.0.0.1:2380", "version v9"} {
					require.ErrorContains(t, err, part)
				}
				require.Len(t, list(t, first), 1)
				p.kill()
				second, err := Join(t.Context(), cfg)
				require.NoError(t, err, "the other process is gone")
				require.NoError(t, second.CheckProtocols())
				beat(t, first)
				list(t, second)
				require.ErrorIs(t, second.CheckProtocols(), ErrProtocol, "it is back")
			})
		})
	}
}

// TestAMemberReportsOneThatItDoesNotUnderstand: a later version may not look at protocols as this one does.
func TestAMemberReportsOneThatItDoesNotUnderstand(t *testing.T) {
	store, log := newStore(t), &buffer{}
	cfg := config(t, store, "n1")
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	r, err := Join(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, r.CheckProtocols())

	const newer = `{"id":7,"version":"v9","incarnation":1,"heartbeat_interval_ms":1000,"protocol":9,"oldest_protocol":8,"new":{}`
	writeRow(t, store, "n2", newer+"}")
	for range 2 {
		list(t, r)
		require.ErrorIs(t, r.CheckProtocols(), ErrProtocol)
		require.ErrorContains(t, r.CheckProtocols(), `member "n2" (7) of version v9: membership: a member speaks another protocol: it needs protocol 8 or later, and this program has 1`)
	}
	require.Equal(t, 1, strings.Count(log.String(), "do not understand each other"))
	writeRow(t, store, "n2", newer+`,"stopped":true}`)
	list(t, r)
	require.NoError(t, r.CheckProtocols())
	require.Equal(t, 1, strings.Count(log.String(), "all members understand each other again"))
}

// TestAHeartbeatRestoresWhatAnOlderVersionDropped: that version writes the row of a leader that it challenges.
func TestAHeartbeatRestoresWhatAnOlderVersionDropped(t *testing.T) {
	store := newStore(t)
	cfg := config(t, store, "n1")
	cfg.HearsLeader, cfg.protocols, cfg.heartbeatInterval = true, Protocols{3, 2}, time.Minute
	r, err := Join(t.Context(), cfg)
	require.NoError(t, err)
	key := coder.EncodeMemberKey("n1")
	read := func() entry {
		raw, err := store.Get(t.Context(), key)
		require.NoError(t, err)
		e, err := decodeEntry(key, raw)
		require.NoError(t, err)
		return e
	}
	before := read()
	var older struct {
		ID          uint64 `json:"id"`
		Incarnation uint64 `json:"incarnation"`
		Heartbeat   uint64 `json:"heartbeat"`
		Interval    int64  `json:"heartbeat_interval_ms"`
		Answers     int64  `json:"answer_interval_ms"`
		Challenge   uint64 `json:"challenge"`
	}
	require.NoError(t, json.Unmarshal(before.raw, &older))
	older.Challenge = 1
	raw, err := json.Marshal(older)
	require.NoError(t, err)
	writeRow(t, store, "n1", string(raw))
	require.False(t, read().Hears)

	beat(t, r)
	after := read()
	require.Zero(t, after.Challenge)
	require.True(t, after.Hears)
	require.Equal(t, Protocols{3, 2}, after.protocols())
}
