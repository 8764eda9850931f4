package member

import (
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/sqlbrain/sqlbrain/sqlstore/enginetest/eventually"
	"github.com/sqlbrain/sqlbrain/sqlstore/memstore"
)

// TestMembersOfOtherProtocolsDoNotJoin while the other one runs.
func TestMembersOfOtherProtocolsDoNotJoin(t *testing.T) {
	for name, c := range map[string]struct {
		runs, joins int
		refusal     string
	}{
		"a newer one":  {9, 1, "it has protocol 9, and this program 1; upgrade this program"},
		"an older one": {1, 9, "it has protocol 1, and this program 9; upgrade that member"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				store := memstore.New()
				first, err := Join(t.Context(), Config{Store: store, Name: "n1", Version: "v9",
					PeerURLs: []string{"http://10.0.0.1:2380"}, protocol: c.runs})
				require.NoError(t, err)
				p := run(t, first)
				defer p.kill()
				cfg := Config{Store: store, Name: "n2", protocol: c.joins}
				_, err = Join(t.Context(), cfg)
				require.ErrorIs(t, err, ErrProtocol)
				for _, part := range []string{c.refusal, `member "n1"`, "http://10.0.0.1:2380", "version v9"} {
					require.ErrorContains(t, err, part)
				}
				require.Len(t, list(t, first), 1)
				p.kill()
				second, err := Join(t.Context(), cfg)
				require.NoError(t, err, "the other process is gone")
				require.NoError(t, second.CheckProtocols())
				heartbeat(t, first)
				list(t, second)
				require.ErrorIs(t, second.CheckProtocols(), ErrProtocol, "it is back")
			})
		})
	}
}

// TestAMemberReportsOneThatItDoesNotUnderstand: a later version may not look at protocols as this one does.
func TestAMemberReportsOneThatItDoesNotUnderstand(t *testing.T) {
	store, log := newStore(t), &eventually.Log{}
	cfg := config(t, store, "n1")
	cfg.Logger = slog.New(slog.NewTextHandler(log, nil))
	r, err := Join(t.Context(), cfg)
	require.NoError(t, err)
	require.NoError(t, r.CheckProtocols())

	const newer = `{"id":7,"version":"v9","incarnation":1,"heartbeat_interval_ms":1000,"answer_interval_ms":500,"protocol":9,"new":{}`
	writeRow(t, store, "n2", newer+"}")
	for range 2 {
		list(t, r)
		require.ErrorIs(t, r.CheckProtocols(), ErrProtocol)
		require.ErrorContains(t, r.CheckProtocols(),
			`member "n2" (7) of version v9: member: a member speaks another protocol: it has protocol 9, and this program 1`)
	}
	require.Equal(t, 1, strings.Count(log.String(), "do not understand each other"))
	writeRow(t, store, "n2", newer+`,"stopped":true}`)
	list(t, r)
	require.NoError(t, r.CheckProtocols())
	require.Equal(t, 1, strings.Count(log.String(), "all members understand each other again"))
}
